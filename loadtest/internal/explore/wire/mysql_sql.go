package wire

import (
	"slices"
	"strings"
)

// everything stands for all that all stores have.
const everything = "*"

// names is a set of what statements touch. It is small.
type names []string

func (n *names) add(more ...string) {
	for _, name := range more {
		if !slices.Contains(*n, name) {
			*n = append(*n, name)
		}
	}
}

// list returns what the set contains, sorted.
func (n names) list() []string {
	if len(n) == 0 {
		return nil
	}
	list := slices.Clone(n)
	slices.Sort(list)
	return list
}

// effect is what a request touches.
type effect struct {
	reads, writes names
	local         bool // see Exchange.Local
	opening       bool // it may belong to the opening of a connection
}

// The isolation levels that are told apart.
const (
	repeatableRead = "REPEATABLE READ" // unless the session says otherwise
	serializable   = "SERIALIZABLE"
)

// sqlState is what is known about the session of a connection. The server tells it after each statement; between the
// statements of one request, it is guessed.
type sqlState struct {
	autocommit bool
	inTrans    bool
	snapshot   bool  // the transaction sees only what was committed when it first read
	touched    names // by the transaction
	changed    names
	usual      string // isolation level; empty is repeatableRead
	next       string // isolation level of the next transaction alone
}

// status takes over what the server says.
func (s *sqlState) status(flags int) {
	s.autocommit = flags&statusAutocommit != 0
	if s.inTrans = flags&statusInTrans != 0; !s.inTrans {
		s.snapshot, s.touched, s.changed = false, nil, nil
	}
}

// failed takes over what an error says: after a deadlock, the transaction is rolled back.
func (s *sqlState) failed(number int) {
	const deadlock = 1213
	if number == deadlock {
		s.end()
	}
}

func (s *sqlState) end() {
	s.inTrans, s.snapshot, s.touched, s.changed, s.next = false, false, nil, nil, ""
}

// joinable reports whether a statement is part of a transaction of several.
func (s *sqlState) joinable() bool { return s.inTrans || !s.autocommit }

func (s *sqlState) level() string {
	switch {
	case s.next != "":
		return s.next
	case s.usual != "":
		return s.usual
	}
	return repeatableRead
}

// analyse tells what the statements of a text touch.
//
// It errs on the side of more. What the text does not show, it does not see: triggers, foreign keys, views and stored
// functions.
func (s *sqlState) analyse(text string) effect {
	all := effect{local: true, opening: true}
	tokens := tokenize(text)
	for len(tokens) > 0 {
		end := slices.IndexFunc(tokens, func(t token) bool { return t.is(";") })
		one := tokens
		if end < 0 {
			tokens = nil
		} else {
			one, tokens = tokens[:end], tokens[end+1:]
		}
		if len(one) == 0 {
			continue
		}
		e := s.statement(one)
		all.reads.add(e.reads...)
		all.writes.add(e.writes...)
		all.local = all.local && e.local
		all.opening = all.opening && e.opening && e.local
	}
	return all
}

// statement tells what one statement touches.
func (s *sqlState) statement(tokens []token) effect {
	for len(tokens) > 1 && tokens[0].is("(") {
		tokens = tokens[1:]
	}
	if words(tokens, "SET", "STATEMENT") {
		if at := slices.IndexFunc(tokens, func(t token) bool { return t.is("FOR") }); at >= 0 {
			return s.statement(tokens[at+1:])
		}
	}
	switch tokens[0].word() {
	case "SELECT", "WITH", "VALUES", "DO", "EXPLAIN", "DESCRIBE", "DESC", "TABLE":
		return s.query(tokens)
	case "INSERT", "REPLACE", "UPDATE", "DELETE":
		tables, _ := tablesOf(tokens)
		return s.joins(effect{writes: append(tables, namedLocks(tokens)...)})
	case "BEGIN", "START":
		return s.begin(tokens)
	case "COMMIT", "ROLLBACK":
		if slices.ContainsFunc(tokens, func(t token) bool { return t.is("TO") }) {
			return effect{writes: s.changed, local: len(s.changed) == 0} // to a savepoint
		}
		e := s.ends()
		s.end()
		return e
	case "SET":
		return s.set(tokens)
	case "SAVEPOINT", "RELEASE", "USE", "PREPARE", "DEALLOCATE", "DROP", "SHOW":
		return s.session(tokens)
	}
	return effect{reads: names{everything}, writes: names{everything}}
}

