package stock_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.starlark.net/syntax"

	"stock/internal/must"
)

// listing is what a person types who does the same as a script: its statements and commands with named parameters in
// place of values. What the script decides in between is a comment.
type listing struct {
	functions map[string]*syntax.DefStmt
	lua       map[string]string // scripts by name
	notes     []string          // the comments at the end of lines, by line from 0

	shown   map[string]bool // functions and Lua scripts
	luas    strings.Builder
	tables  []string // statements that create them
	text    strings.Builder
	indent  string
	isSQL   bool
	isRedis bool
	open    bool   // a transaction
	begin   string // statements that begin one at an isolation level; empty: BEGIN does
	coded   bool   // an error was named
}

// newListing reads a script.
func newListing(t *testing.T, d document) *listing {
	t.Helper()
	options := &syntax.FileOptions{While: true, TopLevelControl: true, GlobalReassign: true}
	file, err := options.Parse(d.path, d.text, 0)
	must.Succeed(t, err)
	l := &listing{
		begin: beginning(d), functions: map[string]*syntax.DefStmt{}, lua: map[string]string{}, shown: map[string]bool{},
	}
	for line := range strings.Lines(d.text) {
		_, note, _ := strings.Cut(strings.TrimSpace(line), "  # ")
		l.notes = append(l.notes, note)
	}
	called := map[string]bool{}
	var roots []*syntax.DefStmt
	for _, statement := range file.Stmts {
		switch s := statement.(type) {
		case *syntax.DefStmt:
			l.functions[s.Name.Name] = s
			roots = append(roots, s)
			for _, c := range calls(s) {
				called[c.Fn.(*syntax.Ident).Name] = true
			}
		case *syntax.AssignStmt:
			if text, ok := s.RHS.(*syntax.Literal); ok && text.Token == syntax.STRING {
				l.lua[s.LHS.(*syntax.Ident).Name] = strings.TrimSpace(text.Value.(string))
			}
		}
	}
	for _, c := range calls(file) {
		if c.Fn.(*syntax.Ident).Name == "sql" && strings.HasPrefix(l.call(c), "CREATE TABLE") {
			l.tables = append(l.tables, l.call(c))
		}
	}
	l.isSQL = false
	// What only prepares, judges or disturbs others is left out, and so is what another function calls.
	roots = slices.DeleteFunc(roots, func(f *syntax.DefStmt) bool {
		return called[f.Name.Name] || slices.Contains([]string{"setup", "check", "give_up"}, f.Name.Name)
	})
	for _, f := range roots {
		if len(roots) > 1 && !l.onlyCalls(f) {
			l.add("-- "+f.Name.Name+":", "")
		}
		l.body(f.Body)
	}
	return l
}

// beginning returns the statements that begin a transaction at the isolation level of a script; empty: BEGIN does.
func beginning(d document) string {
	_, level, found := strings.Cut(d.text, "\nisolation = \"")
	level, _, _ = strings.Cut(level, "\"")
	switch {
	case !found || level == "REPEATABLE READ": // the default of MySQL
		return ""
	case strings.Contains(d.path, "/postgres/"):
		return "BEGIN ISOLATION LEVEL " + level + ";"
	}
	return "SET TRANSACTION ISOLATION LEVEL " + level + "; BEGIN;"
}

// calls returns the calls of functions in a part of a script.
func calls(n syntax.Node) (all []*syntax.CallExpr) {
	syntax.Walk(n, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok {
			if _, ok := c.Fn.(*syntax.Ident); ok {
				all = append(all, c)
			}
		}
		return true
	})
	return all
}

// asks matches the functions that ask a store.
var asks = regexp.MustCompile(`^(try_)?(sql|redis|lua)$`)

// asked returns the calls in an expression that ask a store, or are of functions of the script.
func (l *listing) asked(n syntax.Node) []*syntax.CallExpr {
	return slices.DeleteFunc(calls(n), func(c *syntax.CallExpr) bool {
		name := c.Fn.(*syntax.Ident).Name
		return !asks.MatchString(name) && l.functions[name] == nil
	})
}

