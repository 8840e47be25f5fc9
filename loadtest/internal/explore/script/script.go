// Package script reads sessions that are written in Starlark, a dialect of Python, and executes them. What a session
// asks of MySQL or Redis is one call of a function. Nobody else notices what it computes.
package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"stock/internal/suggest"
)

// Script is a file with sessions.
type Script struct {
	File      string
	Title     string   // the comment in its first lines
	Isolation string   // level of all sessions; empty: the server's default
	Stock     int64    // units of the item
	Faults    []string // that can strike
	// Expect is what must come of the schedules, by the fault that strikes; empty: none. What it does not name must be
	// right. It is nil if the script does not say.
	Expect   map[string]string
	Sessions []string // the functions of A, B and C
	Setup    bool     // there is a function setup
	Check    bool     // there is a function check

	Params map[string][]string // of functions

	source  source
	program *starlark.Program // only in an interpreter
	where   map[string]syntax.Position
}

// Words are what a script may name.
type Words struct {
	Faults []string
	Kinds  []string // of outcomes
}

// The values that a script need not say.
const (
	defaultStock = 10
	buys         = "buy" // the session of everybody
	mostSessions = 3
	mostBytes    = 64 << 10
	mostKind     = 1 << 10 // bytes of the name of a result
)

var levels = []string{"READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}

// options allow what a session needs, such as to poll for a lock. Steps are limited, so that no script hangs.
var options = &syntax.FileOptions{While: true, Set: true, GlobalReassign: true, TopLevelControl: true}

// Load reads a script. Its errors begin with file, line and column. requests is how many sessions buy if the script
// does not say.
func Load(file string, text []byte, requests int, words Words) (*Script, error) {
	if len(text) > mostBytes {
		return nil, fmt.Errorf("%s:1:1: it is longer than %d bytes", file, mostBytes)
	}
	i, s, err := interpret(source{file, text, requests, words})
	if err != nil {
		return nil, err
	}
	i.Close()
	return s, nil
}

// load is Load in an interpreter.
func load(of source) (*Script, error) {
	file, text := of.File, of.Text
	s := &Script{File: file, Title: title(string(text)), Stock: defaultStock, where: map[string]syntax.Position{}}
	tree, program, err := starlark.SourceProgramOptions(options, file, text, func(name string) bool {
		return slices.Contains(names, name)
	})
	if err != nil {
		return nil, readable(file, err)
	}
	s.program = program
	for _, statement := range tree.Stmts {
		if a, ok := statement.(*syntax.AssignStmt); ok {
			if name, ok := a.LHS.(*syntax.Ident); ok {
				s.where[name.Name] = name.NamePos
			}
		}
	}
	globals, err := (&execution{script: s}).globals(context.Background())
	if err != nil {
		return nil, readable(file, err)
	}
	if err := errors.Join(s.settings(globals, of.Requests, of.Words), unused(tree)); err != nil {
		return nil, err
	}
	return s, nil
}

// settings are the names that have a meaning to the explorer.
var settings = []string{"stock", "requests", "isolation", "faults", "expect", "sessions", buys, "setup", "check"}

// unused refuses what a file defines and nothing uses: it may be a setting that is misspelt.
func unused(tree *syntax.File) error {
	named := map[string]int{} // how often
	var defined []*syntax.Ident
	syntax.Walk(tree, func(n syntax.Node) bool {
		id, ok := n.(*syntax.Ident)
		if !ok {
			return true
		}
		if b, ok := id.Binding.(*resolve.Binding); ok && b.Scope == resolve.Global {
			if named[id.Name]++; named[id.Name] == 1 && !slices.Contains(settings, id.Name) {
				defined = append(defined, id)
			}
		}
		return true
	})
	var errs []error
	for _, id := range defined {
		if named[id.Name] == 1 {
			errs = append(errs, fmt.Errorf("%s: nothing uses %s%s", id.NamePos, id.Name, cmp.Or(
				suggest.DidYouMean(id.Name, settings), "; what the explorer uses are "+list(settings))))
		}
	}
	return errors.Join(errs...)
}

// title is the comment at the beginning of a file.
func title(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		comment, found := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !found {
			break
		}
		lines = append(lines, strings.TrimSpace(comment))
	}
	return strings.Join(lines, " ")
}

// settings takes over what the script says about itself.
func (s *Script) settings(globals starlark.StringDict, requests int, words Words) error {
	s.Params = map[string][]string{}
	for name, value := range globals {
		if f, ok := value.(*starlark.Function); ok {
			for i := range f.NumParams() {
				param, _ := f.Param(i)
				s.Params[name] = append(s.Params[name], param)
			}
		}
	}
	s.Setup, s.Check = globals["setup"] != nil, globals["check"] != nil
	return errors.Join(s.numbers(globals, &requests), s.texts(globals, words), s.sessions(globals, requests))
}

func (s *Script) numbers(globals starlark.StringDict, requests *int) error {
	if v := globals["stock"]; v != nil {
		if err := starlark.AsInt(v, &s.Stock); err != nil || s.Stock < 0 {
			return s.wrong("stock", "must be a number of units, such as 10")
		}
	}
	if v := globals["requests"]; v != nil {
		if err := starlark.AsInt(v, requests); err != nil || *requests < 1 || *requests > mostSessions {
			return s.wrong("requests", "must be 1, 2 or 3")
		}
	}
	return nil
}

