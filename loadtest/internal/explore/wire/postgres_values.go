package wire

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// literal returns a value as a literal of SQL. kind is the OID of its type; 0 if that is unknown.
func (s *postgresSession) literal(kind uint32, format int16, raw []byte) string {
	if raw == nil {
		return "NULL"
	}
	known, ok := s.types.TypeForOID(kind)
	if !ok {
		return quotePostgres(raw)
	}
	value, err := known.Codec.DecodeDatabaseSQLValue(s.types, kind, format, raw)
	if err != nil {
		return quotePostgres(raw)
	}
	switch v := value.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strings.ToUpper(strconv.FormatBool(v))
	case time.Time:
		return v.Format("'2006-01-02 15:04:05.999999'")
	case []byte:
		return quotePostgres(v)
	case string:
		if kind == pgtype.NumericOID {
			return v
		}
		return quotePostgres([]byte(v))
	}
	return quotePostgres(raw)
}

// quotePostgres returns a literal of SQL: hexadecimal if it is not text.
func quotePostgres(value []byte) string {
	if !legible(string(value)) {
		return `'\x` + hex.EncodeToString(value) + "'"
	}
	return "'" + strings.ReplaceAll(string(value), "'", "''") + "'"
}

// ReplaceParameters puts arguments into a statement of PostgreSQL in the place of $1, $2 and so on. literal returns the
// n-th; if it returns false, the parameter stays.
func ReplaceParameters(statement string, literal func(n int) (string, bool)) string {
	return replaceTokens(statement, tokensOf(statement, postgresLexemes), func(t token) (string, bool) {
		n, err := strconv.Atoi(strings.TrimPrefix(t.text, "$"))
		if t.kind != placeholder || err != nil {
			return "", false
		}
		text, ok := literal(n)
		if strings.HasPrefix(text, "-") {
			text = "(" + text + ")" // two minus signs would begin a comment
		}
		return text, ok
	})
}