// onlyCalls reports whether a function does nothing but call others of the script.
func (l *listing) onlyCalls(f *syntax.DefStmt) bool {
	return !slices.ContainsFunc(calls(f), func(c *syntax.CallExpr) bool {
		return asks.MatchString(c.Fn.(*syntax.Ident).Name)
	})
}

// add adds a line, and a note to it.
func (l *listing) add(line, note string) {
	switch line {
	case "BEGIN;":
		l.open = true
		line = cmp.Or(l.begin, line)
	case "COMMIT;", "ROLLBACK;":
		l.open = false
	}
	width := 100 - len(l.indent)
	if before, condition, found := strings.Cut(line, " WHERE "); found && len(line) > width {
		line = strings.TrimSpace(wrap(before, width)) + "\n" + wrap("WHERE "+condition, width)
	} else {
		line = wrap(line, width)
	}
	text := strings.TrimSpace(line)
	if note != "" {
		text += "  -- " + note
	}
	begin := "\n" + l.indent + "    "
	if strings.HasPrefix(text, "--") {
		begin = "\n" + l.indent + "-- "
	}
	l.text.WriteString(l.indent + strings.ReplaceAll(text, "\n", begin) + "\n")
}

// nested shows statements under a title.
func (l *listing) nested(title string, body []syntax.Stmt) {
	l.add("-- "+title+":", "")
	l.indent += "  "
	l.body(body)
	l.indent = l.indent[2:]
}

func (l *listing) body(statements []syntax.Stmt) {
	for i, statement := range statements {
		if _, done := statement.(*syntax.ReturnStmt); done && l.indent == "" && l.end(statement) == "done" {
			continue
		}
		if end := l.end(statement); end != "" && i > 0 {
			if _, after := statements[i-1].(*syntax.ExprStmt); !after {
				end = "otherwise: " + end
			}
			l.add("-- "+end, "")
			continue
		}
		_, end := statement.Span()
		note := l.notes[end.Line-1]
		switch s := statement.(type) {
		case *syntax.ExprStmt:
			l.ask(s.X, note)
		case *syntax.AssignStmt:
			l.assign(s, note)
		case *syntax.ReturnStmt:
			l.ask(s.Result, l.answer(s.Result))
		case *syntax.IfStmt:
			l.decide(s)
		case *syntax.ForStmt:
			l.ask(s.X, "")
			title := "for each " + l.value(s.Vars)
			if c, ok := s.X.(*syntax.CallExpr); ok && c.Fn.(*syntax.Ident).Name == "range" {
				title = "up to " + l.value(c.Args[0]) + " times"
			}
			l.nested(title, s.Body)
		case *syntax.WhileStmt:
			l.repeat(s)
		}
	}
}

// assign notes the names of what is read, and what the script says about what it computes.
func (l *listing) assign(s *syntax.AssignStmt, note string) {
	asked := l.asked(s.RHS)
	switch {
	case len(asked) == 0 && note != "":
		l.add("-- "+l.value(s.LHS)+": "+note, "")
	case len(asked) > 0 && !strings.HasPrefix(l.call(asked[0]), "INSERT"): // of which only the error matters
		note = strings.TrimSuffix(l.value(s.LHS)+": "+note, ": ")
	}
	l.ask(s.RHS, note)
}

// answer is a note to what a session reads before it ends.
func (l *listing) answer(e syntax.Expr) string {
	if c, ok := e.(*syntax.CallExpr); ok && strings.HasPrefix(l.call(c), "SELECT") {
		return "the answer"
	}
	return ""
}