func (s *Script) texts(globals starlark.StringDict, words Words) error {
	if v := globals["isolation"]; v != nil {
		level, _ := starlark.AsString(v)
		if s.Isolation = strings.ToUpper(level); !slices.Contains(levels, s.Isolation) {
			return s.wrong("isolation", "must be one of %s", list(levels))
		}
	}
	if v := globals["faults"]; v != nil {
		all, ok := v.(*starlark.List)
		if !ok || all.Len() > len(words.Faults) {
			return s.wrong("faults", "must be a list of different names: %s", list(words.Faults))
		}
		for v := range all.Elements() {
			name, _ := starlark.AsString(v)
			if !slices.Contains(words.Faults, name) {
				return s.wrong("faults", "there is no fault %v, only %s", v, list(words.Faults))
			}
			s.Faults = append(s.Faults, name)
		}
	}
	return s.expectations(globals["expect"], words)
}

// expectations reads what the result must be: the kind of all schedules without a fault, or kinds by fault.
func (s *Script) expectations(v starlark.Value, words Words) error {
	if v == nil {
		return nil
	}
	s.Expect = map[string]string{}
	byFault, ok := v.(*starlark.Dict)
	if !ok {
		byFault = starlark.NewDict(1)
		_ = byFault.SetKey(starlark.String(""), v) // a new one is not frozen
	}
	for _, item := range byFault.Items() {
		fault, _ := starlark.AsString(item[0])
		kind, isText := starlark.AsString(item[1])
		switch {
		case fault != "" && !slices.Contains(s.Faults, fault):
			return s.wrong("expect", "%v cannot strike: the script does not have it in faults", item[0])
		case len(kind) > mostKind:
			return s.wrong("expect", "is longer than %d bytes", mostKind)
		case !isText || !s.Check && !slices.Contains(words.Kinds, kind):
			return s.wrong("expect", "there is no result %v, only %s", item[1], list(words.Kinds))
		}
		s.Expect[fault] = kind
	}
	return nil
}

// sessions finds out which function each actor executes.
func (s *Script) sessions(globals starlark.StringDict, requests int) error {
	all, isList := globals["sessions"].(*starlark.List)
	switch _, buy := globals[buys].(*starlark.Function); {
	case globals["sessions"] == nil && !buy:
		return fmt.Errorf("%s:1:1: there is no session: define buy(count), or list functions in sessions", s.File)
	case globals["sessions"] == nil:
		s.Sessions = slices.Repeat([]string{buys}, requests)
		return s.checkParams(globals)
	case !isList || all.Len() < 1 || all.Len() > mostSessions:
		return s.wrong("sessions", "must be a list of one, two or three functions")
	}
	for v := range all.Elements() {
		f, ok := v.(*starlark.Function)
		if !ok || globals[f.Name()] != v {
			return s.wrong("sessions", "%v is not a function of this file", v)
		}
		s.Sessions = append(s.Sessions, f.Name())
	}
	return s.checkParams(globals)
}

// checkParams checks that the functions that are called take what they can get.
func (s *Script) checkParams(globals starlark.StringDict) error {
	takes := map[string][]string{"setup": nil, "check": {"sold", "unknown", "refused"}}
	for _, name := range s.Sessions {
		takes[name] = []string{"count", "who", "request"}
	}
	for name, known := range takes {
		f, ok := globals[name].(*starlark.Function)
		if !ok {
			if v := globals[name]; v != nil {
				return s.wrong(name, "must be a function, not %s", v.Type())
			}
			continue
		}
		for i := range f.NumParams() {
			if param, at := f.Param(i); !slices.Contains(known, param) {
				return fmt.Errorf("%s: %s cannot have a parameter %s, only %s", at, name, param, list(known))
			}
		}
	}
	return nil
}

// Keyed reports whether the first session deducts once for each request, however often that is sent.
func (s *Script) Keyed() bool { return slices.Contains(s.Params[s.Sessions[0]], "request") }

func (s *Script) wrong(name, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %s", s.where[name], name, fmt.Sprintf(format, args...))
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// readable returns an error that begins with file, line and column, if they are known.
func readable(file string, err error) error {
	if several, ok := errors.AsType[resolve.ErrorList](err); ok {
		var all []error
		for _, e := range several {
			all = append(all, fmt.Errorf("%s: %s", e.Pos, e.Msg))
		}
		return errors.Join(all...)
	}
	if syntactic, ok := errors.AsType[syntax.Error](err); ok {
		return fmt.Errorf("%s: %s", syntactic.Pos, syntactic.Msg)
	}
	if evaluated, ok := errors.AsType[*starlark.EvalError](err); ok {
		for i := range evaluated.CallStack {
			if frame := evaluated.CallStack.At(i); frame.Pos.Filename() == file {
				return &placed{at: fmt.Sprintf("%s: in %s", frame.Pos, frame.Name), err: evaluated}
			}
		}
	}
	return fmt.Errorf("%s: %w", file, err)
}

// placed is an error with the place in the script.
type placed struct {
	at  string
	err *starlark.EvalError
}

func (p *placed) Error() string { return p.at + ": " + p.err.Msg }
func (p *placed) Unwrap() error { return p.err }
