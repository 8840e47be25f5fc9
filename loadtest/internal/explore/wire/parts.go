package wire

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// PartsOfPostgres returns Exchange.Parts and Exchange.Several of statements of PostgreSQL. There, a read locks no row
// that does not exist yet, at any isolation level.
func PartsOfPostgres(text string) (parts string, several bool) {
	effects := 0
	for one := range statementsOf(tokensOf(text, postgresLexemes)) {
		why, effect := partsOf(one, true)
		parts, effects = cmp.Or(parts, why), effects+effect
	}
	return parts, effects > 1
}

// partsOf returns why a statement is not one step on its server; empty if its text does not show that. effect is 0 if
// it only begins or ends a transaction, or changes only its session, and else 1. plain tells that a read for a write
// does not lock all that it depends on: FOR UPDATE locks no row that does not exist yet.
func partsOf(tokens []token, plain bool) (why string, effect int) {
	verb, next := tokens[0], tokenAt(tokens, 1)
	switch {
	case verb.is("CALL"):
		return "a procedure executes statements of its own", 1
	case verb.is("EXECUTE"):
		return "the message does not say what is executed", 1
	case verb.isOneOf("IF", "CASE", "LOOP", "WHILE", "REPEAT", "FOR"), verb.is("BEGIN") && next.is("NOT"),
		verb.is("DO") && (next.kind == literal || next.is("LANGUAGE")):
		return "a block executes statements of its own", 1
	case readsForWrite(tokens, plain):
		return "it does not lock all that it reads before it writes", 1
	case verb.isOneOf("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET", "USE", "PREPARE",
		"DEALLOCATE"):
		return "", 0
	}
	return "", 1
}

// readsForWrite reports whether a statement writes, and reads from a table that it does not lock as a whole: in a
// query, or by joining it. If it is not plain, only one that passes over locked rows does.
func readsForWrite(tokens []token, plain bool) bool {
	type part struct{ lists, reads bool } // in parentheses: a list of tables goes on; it reads from a table
	parts, queries, writes, reads := []part{{}}, []string{}, false, false
	for i, t := range tokens {
		p, before, next := &parts[len(parts)-1], tokenAt(tokens, i-1), tokenAt(tokens, i+1)
		switch {
		case t.is("("):
			parts = append(parts, part{})
		case t.is(")") && len(parts) > 1:
			reads = reads || p.reads
			parts = parts[:len(parts)-1]
		case beginsWrite(before, t, next):
			writes, p.lists = true, t.is("UPDATE")
		case t.is("SELECT"): // another one may come before, with UNION
			reads, *p = reads || p.reads, part{}
		case t.isOneOf("FROM", "JOIN", "STRAIGHT_JOIN", "USING"):
			p.lists = true
		case t.isOneOf("SET", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT"):
			p.lists = false
		case t.is("SKIP") && next.is("LOCKED"):
			plain = true
		case t.kind != name && t.kind != quotedName, t.is("DUAL"), next.is("(") && !before.is("WITH"),
			tokenAt(tokens, i-2).isOneOf("DELETE", "DISTINCT"): // the table that is written; or no table
		case before.isOneOf("WITH", "RECURSIVE", "DELETE"), before.is(",") && tokenAt(tokens, i-2).is(")") && !p.lists:
			queries = append(queries, strings.ToLower(t.text))
		case before.isOneOf("FROM", "JOIN", "STRAIGHT_JOIN", "USING", "TABLE"), before.is(",") && p.lists:
			p.reads = p.reads || !slices.Contains(queries, strings.ToLower(t.text))
		}
	}
	return plain && writes && (reads || parts[0].reads)
}

// beginsWrite reports whether a token is the verb of a statement that writes, and not part of a clause, nor a function.
func beginsWrite(before, t, next token) bool {
	return t.isOneOf("INSERT", "REPLACE", "UPDATE", "DELETE", "MERGE") && !next.is("(") &&
		(before.kind == 0 || before.isOneOf("(", ")"))
}

// isOneOf reports whether the token is one of some keywords and signs.
func (t token) isOneOf(texts ...string) bool { return slices.ContainsFunc(texts, t.is) }

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
	lexer := map[string]*regexp.Regexp{"mysql": lexemes, "postgres": postgresLexemes}[e.Store]
	if len(known) == 0 || lexer == nil {
		return ""
	}
	tokens := tokensOf(e.Text, lexer)
	for i, t := range tokens {
		if text := strings.ToLower(t.text); t.kind == name || t.kind == quotedName {
			called := text + tokenAt(tokens, i+1).text
			what = cmp.Or(what, known[called], known[text])
		}
	}
	return what
}