// repeat shows a loop. One that only waits is a note to what it repeats.
func (l *listing) repeat(s *syntax.WhileStmt) {
	if b, ok := s.Body[0].(*syntax.BranchStmt); !ok || b.Token != syntax.PASS {
		l.ask(s.Cond, "")
		l.nested("while "+l.condition(s.Cond), s.Body)
		return
	}
	_, end := s.Body[0].Span()
	note := "again while " + l.condition(s.Cond)
	if with := l.notes[end.Line-1]; with != "" {
		note += ": " + with
	}
	l.ask(s.Cond, note)
}

// decide shows a condition, and what follows from it.
func (l *listing) decide(s *syntax.IfStmt) {
	l.ask(s.Cond, "")
	open := l.open
	end := l.end(s.True[len(s.True)-1])
	switch {
	case len(s.True) == 2 && l.rollsBack(s.True[0]) && end != "", len(s.True) == 1 && end != "":
		l.add("-- "+l.condition(s.Cond)+": "+end, "")
	case len(s.True) == 1 && l.rollsBack(s.True[0]):
		l.add("-- "+l.condition(s.Cond)+": ROLLBACK", "")
	default:
		l.nested(l.condition(s.Cond), s.True)
	}
	l.open = open
	if len(s.False) == 0 {
		return
	}
	if other, ok := s.False[0].(*syntax.IfStmt); ok && len(s.False) == 1 {
		l.decide(other)
		return
	}
	l.nested("otherwise", s.False)
}

// rollsBack reports whether a statement does nothing but that.
func (l *listing) rollsBack(s syntax.Stmt) bool {
	e, ok := s.(*syntax.ExprStmt)
	return ok && len(l.asked(e.X)) == 1 && l.call(l.asked(e.X)[0]) == "ROLLBACK;"
}

// end says how a session ends, or leaves a loop, that asks nothing more; empty if the statement is none that ends it.
func (l *listing) end(statement syntax.Stmt) string {
	_, at := statement.Span()
	note := l.notes[at.Line-1]
	switch s := statement.(type) {
	case *syntax.BranchStmt:
		return "go on"
	case *syntax.ReturnStmt:
		if len(l.asked(s)) == 0 {
			return cmp.Or(note, "done")
		}
	case *syntax.ExprStmt:
		if len(l.asked(s.X)) == 0 {
			return l.refusal(s.X.(*syntax.CallExpr), note)
		}
	}
	return ""
}

// refusal says why a session gives up, and what it does before.
func (l *listing) refusal(c *syntax.CallExpr, note string) string {
	why := "give up"
	if text, ok := c.Args[0].(*syntax.Literal); ok {
		why = text.Value.(string)
	}
	if note != "" {
		why += "; " + note
	}
	if l.open {
		why = "ROLLBACK; " + why
	}
	return why
}

// ask shows what an expression asks of stores, and of functions of the script.
func (l *listing) ask(e syntax.Expr, note string) {
	if e == nil {
		return
	}
	for _, c := range l.asked(e) {
		name := c.Fn.(*syntax.Ident).Name
		if f := l.functions[name]; f != nil {
			if !l.shown[name] {
				l.shown[name] = true
				l.nested(name, f.Body)
			}
			continue
		}
		l.add(l.call(c), note)
	}
}

var placeholder = regexp.MustCompile(`\?|\$\d`)

