package wire

import (
	"cmp"
	"iter"
	"regexp"
	"slices"
	"strings"
)

// everything stands for all that all stores have.
const everything = "*"

// names is a sorted set of what statements touch. It is small.
type names []string

func (n *names) add(more ...string) {
	for _, name := range more {
		if at, found := slices.BinarySearch(*n, name); !found {
			*n = slices.Insert(*n, at, name)
		}
	}
}

// effect is what a request touches.
type effect struct {
	reads, writes names
	local         bool // see Exchange.Local
	parts         string
	several       bool
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
	locked     bool   // LOCK TABLES holds tables, until the next transaction begins
	named      bool   // the session has asked for a lock of GET_LOCK
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

func (s *sqlState) level() string { return cmp.Or(s.next, s.usual, repeatableRead) }

// analyse tells what statements touch.
//
// It errs on the side of more: whatever it does not know, such as a stored function, touches everything. It cannot see
// what a name stands for, and what a write leads to: views, triggers and foreign keys.
func (s *sqlState) analyse(tokens []token) effect {
	all, effects := effect{local: true}, 0
	for one := range statementsOf(tokens) {
		plain := strings.HasPrefix(s.level(), "READ ") // higher levels lock what is read for a write, with the gaps
		why, effect := partsOf(one, plain)
		all.parts, effects = cmp.Or(all.parts, why), effects+effect
		e := s.statement(one, outline(one))
		all.reads.add(e.reads...)
		all.writes.add(e.writes...)
		all.local = all.local && e.local
	}
	all.several = effects > 1
	return all
}

// statementsOf yields the tokens of each of several statements, without parentheses before the first word.
func statementsOf(tokens []token) iter.Seq[[]token] {
	return func(yield func([]token) bool) {
		for len(tokens) > 0 {
			one := tokens
			if end := slices.IndexFunc(tokens, func(t token) bool { return t.is(";") }); end >= 0 {
				one, tokens = tokens[:end], tokens[end+1:]
			} else {
				tokens = nil
			}
			for len(one) > 1 && one[0].is("(") {
				one = one[1:]
			}
			if len(one) > 0 && !yield(one) {
				return
			}
		}
	}
}

// touchesAll is the effect of a statement that may do anything.
func touchesAll() effect { return effect{reads: names{everything}, writes: names{everything}} }

// hiding matches the outlines of statements that touch more than the tables that they name.
var hiding = regexp.MustCompile(` (?:NEXT VALUE|NEXTVAL|INTO OUTFILE|INTO DUMPFILE|LOAD_FILE|\{ OJ|` +
	`SET STATEMENT|SET PASSWORD|GLOBAL|PERSIST|PERSIST_ONLY|INFORMATION_SCHEMA|PERFORMANCE_SCHEMA|SYS|MYSQL) `)

// statement tells what one statement touches. o is its outline.
func (s *sqlState) statement(tokens []token, o string) effect {
	has := func(words string) bool { return strings.Contains(o, " "+words+" ") }
	begins := func(words string) bool { return strings.HasPrefix(o, " "+words+" ") }
	locks := namedLocks(tokens)
	s.named = s.named || len(locks) > 0
	var tables names
	for _, table := range tablesOf(tokens) {
		tables.add("mysql:" + table)
	}
	if calls(tokens, known) || hiding.MatchString(o) {
		return s.joins(touchesAll())
	}
	verb, _, _ := strings.Cut(o[1:], " ")
	switch verb {
	case "SELECT", "WITH", "VALUES", "DO", "TABLE":
		if verb != "WITH" || !has("SET") && !has("DELETE") { // which write
			return s.query(tables, locks, has)
		}
	case "INSERT", "REPLACE", "UPDATE", "DELETE":
		tables.add(locks...)
		return s.joins(effect{writes: tables})
	case "BEGIN", "START":
		if !s.locked && (len(tokens) == 1 || begins("BEGIN WORK") || begins("START TRANSACTION")) {
			return s.begin(has("CONSISTENT SNAPSHOT"))
		}
		s.locked = false
	case "COMMIT", "ROLLBACK":
		if has("TO") { // a savepoint
			return effect{writes: s.changed, local: len(s.changed) == 0}
		}
		e, next := s.ends(), s.next
		s.end()
		if has("AND CHAIN") {
			s.next = next
		}
		return e
	case "SET":
		return s.set(tokens, s.query(tables, locks, has), o, has)
	case "SAVEPOINT", "RELEASE", "USE", "PREPARE", "DEALLOCATE":
		return effect{local: true}
	case "SHOW":
		if begins("SHOW WARNINGS") || begins("SHOW ERRORS") {
			return effect{local: true}
		}
	case "LOCK", "UNLOCK":
		s.locked = verb == "LOCK"
	}
	return s.joins(touchesAll())
}

// ends returns the effect of the end of the transaction. Nobody can notice the end of one that has changed nothing.
func (s *sqlState) ends() effect {
	return effect{reads: s.touched, writes: s.changed, local: len(s.changed) == 0}
}

// begin returns the effect of the beginning of a transaction, which commits one that is open.
func (s *sqlState) begin(snapshot bool) effect {
	e := s.ends()
	next := s.next
	s.end()
	s.inTrans, s.next, s.snapshot = true, next, snapshot
	if snapshot {
		e.reads.add(everything)
		e.local = false
	}
	return e
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

// query returns the effect of a SELECT, which may ask for named locks.
func (s *sqlState) query(tables, locks names, has func(words string) bool) effect {
	if len(tables) == 0 && len(locks) == 0 {
		return effect{local: true}
	}
	locking := has("FOR UPDATE") || has("FOR SHARE") || has("LOCK IN SHARE MODE") ||
		s.joinable() && s.level() == serializable
	e := effect{reads: tables, writes: locks}
	if locking {
		locks.add(tables...)
		e = effect{writes: locks}
	}
	e = s.joins(e)
	if !locking && s.joinable() && s.level() == repeatableRead && !s.snapshot && len(tables) > 0 {
		// What the transaction reads later depends on what has been committed by now, whatever the table.
		s.snapshot = true
		e.reads.add(everything)
	}
	return e
}

// set returns the effect of SET, whose values have an effect of their own, and notes the isolation level.
func (s *sqlState) set(tokens []token, e effect, o string, has func(words string) bool) effect {
	if _, rest, found := strings.Cut(o, " ISOLATION LEVEL "); found {
		level, _, _ := strings.Cut(rest, " , ") // READ ONLY may follow
		s.isolate(strings.TrimSpace(level), has("SET SESSION") || has("SET LOCAL"))
	}
	for i, t := range tokens[:max(0, len(tokens)-2)] {
		variable, value := strings.TrimPrefix(strings.ToUpper(t.text), "@@"), strings.ToUpper(tokens[i+2].text)
		switch strings.TrimPrefix(variable, "SESSION.") {
		case "TX_ISOLATION", "TRANSACTION_ISOLATION":
			s.isolate(strings.ReplaceAll(value, "-", " "), true)
		case "AUTOCOMMIT":
			if len(s.changed) > 0 { // it may commit
				e.local = false
				e.writes.add(s.changed...)
			}
			s.autocommit = !slices.Contains([]string{"0", "OFF", "FALSE"}, value)
		}
	}
	return e
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
		switch strings.ToUpper(t.text) {
		case "GET_LOCK", "RELEASE_LOCK", "IS_FREE_LOCK", "IS_USED_LOCK":
			if i+3 < len(tokens) && tokens[i+1].is("(") && tokens[i+2].kind == literal &&
				(tokens[i+3].is(")") || tokens[i+3].is(",")) {
				locks.add(lockPrefix + strings.ToLower(tokens[i+2].text))
				continue
			}
			locks.add(everything)
		case "RELEASE_ALL_LOCKS":
			locks.add(everything)
		}
	}
	return locks
}

// tablesOf returns the tables that a statement names: all names after a word such as FROM, until a clause of another
// kind begins. A name that is not a table's, such as that of a column in ON, does no harm: more steps depend on each
// other then.
func tablesOf(tokens []token) (tables names) {
	after := "" // the word that tables follow
	for i, t := range tokens {
		word := ""
		if t.kind == name || t.kind == sign {
			word = strings.ToUpper(t.text)
		}
		switch word {
		case "FROM", "JOIN", "INTO", "STRAIGHT_JOIN", "TABLE":
			after = word
			continue
		case "INSERT", "REPLACE", "UPDATE":
			if i == 0 {
				after = "INTO"
			}
			continue
		case "SELECT", "VALUES", "SET", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "WITH", "RETURNING", "FOR", "LOCK",
			"UNION":
			after = ""
		case "(":
			if after == "INTO" { // a list of columns
				after = ""
			}
		case "LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "IGNORE", "LATERAL", "DUAL", "AS", "ON", "USING":
			continue
		}
		isName := t.kind == name || t.kind == quotedName || t.kind == literal
		isOther := i+1 < len(tokens) && (tokens[i+1].is(".") || tokens[i+1].is("(") && after != "INTO") // such as a function
		if after != "" && isName && !isOther {
			tables.add(strings.ToLower(t.text))
		}
	}
	return tables
}

// known are words that may stand before a parenthesis without more being touched than the statement names: keywords,
// types, and the built-in functions that shops use. A word that is missing costs only time: its statement is taken to
// touch everything.
var known = func() map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(`
		ALL AND ANY AS BETWEEN BY CASE CHARACTER ELSE EXISTS FROM HAVING IN INDEX INTERSECT INTERVAL INTO JOIN KEY LIKE NOT
		ON OR OVER PARTITION RETURNING ROW SELECT SET THEN UNION USING VALUE VALUES WHEN WHERE
		BINARY CHAR DATE DATETIME DECIMAL SIGNED TIME TIMESTAMP UNSIGNED VARCHAR
		ABS AVG BIN_TO_UUID CAST CEIL COALESCE CONCAT CONNECTION_ID CONVERT COUNT CRC32 CURDATE CURRENT_TIMESTAMP
		CURRENT_USER DATABASE DATE_ADD DATE_SUB DATEDIFF FLOOR FOUND_ROWS FROM_UNIXTIME GET_LOCK GREATEST GROUP_CONCAT HEX
		IF IFNULL IS_FREE_LOCK IS_USED_LOCK ISNULL JSON_EXTRACT JSON_OBJECT JSON_SET JSON_VALUE LAST_INSERT_ID LEAST LEFT
		LENGTH LOWER LPAD MAX MD5 MIN MOD NOW NULLIF RAND RELEASE_ALL_LOCKS RELEASE_LOCK REPLACE RIGHT ROUND ROW_COUNT
		ROW_NUMBER SCHEMA SHA1 SHA2 SLEEP SUBSTRING SUM SYSDATE TIMESTAMPADD TIMESTAMPDIFF TO_SECONDS TRIM UNHEX
		UNIX_TIMESTAMP UPPER USER UTC_TIMESTAMP UUID UUID_TO_BIN VERSION`) {
		words[word] = true
	}
	return words
}()

// calls reports whether a statement may call a function that is not among the known ones, and so may touch anything. A
// list of columns stands behind the name of a table.
func calls(tokens []token, known map[string]bool) bool {
	tables := tablesOf(tokens)
	for i := 1; i < len(tokens); i++ {
		t := tokens[i-1]
		if !tokens[i].is("(") || t.kind != name && t.kind != quotedName && t.kind != literal {
			continue
		}
		qualified := i > 1 && tokens[i-2].is(".") // built-in functions are in no schema
		isTable := slices.Contains(tables, strings.ToLower(t.text))
		if !isTable && (t.kind != name || qualified || !known[strings.ToUpper(t.text)]) {
			return true
		}
	}
	return false
}
