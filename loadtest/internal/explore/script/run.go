package script

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// Answer is what a session tells its client.
type Answer int

// The outcomes.
const (
	Done    Answer = iota
	SoldOut        // refused, because there are too few units
	Refused        // for another reason, such as a deadlock
	Unknown        // a connection was lost
)

// Result is what came of a function.
type Result struct {
	Answer Answer
	Why    string
	Units  int64  // that the session has sold
	Text   string // that the function has returned
	False  bool   // it has returned False
}

// Env is what a function gets.
type Env struct {
	Item int64
	// Args are the arguments by name. A function gets those that it takes.
	Args   map[string]any
	Stores *Stores
	Say    func(string) // gets what the script prints; nil: nobody
}

// Limits of one function.
const (
	mostSteps = 2_000_000 // of Starlark's
	mostCalls = 200       // with different results
	mostPolls = 1000      // calls that were made before with the same result: more than fit in what ends a schedule
	poll      = 2 * time.Millisecond
)

// run is a function while it is executed.
type run struct {
	env   Env
	calls map[[sha256.Size]byte]bool // with their results
	polls int
	ended error // why it ends before it returns: a stop
}

// stop ends a function with an outcome.
type stop struct {
	outcome Answer
	why     string
}

func (s stop) Error() string { return s.why }

// Run executes a function of the script. An error is a mistake in the script, and says where it is.
func (i *Interpreter) Run(ctx context.Context, function string, env Env) (Result, error) {
	r := &run{env: env, calls: map[[sha256.Size]byte]bool{}}
	args := starlark.NewDict(len(env.Args))
	for name, arg := range env.Args {
		_ = args.SetKey(starlark.String(name), toStarlark(arg)) // a new dict takes any text
	}
	given, err := encode(args)
	if err != nil {
		return Result{}, err
	}
	result, err := i.execute(ctx, message{Name: function, Item: env.Item, Value: given}, r)
	if ended, ok := errors.AsType[stop](r.ended); ok {
		return Result{Answer: ended.outcome, Why: ended.why}, nil
	}
	return result, err
}

// function is one that a script can call.
type function func(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error)

// functions are those that a script can call.
func (r *run) functions(ctx context.Context) map[string]function {
	all := map[string]function{}
	add := func(name string, f function) { all[name] = f }
	add("key", func(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var name string
		err := starlark.UnpackArgs("key", args, kwargs, "name", &name)
		return starlark.String(fmt.Sprintf("%s:{%d}", name, r.env.Item)), err
	})
	add("refuse", func(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var why string
		if err := starlark.UnpackArgs("refuse", args, kwargs, "why", &why); err != nil {
			return nil, err
		}
		if why == "sold out" {
			return nil, stop{SoldOut, why}
		}
		return nil, stop{Refused, why}
	})
	for name, call := range map[string]func(context.Context, starlark.Tuple, []starlark.Tuple) (starlark.Value, error){
		"sql": r.sql, "redis": r.redis, "lua": r.lua,
	} {
		add(name, func(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
			value, err := r.step(ctx, call, args, kwargs)
			f, failed := errors.AsType[failure](err)
			switch {
			case !failed:
				return value, err
			case f.lost:
				return nil, stop{Unknown, f.text}
			case f.refusal:
				return nil, stop{Refused, f.text}
			}
			return nil, err
		})
		add("try_"+name, func(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
			value, err := r.step(ctx, call, args, kwargs)
			f, failed := errors.AsType[failure](err)
			if err != nil && (!failed || f.mistake) {
				return nil, err
			}
			answer := starlark.StringDict{
				"value": starlark.None, "error": starlark.None, "code": starlark.MakeInt(0), "lost": starlark.Bool(f.lost),
			}
			if f.code != nil {
				answer["code"] = f.code
			}
			if failed {
				answer["error"] = starlark.String(f.text)
			} else {
				answer["value"] = value
			}
			return starlarkstruct.FromStringDict(starlarkstruct.Default, answer), nil
		})
	}
	return all
}

// step makes one call to a store.
func (r *run) step(
	ctx context.Context, call func(context.Context, starlark.Tuple, []starlark.Tuple) (starlark.Value, error),
	args starlark.Tuple, kwargs []starlark.Tuple,
) (starlark.Value, error) {
	value, err := call(ctx, args, kwargs)
	if ctx.Err() != nil {
		return nil, stop{Unknown, "interrupted"}
	}
	switch done := sha256.Sum256(fmt.Append(nil, args, kwargs, value, err)); {
	case r.calls[done] && r.polls == mostPolls:
		return nil, fmt.Errorf("it loops: %d calls with the same result, and no end", mostPolls)
	case r.calls[done]:
		r.polls++
		time.Sleep(poll)
	case len(r.calls) == mostCalls:
		return nil, fmt.Errorf("it loops: %d calls, and no end", mostCalls)
	default:
		r.calls[done] = true
	}
	return value, err
}

// failure is the error of a store.
type failure struct {
	text    string
	code    starlark.Value // MySQL's number or PostgreSQL's SQLSTATE; nil: none
	lost    bool           // the connection was lost: nobody knows what has happened
	refusal bool           // the store has refused what it could do at another time, or with other data
	mistake bool           // the store would refuse it at any time
}

func (f failure) Error() string { return f.text }