// call returns a statement or a command as it is typed.
func (l *listing) call(c *syntax.CallExpr) string {
	values := func(list []syntax.Expr) (all []string) {
		for _, v := range list {
			all = append(all, l.value(v))
		}
		return all
	}
	switch name := strings.TrimPrefix(c.Fn.(*syntax.Ident).Name, "try_"); name {
	case "sql":
		l.isSQL = true
		next := 0
		if strings.Contains(strings.Join(values(c.Args[1:]), " "), " + ") {
			panic("a sum may need parentheses in " + c.Args[0].(*syntax.Literal).Raw)
		}
		text := placeholder.ReplaceAllStringFunc(c.Args[0].(*syntax.Literal).Value.(string), func(mark string) string {
			next++
			at := next
			if mark != "?" {
				at = int(mark[1] - '0')
			}
			value := l.value(c.Args[at])
			if strings.HasPrefix(value, "lock:") {
				value = "'" + value + "'"
			}
			return value
		})
		return strings.Join(strings.Fields(text), " ") + ";"
	case "redis":
		l.isRedis = true
		words := values(c.Args)
		for i, word := range words {
			if strings.HasPrefix(word, ":") && strings.Contains(word, " ") {
				words[i] = "(" + word + ")"
			}
		}
		return strings.Join(words, " ")
	case "lua":
		script := c.Args[0].(*syntax.Ident).Name
		if !l.shown[script] {
			l.shown[script] = true
			fmt.Fprintf(&l.luas, "-- %s\n%s\n", script, l.lua[script])
		}
		keys := values(c.Args[1].(*syntax.ListExpr).List)
		words := append([]string{"EVAL", script, fmt.Sprint(len(keys))}, keys...)
		if len(c.Args) > 2 {
			words = append(words, values(c.Args[2].(*syntax.ListExpr).List)...)
		}
		return strings.Join(words, " ")
	}
	return ""
}

// renamed are the variables of scripts that a shop calls otherwise.
var renamed = map[string]string{"item": "goods_id", "request": "key"}

// value returns an expression, with variables as named parameters.
func (l *listing) value(e syntax.Expr) string {
	switch e := e.(type) {
	case *syntax.Ident:
		if name := renamed[e.Name]; name != "" {
			return ":" + name
		}
		return ":" + e.Name
	case *syntax.Literal:
		return fmt.Sprint(e.Value)
	case *syntax.BinaryExpr:
		return fmt.Sprintf("%s %v %s", l.value(e.X), e.Op, l.value(e.Y))
	case *syntax.ParenExpr:
		return l.value(e.X)
	case *syntax.TupleExpr:
		var all []string
		for _, part := range e.List {
			all = append(all, l.value(part))
		}
		return strings.Join(all, ", ")
	case *syntax.DotExpr: // of what a try_ function returns
		return l.value(e.X)
	case *syntax.IndexExpr:
		return fmt.Sprintf("%s[%s]", l.value(e.X), l.value(e.Y))
	case *syntax.CallExpr:
		if name, ok := e.Fn.(*syntax.Ident); ok && name.Name == "key" {
			return strings.ReplaceAll(l.value(e.Args[0]), " + :", "") + ":{goods_id}"
		}
		return l.value(e.Args[0])
	}
	return ""
}

// condition says in words when something is done.
func (l *listing) condition(e syntax.Expr) string {
	b, ok := e.(*syntax.BinaryExpr)
	if _, not := e.(*syntax.UnaryExpr); not {
		return "no error"
	}
	if !ok && l.coded {
		return "another error"
	}
	if !ok {
		return "an error"
	}
	isSQL := slices.ContainsFunc(calls(b.X), func(c *syntax.CallExpr) bool {
		return strings.HasSuffix(c.Fn.(*syntax.Ident).Name, "sql")
	})
	with, not, equal := l.value(b.Y), "", b.Op == syntax.EQL
	if b.Op == syntax.NEQ {
		not = "not "
	}
	if dot, ok := b.X.(*syntax.DotExpr); ok && dot.Name.Name == "code" {
		l.coded = l.coded || equal
		return not + "error " + with
	}
	switch asked := len(l.asked(b.X)) > 0; {
	case asked && isSQL && equal && with == "0":
		return "no row changed"
	case asked && isSQL && equal && with == "1":
		return "one row changed"
	case asked && isSQL && equal:
		return "it is " + with
	case asked && with == ":None":
		return not + "nil"
	case asked:
		return fmt.Sprintf("reply %v %s", b.Op, with)
	case with == ":None":
		return l.value(b.X) + " is " + not + "null"
	}
	return l.value(e)
}
