package wire

import (
	"slices"
	"strings"
)

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

// callsUnknown reports whether a statement may call a function that touches anything: a stored function, or one that is
// not known here.
func callsUnknown(tokens []token) bool {
	columns := insertsInto(tokens) + 1
	for i := 1; i < len(tokens); i++ {
		t := tokens[i-1]
		if !tokens[i].is("(") || i == columns {
			continue
		}
		switch t.kind {
		case quotedName, literal: // a literal is a name in some SQL modes
			return true
		case name:
			qualified := i > 1 && tokens[i-2].is(".") // built-in functions are in no schema
			if qualified || !known[strings.ToUpper(t.text)] {
				return true
			}
		}
	}
	return false
}

// insertsInto returns the place of the table of an INSERT or REPLACE, which may stand before a list of columns. For
// other statements, it is -1.
func insertsInto(tokens []token) int {
	if !tokens[0].is("INSERT") && !tokens[0].is("REPLACE") {
		return -1
	}
	at := 1
	for at < len(tokens)-1 && slices.ContainsFunc(
		[]string{"LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "IGNORE", "INTO"}, tokens[at].is) {
		at++
	}
	for at < len(tokens)-2 && tokens[at+1].is(".") {
		at += 2
	}
	return at
}

// writesAfterWith reports whether a statement that begins with WITH is not a query.
func writesAfterWith(tokens []token) bool {
	if !tokens[0].is("WITH") {
		return false
	}
	depth := 0
	for _, t := range tokens {
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		case depth > 0:
		case t.is("SELECT"), t.is("VALUES"), t.is("TABLE"):
			return false
		case t.is("INSERT"), t.is("REPLACE"), t.is("UPDATE"), t.is("DELETE"):
			return true
		}
	}
	return false // a query in parentheses
}
