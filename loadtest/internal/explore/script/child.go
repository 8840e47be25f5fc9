package script

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"go.starlark.net/starlark"
)

// mostMemory is how much memory a script may use beside what its interpreter needs, in bytes.
const mostMemory = 64 << 20

// Interpret is an interpreter, and does not return, if this process was started to be one. main must call it first, and
// so must that of tests.
func Interpret() {
	if os.Getenv(asInterpreter) == "" {
		return
	}
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes; the one that started this one ends it
	if err := limitMemory(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := serve(os.Stdin, os.Stdout); !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve reads a script and executes its functions until in ends.
func serve(in io.Reader, out io.Writer) error {
	decoder := gob.NewDecoder(bufio.NewReader(in))
	c := &child{out: gob.NewEncoder(out)}
	var of source
	if err := decoder.Decode(&of); err != nil {
		return err
	}
	script, err := load(of)
	answer := loaded{Script: script}
	if err != nil {
		answer = loaded{Err: short(err.Error())}
	}
	if err := c.out.Encode(answer); err != nil {
		return err
	}
	for {
		var m message
		if err := decoder.Decode(&m); err != nil {
			return err
		}
		c.receive(script, m)
	}
}

// child is this process as an interpreter.
type child struct {
	runs sync.Map // from an id to an *execution

	mu  sync.Mutex // for out, but not for receiving, as in Interpreter
	out *gob.Encoder
}

func (c *child) receive(s *Script, m message) {
	if m.Kind == toStart {
		ctx, interrupt := context.WithCancel(context.Background())
		e := &execution{child: c, id: m.Run, script: s, item: m.Item, interrupt: interrupt, answers: make(chan message, 1)}
		c.runs.Store(m.Run, e)
		go e.run(ctx, m)
		return
	}
	found, known := c.runs.Load(m.Run)
	switch {
	case !known: // it has returned meanwhile
	case m.Kind == toInterrupt:
		found.(*execution).interrupt()
	case m.Kind == toAnswer:
		found.(*execution).answers <- m
	}
}

func (c *child) send(m message) {
	c.mu.Lock()
	err := c.out.Encode(m)
	c.mu.Unlock()
	if err != nil {
		os.Exit(0) // who started this process is gone
	}
}

// execution is a function while it is executed.
type execution struct {
	child     *child
	id        int64
	script    *Script
	item      int64
	interrupt func()
	answers   chan message
	inside    bool // a function is executed, and not the top of the file
}

// names are those of what a script can use beside Starlark's own.
var names = []string{
	"item", "key", "refuse", "sql", "redis", "lua", "try_sql", "try_redis", "try_lua",
}

// run executes a function, and tells what it has returned.
func (e *execution) run(ctx context.Context, m message) {
	defer e.interrupt()
	defer e.child.runs.Delete(e.id)
	args := m.Value.decode().(*starlark.Dict)
	result, err := e.call(ctx, m.Name, args)
	returned := message{Run: e.id, Kind: toReturn, Result: result}
	if err != nil {
		returned.Text = short(err.Error())
	}
	e.child.send(returned)
}

func (e *execution) call(ctx context.Context, function string, args *starlark.Dict) (Result, error) {
	globals, err := e.globals(ctx)
	if err != nil {
		return Result{}, readable(e.script.File, err)
	}
	e.inside = true
	var kwargs []starlark.Tuple
	for _, param := range e.script.Params[function] {
		if arg, found, _ := args.Get(starlark.String(param)); found {
			kwargs = append(kwargs, starlark.Tuple{starlark.String(param), arg})
		}
	}
	thread, release := e.thread(ctx)
	defer release()
	returned, err := starlark.Call(thread, globals[function], nil, kwargs)
	if err != nil {
		return Result{}, readable(e.script.File, err)
	}
	count, _, _ := args.Get(starlark.String("count"))
	return e.result(function, count, returned)
}

// globals executes the top of the file. Sessions share nothing but the stores.
func (e *execution) globals(ctx context.Context) (starlark.StringDict, error) {
	thread, release := e.thread(ctx)
	defer release()
	all := starlark.StringDict{"item": starlark.MakeInt64(e.item)}
	for _, name := range names[1:] {
		all[name] = starlark.NewBuiltin(name, e.ask)
	}
	return e.script.program.Init(thread, all)
}

// ask has the process that started this one execute a call.
func (e *execution) ask(
	_ *starlark.Thread, f *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple,
) (starlark.Value, error) {
	if !e.inside {
		return nil, errors.New(f.Name() + " can only be called in a function")
	}
	named := make(starlark.Tuple, len(kwargs))
	for i := range kwargs {
		named[i] = kwargs[i]
	}
	sent, err := encode(starlark.Tuple{args, named})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	e.child.send(message{Run: e.id, Kind: toCall, Name: f.Name(), Value: sent})
	got := <-e.answers
	if got.Text != "" {
		return nil, errors.New(got.Text)
	}
	return got.Value.decode(), nil
}

func (e *execution) thread(ctx context.Context) (thread *starlark.Thread, release func() bool) {
	thread = &starlark.Thread{
		Name: e.script.File,
		Print: func(_ *starlark.Thread, text string) {
			e.child.send(message{Run: e.id, Kind: toPrint, Text: short(text)})
		},
		Load: func(*starlark.Thread, string) (starlark.StringDict, error) {
			return nil, errors.New("a script is one file")
		},
		OnMaxSteps: func(t *starlark.Thread) { t.Cancel(fmt.Sprintf("it loops: %d steps, and no end", mostSteps)) },
	}
	thread.SetMaxExecutionSteps(mostSteps)
	return thread, context.AfterFunc(ctx, func() { thread.Cancel("interrupted") })
}

// result is what came of a function. count is nil if it was not called with a count.
func (e *execution) result(function string, count, returned starlark.Value) (Result, error) {
	result := Result{}
	if n, ok := count.(starlark.Int); ok {
		result.Units, _ = n.Int64()
	}
	switch v := returned.(type) {
	case starlark.NoneType:
	case starlark.Bool:
		result.False = !bool(v)
	case starlark.Int:
		units, ok := v.Int64()
		if !ok {
			return result, fmt.Errorf("%s: %s returns a number that is too large", e.script.File, function)
		}
		result.Units = units
	case starlark.String:
		result.Text = short(string(v))
	default:
		return result, fmt.Errorf("%s: %s returns a %s: it can return nothing, True, False, a number of units or a text",
			e.script.File, function, returned.Type())
	}
	return result, nil
}

// short cuts a text that is too long to be sent.
func short(text string) string {
	if len(text) > mostSent {
		return text[:mostSent] + "…"
	}
	return text
}