// ends returns the effect of the end of the transaction. Nobody can notice the end of one that has changed nothing.
func (s *sqlState) ends() effect {
	return effect{reads: s.touched, writes: s.changed, local: len(s.changed) == 0, opening: false}
}

func (s *sqlState) begin(tokens []token) effect {
	e := s.ends() // a transaction that is open is committed
	next := s.next
	s.end()
	s.inTrans, s.next = true, next
	if containsWords(tokens, "CONSISTENT", "SNAPSHOT") {
		s.snapshot = true
		e.reads.add(everything)
		e.local = false
	}
	if words(tokens, "START") && !words(tokens, "START", "TRANSACTION") { // such as START SLAVE
		e = effect{reads: names{everything}, writes: names{everything}}
	}
	return e
}

// session returns the effect of statements that concern the session alone, most of them.
func (s *sqlState) session(tokens []token) effect {
	switch {
	case words(tokens, "SHOW", "WARNINGS"), words(tokens, "SHOW", "ERRORS"), words(tokens, "DROP", "PREPARE"):
		return effect{local: true, opening: true}
	case words(tokens, "SHOW"):
		return effect{reads: names{everything}}
	case words(tokens, "DROP"):
		return effect{reads: names{everything}, writes: names{everything}}
	}
	return effect{local: true, opening: words(tokens, "USE")}
}

// joins adds the effect of a statement to that of the transaction which it belongs to. Named locks do not.
func (s *sqlState) joins(e effect) effect {
	if !s.joinable() {
		s.next = ""
		return e
	}
	isLock := func(name string) bool { return strings.HasPrefix(name, lockPrefix) }
	s.touched.add(slices.DeleteFunc(slices.Clone(e.reads), isLock)...)
	s.changed.add(slices.DeleteFunc(slices.Clone(e.writes), isLock)...)
	return e
}

// query returns the effect of a SELECT.
func (s *sqlState) query(tokens []token) effect {
	tables, system := tablesOf(tokens)
	locks := namedLocks(tokens)
	if containsWords(tokens, "NEXT", "VALUE") || containsWords(tokens, "NEXTVAL") || containsWords(tokens, "SETVAL") {
		return effect{reads: names{everything}, writes: names{everything}}
	}
	if len(tables) == 0 && len(locks) == 0 && !system {
		return effect{local: true, opening: true}
	}
	e := effect{reads: tables, writes: locks}
	if system {
		e.reads.add(everything)
	}
	locking := containsWords(tokens, "FOR", "UPDATE") || containsWords(tokens, "FOR", "SHARE") ||
		containsWords(tokens, "LOCK", "IN", "SHARE", "MODE") || s.joinable() && s.level() == serializable
	if locking {
		e.reads, e.writes = nil, append(e.writes, tables...)
		return s.joins(e)
	}
	e = s.joins(e)
	if s.joinable() && s.level() == repeatableRead && !s.snapshot && len(tables) > 0 {
		// What the transaction reads later depends on what has been committed by now, whatever the table.
		s.snapshot = true
		e.reads.add(everything)
	}
	return e
}

