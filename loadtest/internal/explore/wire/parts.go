package wire

import (
	"cmp"
	"slices"
	"strings"
)

// PartsOfPostgres returns Exchange.Parts and Exchange.Several of statements of PostgreSQL. There, what is read for a
// write is not locked at any isolation level.
func PartsOfPostgres(text string) (parts string, several bool) {
	effects := 0
	for one := range statementsOf(tokensOf(text, postgresLexemes)) {
		parts = cmp.Or(parts, partsOf(one, true))
		effects += effectsOf(one)
	}
	return parts, effects > 1
}

// effectsOf returns 0 for a statement that only begins or ends a transaction, or changes only its session, and 1 for
// all others.
func effectsOf(tokens []token) int {
	if slices.Contains([]string{
		"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET", "USE", "PREPARE", "DEALLOCATE",
	}, strings.ToUpper(tokens[0].text)) {
		return 0
	}
	return 1
}

// partsOf returns why a statement is not one step on its server; empty if its text does not show that. plain tells that
// what it reads for a write is not locked, unless the text says so.
func partsOf(tokens []token, plain bool) string {
	next := tokenAt(tokens, 1)
	switch verb := strings.ToUpper(tokens[0].text); {
	case verb == "CALL":
		return "a procedure executes statements of its own"
	case verb == "EXECUTE":
		return "the message does not say what is executed"
	case slices.Contains([]string{"IF", "CASE", "LOOP", "WHILE", "REPEAT", "FOR"}, verb),
		verb == "BEGIN" && next.is("NOT"), verb == "DO" && (next.kind == literal || next.is("LANGUAGE")):
		return "a block executes statements of its own"
	case plain && readsForWrite(tokens):
		return "it first reads rows that it does not lock, and then writes"
	}
	return ""
}

// readsForWrite reports whether a statement writes, and reads from a table without locking the rows: in a query, or
// from a table that it joins.
func readsForWrite(tokens []token) (reads bool) {
	writes, queries := false, queriesOf(tokens)
	for i, t := range tokens {
		before := tokenAt(tokens, i-1)
		begins := (i == 0 || before.is("(") || before.is(")")) && !tokenAt(tokens, i+1).is("(") // or it is a function
		write := begins && slices.ContainsFunc([]string{"INSERT", "REPLACE", "UPDATE", "DELETE", "MERGE"}, t.is)
		writes = writes || write
		if write || t.is("SELECT") || t.is("TABLE") {
			reads = reads || readsPlainly(tokens[i:], queries)
		}
	}
	return writes && reads
}

// queriesOf returns the names of the queries of WITH.
func queriesOf(tokens []token) (named []string) {
	for i, t := range tokens {
		if i == 0 || !tokens[0].is("WITH") || !t.is("AS") {
			continue
		}
		before := i - 1
		for tokens[i-1].is(")") && before > 0 && !tokens[before+1].is("(") { // columns
			before--
		}
		named = append(named, strings.ToLower(tokens[before].text))
	}
	return named
}

// readsPlainly reports whether a part of a statement reads from a table, and does not lock what it reads. The part
// begins with a verb. Queries in parentheses are parts of their own.
func readsPlainly(tokens []token, queries []string) (reads bool) {
	verb := strings.ToUpper(tokens[0].text)
	writes := slices.Contains([]string{"UPDATE", "DELETE", "MERGE"}, verb) // to the first table
	lists := verb == "UPDATE" || verb == "TABLE"                           // whether tables follow
	table := lists                                                         // whether the next name is that of one
	depth := 0
	for i, t := range tokens[1:] {
		next := tokenAt(tokens, i+2)
		switch {
		case t.is("("):
			depth++
			table = false
		case t.is(")"):
			depth--
		}
		if depth < 0 {
			break
		}
		if depth > 0 || t.is(")") {
			continue
		}
		is := func(words ...string) bool { return slices.ContainsFunc(words, t.is) }
		switch {
		case is("UNION", "EXCEPT", "INTERSECT", "SELECT"):
			return reads
		case is("FROM") && !tokens[i].is("DISTINCT"), is("JOIN", "STRAIGHT_JOIN", "USING"), is("INTO") && verb == "MERGE",
			is(",") && lists:
			lists, table = true, true
		case is("SET", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT"):
			lists, table = false, false
		case is("FOR", "LOCK") && slices.ContainsFunc([]string{"UPDATE", "SHARE", "NO", "KEY", "IN"}, next.is):
			return false // it locks
		case is("ONLY", "LATERAL", "LOW_PRIORITY", "IGNORE", "DUAL"):
		case table && (t.kind == name || t.kind == quotedName):
			reads = reads || !writes && !next.is("(") && !slices.Contains(queries, strings.ToLower(t.text))
			table, writes = false, false
		}
	}
	return reads
}

// tokenAt returns one of some tokens; an empty one if there is none.
func tokenAt(tokens []token, i int) token {
	if i < 0 || i >= len(tokens) {
		return token{}
	}
	return tokens[i]
}

// Names returns what is known about the first name in an exchange with a database of which something is known: that of
// a table, or that of a function, which has a parenthesis after it. The names are in lower case.
func (e *Exchange) Names(known map[string]string) (what string) {
	lexer := lexemes
	switch {
	case len(known) == 0 || e.Store == "redis":
		return ""
	case e.Store == "postgres":
		lexer = postgresLexemes
	}
	tokens := tokensOf(e.Text, lexer)
	for i, t := range tokens {
		if t.kind != name && t.kind != quotedName {
			continue
		}
		text := strings.ToLower(t.text)
		if tokenAt(tokens, i+1).is("(") {
			what = cmp.Or(what, known[text+"("])
		}
		what = cmp.Or(what, known[text])
	}
	return what
}
