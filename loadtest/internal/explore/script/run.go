package script

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// Outcome is what a session tells its client.
type Outcome int

// The outcomes.
const (
	Done    Outcome = iota
	SoldOut         // refused, because there are too few units
	Refused         // for another reason, such as a deadlock
	Unknown         // a connection was lost
)

// Result is what came of a function.
type Result struct {
	Outcome Outcome
	Why     string
	Units   int64  // that the session has sold
	Text    string // that the function has returned
	False   bool   // it has returned False
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

// names are those of what a script can use beside Starlark's own.
var names = []string{
	"item", "key", "refuse", "sql", "redis", "lua", "try_sql", "try_redis", "try_lua",
}

// run is a function while it is executed.
type run struct {
	script *Script
	env    Env
	calls  map[string]bool // with their results
	polls  int
	inside bool // a function is executed, and not the top of the file
}

// stop ends a function with an outcome.
type stop struct {
	outcome Outcome
	why     string
}

func (s stop) Error() string { return s.why }

// Run executes a function of the script. An error is a mistake in the script, and says where it is.
func (s *Script) Run(ctx context.Context, function string, env Env) (Result, error) {
	r := &run{script: s, env: env, calls: map[string]bool{}}
	value, err := r.call(ctx, function)
	if ended, ok := errors.AsType[stop](err); ok {
		return Result{Outcome: ended.outcome, Why: ended.why}, nil
	}
	if err != nil {
		return Result{}, readable(s.File, err)
	}
	return r.result(function, value)
}

func (r *run) call(ctx context.Context, function string) (starlark.Value, error) {
	globals, err := r.globals(ctx)
	if err != nil {
		return nil, err
	}
	r.inside = true
	var kwargs []starlark.Tuple
	for _, param := range r.script.params[function] {
		kwargs = append(kwargs, starlark.Tuple{starlark.String(param), toStarlark(r.env.Args[param])})
	}
	thread, release := r.thread(ctx)
	defer release()
	return starlark.Call(thread, globals[function], nil, kwargs)
}

// globals executes the top of the file. Sessions share nothing but the stores.
func (r *run) globals(ctx context.Context) (starlark.StringDict, error) {
	thread, release := r.thread(ctx)
	defer release()
	return r.script.program.Init(thread, r.predeclared(ctx))
}

func (r *run) thread(ctx context.Context) (thread *starlark.Thread, release func() bool) {
	thread = &starlark.Thread{
		Name: r.script.File,
		Print: func(_ *starlark.Thread, text string) {
			if r.env.Say != nil {
				r.env.Say(text)
			}
		},
		Load: func(*starlark.Thread, string) (starlark.StringDict, error) {
			return nil, errors.New("a script is one file")
		},
		OnMaxSteps: func(t *starlark.Thread) { t.Cancel(fmt.Sprintf("it loops: %d steps, and no end", mostSteps)) },
	}
	thread.SetMaxExecutionSteps(mostSteps)
	return thread, context.AfterFunc(ctx, func() { thread.Cancel("interrupted") })
}

func (r *run) result(function string, value starlark.Value) (Result, error) {
	result := Result{}
	if count, ok := r.env.Args["count"].(int64); ok {
		result.Units = count
	}
	switch v := value.(type) {
	case starlark.NoneType:
	case starlark.Bool:
		result.False = !bool(v)
	case starlark.Int:
		units, ok := v.Int64()
		if !ok {
			return result, fmt.Errorf("%s: %s returns %v, which is too large", r.script.File, function, v)
		}
		result.Units = units
	case starlark.String:
		result.Text = string(v)
	default:
		return result, fmt.Errorf("%s: %s returns a %s: it can return nothing, True, False, a number of units or a text",
			r.script.File, function, value.Type())
	}
	return result, nil
}

// predeclared is what the script can use.
func (r *run) predeclared(ctx context.Context) starlark.StringDict {
	all := starlark.StringDict{"item": starlark.MakeInt64(r.env.Item)}
	add := func(name string, f func(starlark.Tuple, []starlark.Tuple) (starlark.Value, error)) {
		all[name] = starlark.NewBuiltin(name, func(
			_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple,
		) (starlark.Value, error) {
			if !r.inside {
				return nil, errors.New(name + " can only be called in a function")
			}
			return f(args, kwargs)
		})
	}
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
	switch done := fmt.Sprint(args, kwargs, value, err); {
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