// set returns the effect of SET, and notes the isolation level.
func (s *sqlState) set(tokens []token) effect {
	if at := indexWords(tokens, "ISOLATION", "LEVEL"); at >= 0 && at+2 < len(tokens) {
		level := tokens[at+2].word()
		if at+3 < len(tokens) && level != serializable {
			level += " " + tokens[at+3].word()
		}
		s.isolate(level, words(tokens, "SET", "SESSION") || words(tokens, "SET", "LOCAL"))
	}
	local := effect{local: true, opening: true}
	for i, t := range tokens {
		variable := strings.TrimPrefix(t.text, "@@")
		value := ""
		if i+2 < len(tokens) {
			value = tokens[i+2].text
		}
		switch strings.ToUpper(strings.TrimPrefix(variable, "session.")) {
		case "GLOBAL", "PERSIST", "PERSIST_ONLY", "PASSWORD":
			return effect{reads: names{everything}, writes: names{everything}}
		case "FROM":
			return s.query(tokens)
		case "TX_ISOLATION", "TRANSACTION_ISOLATION":
			s.isolate(strings.ToUpper(strings.ReplaceAll(value, "-", " ")), true)
		case "AUTOCOMMIT":
			if len(s.changed) > 0 { // it may commit
				local.writes, local.local = slices.Clone(s.changed), false
			}
			s.autocommit = value != "0" && !strings.EqualFold(value, "OFF") && !strings.EqualFold(value, "FALSE")
		}
		if strings.HasPrefix(strings.ToLower(variable), "global.") {
			return effect{reads: names{everything}, writes: names{everything}}
		}
	}
	return local
}

func (s *sqlState) isolate(level string, session bool) {
	if session {
		s.usual = level
	} else {
		s.next = level
	}
}

const lockPrefix = "mysql:lock:"

// namedLocks returns the locks of GET_LOCK and its like.
func namedLocks(tokens []token) (locks names) {
	for i, t := range tokens {
		switch t.word() {
		case "GET_LOCK", "RELEASE_LOCK", "IS_FREE_LOCK", "IS_USED_LOCK":
			if i+3 < len(tokens) && tokens[i+1].is("(") && tokens[i+2].kind == literal &&
				(tokens[i+3].is(")") || tokens[i+3].is(",")) {
				locks.add(lockPrefix + tokens[i+2].text)
				continue
			}
			locks.add(everything)
		case "RELEASE_ALL_LOCKS":
			locks.add(everything)
		}
	}
	return locks
}

// tablesOf returns the tables that a statement names, and whether it reads tables about the server itself. A name that
// is not a table's, such as that of a WITH, does no harm.
func tablesOf(tokens []token) (tables names, system bool) {
	verb := tokens[0].word()
	expected := verb == "UPDATE" || verb == "INSERT" || verb == "REPLACE" || verb == "TABLE"
	lists := []bool{false} // for each open parenthesis: a comma separates tables
	for i := 1; i < len(tokens); i++ {
		t := tokens[i]
		top := len(lists) - 1
		switch {
		case t.is("("):
			lists = append(lists, expected)
			continue // FROM (a, b)
		case t.is(")"):
			lists = lists[:max(top, 1)]
			expected = false
			continue
		case t.is(","):
			expected = lists[top]
			continue
		}
		switch word := t.word(); word {
		case "FROM", "JOIN", "INTO", "STRAIGHT_JOIN":
			expected = true
			continue
		case "USING":
			expected = verb == "DELETE" && i+1 < len(tokens) && !tokens[i+1].is("(")
			continue
		case "LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "IGNORE", "QUICK", "LATERAL", "DUAL":
			continue
		case "SELECT", "VALUES", "VALUE", "SET", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "WINDOW", "WITH":
			expected, lists[top] = false, false
			continue
		}
		if !expected || t.kind != name && t.kind != literal {
			expected = false
			continue
		}
		schema := ""
		for i+2 < len(tokens) && tokens[i+1].is(".") {
			schema = t.text
			i += 2
			t = tokens[i]
		}
		switch strings.ToLower(schema) {
		case "information_schema", "performance_schema", "sys", "mysql":
			system = true
		default:
			tables.add("mysql:" + strings.ToLower(t.text))
		}
		expected, lists[top] = false, true
	}
	return tables, system
}
