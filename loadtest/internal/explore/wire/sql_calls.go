package wire

import (
	"slices"
	"strings"
)

// known are words that may stand before a parenthesis without more being touched than the statement names: keywords,
// types, and built-in functions. A word that is missing costs only time: its statement is taken to touch everything.
var known = func() map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(`
		ALL AND ANY AS BETWEEN BINARY BY CASE CHARACTER COLUMNS DISTINCT DIV ELSE ESCAPE EXCEPT EXISTS FROM HAVING IN INDEX
		INTERSECT INTERVAL INTO IS JOIN KEY LATERAL LIKE LIMIT NOT ON OR OVER PARTITION REGEXP RETURNING RLIKE ROW SELECT SET
		SOME THEN UNION USING VALUE VALUES WHEN WHERE XOR
		CHAR DATE DATETIME DECIMAL DOUBLE FLOAT INTEGER JSON NCHAR NUMERIC SIGNED TIME TIMESTAMP UNSIGNED VARCHAR YEAR
		ABS ACOS ADDDATE ADDTIME ASCII ASIN ATAN ATAN2 AVG BIN BIN_TO_UUID BIT_AND BIT_COUNT BIT_LENGTH BIT_OR BIT_XOR CAST
		CEIL CEILING CHAR_LENGTH CHARACTER_LENGTH CHARSET COALESCE COERCIBILITY COLLATION COMPRESS CONCAT CONCAT_WS
		CONNECTION_ID CONV CONVERT CONVERT_TZ COS COT COUNT CRC32 CUME_DIST CURDATE CURRENT_DATE CURRENT_ROLE CURRENT_TIME
		CURRENT_TIMESTAMP CURRENT_USER CURTIME DATABASE DATE_ADD DATE_FORMAT DATE_SUB DATEDIFF DAY DAYNAME DAYOFMONTH
		DAYOFWEEK DAYOFYEAR DEFAULT DEGREES DENSE_RANK ELT EXP EXPORT_SET EXTRACT FIELD FIND_IN_SET FIRST_VALUE FLOOR FORMAT
		FOUND_ROWS FROM_BASE64 FROM_DAYS FROM_UNIXTIME GET_FORMAT GET_LOCK GREATEST GROUP_CONCAT GROUPING HEX HOUR IF IFNULL
		INET_ATON INET_NTOA INSTR IS_FREE_LOCK IS_USED_LOCK ISNULL JSON_ARRAY JSON_ARRAY_APPEND JSON_ARRAYAGG JSON_CONTAINS
		JSON_CONTAINS_PATH JSON_EXTRACT JSON_INSERT JSON_KEYS JSON_LENGTH JSON_MERGE_PATCH JSON_OBJECT JSON_OBJECTAGG
		JSON_QUOTE JSON_REMOVE JSON_REPLACE JSON_SEARCH JSON_SET JSON_TABLE JSON_TYPE JSON_UNQUOTE JSON_VALID JSON_VALUE LAG
		LAST_DAY LAST_INSERT_ID LAST_VALUE LCASE LEAD LEAST LEFT LENGTH LN LOCALTIME LOCALTIMESTAMP LOCATE LOG LOG10 LOG2
		LOWER LPAD LTRIM MAKEDATE MAKETIME MATCH AGAINST MAX MD5 MICROSECOND MID MIN MINUTE MOD MONTH MONTHNAME NOW
		NTH_VALUE NTILE NULLIF NVL OCT OCTET_LENGTH ORD PERCENT_RANK PERIOD_ADD PERIOD_DIFF PI POSITION POW POWER QUARTER
		QUOTE RADIANS RAND RANK REGEXP_INSTR REGEXP_LIKE REGEXP_REPLACE REGEXP_SUBSTR RELEASE_ALL_LOCKS RELEASE_LOCK REPEAT
		REPLACE REVERSE RIGHT ROUND ROW_COUNT ROW_NUMBER RPAD RTRIM SCHEMA SEC_TO_TIME SECOND SESSION_USER SHA SHA1 SHA2 SIGN
		SIN SLEEP SOUNDEX SPACE SQRT STD STDDEV STR_TO_DATE STRCMP SUBDATE SUBSTR SUBSTRING SUBSTRING_INDEX SUBTIME SUM
		SYSDATE SYSTEM_USER TAN TIME_FORMAT TIME_TO_SEC TIMEDIFF TIMESTAMPADD TIMESTAMPDIFF TO_BASE64 TO_DAYS TO_SECONDS TRIM
		TRUNCATE UCASE UNCOMPRESS UNHEX UNIX_TIMESTAMP UPPER USER UTC_DATE UTC_TIME UTC_TIMESTAMP UUID UUID_TO_BIN VARIANCE
		VERSION WEEK WEEKDAY WEEKOFYEAR YEARWEEK`) {
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
