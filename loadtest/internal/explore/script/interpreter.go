package script

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"go.starlark.net/starlark"
)

// Interpreter is a process of its own that executes the functions of a script, because Starlark does not bound the
// memory of a script: "x" * 1000000000 is one step. What the functions call, this process executes.
type Interpreter struct {
	file   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	ended  chan struct{}
	err    error // why it has ended; set before ended is closed

	runs sync.Map // from an id to a chan message
	last atomic.Int64

	mu  sync.Mutex // for out. Who receives does not need it: both processes could wait for each other
	out *gob.Encoder
}

// source is what Load was asked for. It is the first message to an interpreter, and loaded is the answer.
type source struct {
	File     string
	Text     []byte
	Requests int
	Words    Words
}

type loaded struct {
	Script *Script
	Err    string // a mistake in the script
}

// message is a part of the execution of a function.
type message struct {
	Run    int64 // its id
	Kind   purpose
	Name   string // of a function
	Item   int64
	Value  value  // arguments, or what a call returns
	Text   string // that is printed, or of an error; empty: none
	Result Result
}

// purpose is what a message is for.
type purpose byte

const (
	toStart     purpose = iota // execute a function
	toInterrupt                // end it
	toCall                     // execute what the function calls
	toAnswer                   // go on with what the call returned
	toPrint                    // show a text of the function
	toReturn                   // the function has ended
)

// Start starts an interpreter for the script.
func (s *Script) Start() (*Interpreter, error) {
	i, _, err := interpret(s.source)
	return i, err
}

// asInterpreter is in the environment of interpreters.
const asInterpreter = "STOCK_SCRIPT_INTERPRETER"

// interpret starts an interpreter, which reads the script.
func interpret(of source) (i *Interpreter, s *Script, err error) {
	if os.Getenv(asInterpreter) != "" {
		return nil, nil, errors.New("an interpreter of scripts starts interpreters: main must call script.Interpret first")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	i = &Interpreter{file: of.File, cmd: exec.Command(self), ended: make(chan struct{})}
	// With cgo, the C library would reserve 64 MiB for each thread, and limitMemory leaves it no room for that.
	i.cmd.Env = append(os.Environ(), asInterpreter+"=1", "GOMAXPROCS=2", "GOTRACEBACK=none", "MALLOC_ARENA_MAX=1")
	i.cmd.Stderr = &i.stderr
	if i.stdin, err = i.cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	stdout, err := i.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := i.cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start an interpreter for %s: %w", of.File, err)
	}
	i.out = gob.NewEncoder(i.stdin)
	in := gob.NewDecoder(stdout)
	var got loaded
	if err := errors.Join(i.out.Encode(of), in.Decode(&got)); err != nil {
		i.end(err)
		return nil, nil, i.err
	}
	go i.receive(in)
	if got.Err != "" {
		i.Close()
		return nil, nil, errors.New(got.Err)
	}
	got.Script.source = of
	return i, got.Script, nil
}

// receive passes messages on until the interpreter ends.
func (i *Interpreter) receive(in *gob.Decoder) {
	for {
		var m message
		if err := in.Decode(&m); err != nil {
			i.end(err)
			return
		}
		if to, known := i.runs.Load(m.Run); known {
			to.(chan message) <- m
		}
	}
}

// noMemory is what the Go runtime, the C library or the race detector says when it gets no more memory.
var noMemory = regexp.MustCompile(
	`out of memory|cannot allocate memory|pthread_create failed|address space collisions|failed to allocate`)

// end finds out why an interpreter has ended.
func (i *Interpreter) end(err error) {
	_ = i.cmd.Process.Kill() // it may have ended already
	err = errors.Join(err, i.cmd.Wait())
	if said := i.stderr.String(); noMemory.MatchString(said) {
		i.err = fmt.Errorf("%s:1:1: it needs more than %d MiB of memory", i.file, mostMemory>>20)
	} else {
		said, _, _ = strings.Cut(said, "\n")
		i.err = fmt.Errorf("%s: its interpreter has ended: %w %s", i.file, err, said)
	}
	close(i.ended)
}

// Close ends the interpreter, and waits for its end.
func (i *Interpreter) Close() {
	_ = i.cmd.Process.Kill() // it may have ended already
	<-i.ended
}

func (i *Interpreter) send(m message) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = i.out.Encode(m) // if it fails, the interpreter has ended, and receive says why
}

// execute has the interpreter execute a function, and executes what that calls.
func (i *Interpreter) execute(ctx context.Context, m message, r *run) (Result, error) {
	received := make(chan message)
	m.Run = i.last.Add(1)
	i.runs.Store(m.Run, received)
	defer i.runs.Delete(m.Run)
	i.send(m)
	stop := context.AfterFunc(ctx, func() { i.send(message{Run: m.Run, Kind: toInterrupt}) })
	defer stop()
	functions := r.functions(ctx)
	for {
		select {
		case <-i.ended:
			return Result{}, i.err
		case got := <-received:
			switch {
			case got.Kind == toReturn && got.Text != "":
				return got.Result, errors.New(got.Text)
			case got.Kind == toReturn:
				return got.Result, nil
			case got.Kind == toCall:
				i.send(r.answer(got, functions[got.Name]))
			case r.env.Say != nil:
				r.env.Say(got.Text)
			}
		}
	}
}

// answer calls a function.
func (r *run) answer(m message, f function) message {
	given := m.Value.decode().(starlark.Tuple)
	var kwargs []starlark.Tuple
	for _, named := range given[1].(starlark.Tuple) {
		kwargs = append(kwargs, named.(starlark.Tuple))
	}
	returned, err := f(given[0].(starlark.Tuple), kwargs)
	a := message{Run: m.Run, Kind: toAnswer}
	if err == nil {
		a.Value, err = encode(returned)
	}
	if err != nil {
		r.ended, a.Text = err, err.Error()
	}
	return a
}
