package wire

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// postgresState is what is known about the session of a connection to PostgreSQL. It tells which statements nobody else
// can notice.
type postgresState struct {
	open       bool // a transaction is open
	changed    bool // the transaction has done more than to read
	savepoints bool // the transaction has had savepoints
	looked     bool // the transaction may see nothing that is committed from now on
	repeatable bool // REPEATABLE READ or SERIALIZABLE was named
	advisory   bool // the session may hold advisory locks
}

// ready takes over the state of the transaction from ReadyForQuery. A transaction that has failed holds no locks any
// more, except those from before a savepoint.
func (s *postgresState) ready(status byte) {
	const idle, failed = 'I', 'E'
	switch {
	case status == idle:
		s.end(false)
	case status == failed && !s.savepoints:
		s.open, s.changed = true, false
	default:
		s.open = true
	}
}

func (s *postgresState) end(open bool) {
	s.open, s.changed, s.savepoints, s.looked = open, false, false, false
}

// levels matches the isolation levels at which a transaction sees only what was committed when it first looked.
var levels = regexp.MustCompile(`(?i)repeatable\W+read|serializable`)

// isolate notes the isolation levels that a text names.
func (s *postgresState) isolate(text string) { s.repeatable = s.repeatable || levels.MatchString(text) }

// analyse reports whether other connections cannot notice when statements are executed.
func (s *postgresState) analyse(text string) (local bool) {
	s.isolate(text)
	local = true
	for one := range statementsOf(withoutCatalog(tokensOf(text, postgresLexemes))) {
		local = s.statement(one, outline(one)) && local
	}
	return local
}

// withoutCatalog removes the qualifier pg_catalog.
func withoutCatalog(tokens []token) (rest []token) {
	for i, t := range tokens {
		isDot := i > 0 && tokens[i-1].is("pg_catalog") && t.is(".")
		if !isDot && !t.is("pg_catalog") {
			rest = append(rest, t)
		}
	}
	return rest
}

// writing matches the outlines of queries that lock or change something.
var writing = regexp.MustCompile(` (?:FOR (?:UPDATE|NO KEY|SHARE|KEY)|INTO|INSERT|UPDATE|DELETE|MERGE) `)

// statement is analyse for one statement. o is its outline.
func (s *postgresState) statement(tokens []token, o string) (local bool) {
	has := func(words string) bool { return strings.Contains(o, " "+words+" ") }
	verb, _, _ := strings.Cut(o[1:], " ")
	switch verb {
	case "SELECT", "WITH", "VALUES", "TABLE":
		return s.query(tokens, o)
	case "BEGIN", "START":
		s.open = true
		return true
	case "COMMIT", "END", "ROLLBACK", "ABORT":
		if has("PREPARED") {
			return false
		}
		local = !s.changed
		if !has("TO") { // a savepoint
			s.end(has("CHAIN") && !has("NO CHAIN"))
		}
		return local
	case "SAVEPOINT", "RELEASE":
		s.savepoints = true
		return true
	case "SHOW", "RESET", "DEALLOCATE", "CLOSE", "UNLISTEN":
		return true
	case "SET":
		if !has("CONSTRAINTS") { // which are checked then
			return true
		}
	case "PREPARE":
		if !has("PREPARE TRANSACTION") {
			return s.look()
		}
	case "DISCARD":
		return !s.advisory
	}
	s.changed = true
	return false
}

// query is statement for queries.
func (s *postgresState) query(tokens []token, o string) (local bool) {
	locks := slices.ContainsFunc(tokens, func(t token) bool {
		name := strings.ToLower(t.text)
		return strings.HasPrefix(name, "pg_advisory_") && name != unlockAll || strings.HasPrefix(name, "pg_try_advisory_")
	})
	s.advisory = s.advisory || locks
	unlocks := s.advisory && strings.Contains(strings.ToLower(o), unlockAll)
	if locks || unlocks || writing.MatchString(o) || calls(tokens, knownInPostgres) {
		s.changed = true
		return false
	}
	if readsTables(tokens) {
		s.looked = true
		s.changed = s.changed || s.repeatable // SERIALIZABLE: what it has read may make others fail
		return false
	}
	return s.look()
}

// look notes that a statement has looked at the database, if only at its catalogs. At REPEATABLE READ, this can be
// noticed: the transaction sees nothing that is committed later.
func (s *postgresState) look() (local bool) {
	first := s.repeatable && s.open && !s.looked
	s.looked = true
	return !first
}

// readsTables reports whether a query may read anything but catalogs.
func readsTables(tokens []token) bool {
	lists := false // whether a list of tables goes on
	for i, t := range tokens {
		switch {
		case t.is("FROM"), t.is("JOIN"), t.is("TABLE"):
			lists = true
			if i+1 == len(tokens) {
				continue
			}
			if tokens[i+1].is("(") { // around a query or a list of tables
				if i+2 < len(tokens) && !tokens[i+2].is("SELECT") {
					return true
				}
				continue
			}
			calls := i+2 < len(tokens) && tokens[i+2].is("(")
			if !calls && !catalogs.MatchString(strings.ToLower(tokens[i+1].text)) {
				return true
			}
		case t.is("SELECT"), t.is("WHERE"), t.is("ORDER"), t.is("GROUP"):
			lists = false
		case t.is(",") && lists:
			return true
		}
	}
	return false
}

// catalogs matches the catalogs that only the definition of tables and the like changes.
var catalogs = regexp.MustCompile(`^pg_(?:am|attrdef|attribute|class|collation|constraint|database|depend|` +
	`description|enum|extension|index|indexes|inherits|namespace|opclass|operator|proc|range|roles|sequence|settings|` +
	`tables|tablespace|timezone_names|trigger|type|views)$`)

const unlockAll = "pg_advisory_unlock_all"

// knownInPostgres adds words of PostgreSQL to known.
var knownInPostgres = func() map[string]bool {
	words := maps.Clone(known)
	for word := range strings.FieldsSeq(`
		ANY ARRAY EXCEPT FILTER LATERAL MATERIALIZED ONLY WITHIN BIT CHARACTER INTERVAL NUMERIC TIMESTAMPTZ VARYING
		AGE ARRAY_AGG ARRAY_LENGTH BOOL_AND BOOL_OR CLOCK_TIMESTAMP COL_DESCRIPTION CURRENT_SCHEMA CURRENT_SCHEMAS
		CURRENT_SETTING DATE_PART DATE_TRUNC EXTRACT FORMAT FORMAT_TYPE GEN_RANDOM_UUID GENERATE_SERIES
		HAS_TABLE_PRIVILEGE JSON_AGG JSON_BUILD_OBJECT JSONB_AGG JSONB_BUILD_OBJECT OBJ_DESCRIPTION OVERLAY
		PG_ADVISORY_UNLOCK_ALL PG_BACKEND_PID PG_ENCODING_TO_CHAR PG_GET_CONSTRAINTDEF PG_GET_EXPR PG_GET_INDEXDEF
		PG_IS_IN_RECOVERY PG_TABLE_IS_VISIBLE PG_TYPEOF POSITION SET_CONFIG STATEMENT_TIMESTAMP STRING_AGG STRPOS SUBSTR
		TIMEZONE TO_CHAR TO_REGCLASS TO_REGTYPE TRANSACTION_TIMESTAMP UNNEST`) {
		words[word] = true
	}
	return words
}()
