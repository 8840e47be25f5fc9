package httpapi

import (
	"net/http"
	"strings"

	"stock/internal/stock"
)

// idempotencyKey reads the header Idempotency-Key of draft-ietf-httpapi-idempotency-key-header: a String of RFC 8941, in
// quotes. Most clients send the key bare, which is taken for the same key. It is empty where there is no header.
func idempotencyKey(r *http.Request) (string, error) {
	given := r.Header["Idempotency-Key"]
	switch len(given) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", describe(errMalformed, "there are %d headers Idempotency-Key", len(given))
	}
	key, ok := unquote(given[0])
	switch {
	case !ok:
		return "", describe(errMalformed, `Idempotency-Key must be a string in quotes, as RFC 8941 has it, or visible ASCII characters without " \ , and ;`)
	case key == "", len(key) > stock.MaxKey:
		return "", describe(errMalformed, "Idempotency-Key has %d characters: it must have 1 to %d", len(key), stock.MaxKey)
	}
	return key, nil
}

// unquote takes the text out of a String of RFC 8941, section 3.3.3, or returns a bare key as it is.
func unquote(value string) (text string, ok bool) {
	if !strings.HasPrefix(value, `"`) {
		for i := range len(value) {
			if c := value[i]; c <= ' ' || c > '~' || strings.IndexByte("\"\\,;", c) >= 0 {
				return "", false
			}
		}
		return value, true
	}
	var b strings.Builder
	for i := 1; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '"':
			return b.String(), i == len(value)-1
		case c < ' ' || c > '~':
			return "", false
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", false
			}
			c = value[i]
		}
		b.WriteByte(c)
	}
	return "", false // the quotes do not end
}

// checkKey refuses a key that the strategy would ignore: the client counts on it.
func (o *offer) checkKey(key string) error {
	if err := o.CheckKey(key); err != nil {
		return describe(err, "strategy %s would deduct again for a request that is sent again, whatever its Idempotency-Key; "+
			"GET /strategies says which are idempotent", o.Name)
	}
	return nil
}
