package httpapi

import (
	"net/http"
	"strings"

	"stock/internal/stock"
)

// idempotencyKey reads the header Idempotency-Key of draft-ietf-httpapi-idempotency-key-header: a String of RFC 8941,
// in quotes. Most clients send the key without quotes, which is accepted as the same key. It is empty if there is no
// header.
func idempotencyKey(r *http.Request) (string, error) {
	if err := checkNoKeyElsewhere(r); err != nil {
		return "", err
	}
	given := r.Header["Idempotency-Key"]
	switch len(given) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", describe(errMalformed, "Idempotency-Key is given %d times", len(given))
	}
	key, ok := unquote(given[0])
	switch {
	case !ok:
		return "", describe(errMalformed, "Idempotency-Key must be a string in quotes as in RFC 8941, "+
			"or visible ASCII characters other than \" \\ , and ;")
	case key == "", len(key) > stock.MaxKey:
		return "", describe(errMalformed, "Idempotency-Key has %d characters: it must have 1 to %d", len(key), stock.MaxKey)
	case key == ".", key == "..": // clients and proxies drop such a part of a path
		return "", describe(errMalformed, "Idempotency-Key is %q: such a key cannot be named in the path of a cancellation", key)
	}
	return key, nil
}

// checkNoKeyElsewhere refuses a key that the client gives where it does not count: the request would be carried out
// without it. A trailer is known once the body was read, and before if it is announced.
func checkNoKeyElsewhere(r *http.Request) error {
	if _, ok := r.Header["Idempotency_key"]; ok {
		return describe(errMalformed, "the header Idempotency_Key is not known: name it Idempotency-Key; nothing was done")
	}
	if _, ok := r.Trailer["Idempotency-Key"]; ok {
		return describe(errMalformed, "Idempotency-Key is given in a trailer: send it as a header; nothing was done")
	}
	return nil
}

// unquote returns the text of a String of RFC 8941, section 3.3.3. It returns a key without quotes unchanged.
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
	return "", false // there is no closing quote
}

// checkKey refuses a key that the strategy would ignore, because the client relies on it. If keys are required, it also
// refuses a request without one that the strategy could not recognize when it is sent again.
func (c *call) checkKey() error {
	o := c.offer
	if c.api.RequireKey && o.Idempotent() && c.key == "" {
		return describe(errMalformed, "Idempotency-Key is missing: this replica requires one for strategy %s, so that a "+
			"request can be sent again, see --require-key; nothing was deducted", o.Name)
	}
	if err := o.CheckKey(c.key); err != nil {
		return describe(err, "strategy %s keeps no Idempotency-Key: %s; nothing was deducted; "+
			"GET /strategies lists those that do", o.Name, o.NoKeys)
	}
	return nil
}
