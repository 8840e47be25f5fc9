package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"stock/internal/stock"
)

// idempotencyKey reads the header Idempotency-Key of draft-ietf-httpapi-idempotency-key-header: a String of RFC 8941,
// in quotes. Most clients send the key without quotes, which is accepted as the same key. It is empty if there is no
// header.
func idempotencyKey(r *http.Request) (string, error) {
	if err := checkOtherKeys(r); err != nil {
		return "", err
	}
	given := r.Header[keyHeader]
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
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "." || part == ".." {
			return "", describe(errMalformed, "Idempotency-Key must not be %[1]q or have %[1]q between slashes: "+
				"clients and proxies would shorten the path /stock/sales/{key}, by which a sale is cancelled", part)
		}
	}
	return key, nil
}

const keyHeader = "Idempotency-Key"

// checkOtherKeys refuses a key under a similar name or in a trailer, because the client relies on it. nginx drops
// trailers, so behind it, only one that was announced is known.
func checkOtherKeys(r *http.Request) error {
	for name := range r.Header {
		if name != keyHeader && isKeyName(name) {
			return describe(errMalformed, "the header is named %s: use Idempotency-Key; nothing was deducted", name)
		}
	}
	trailers := slices.Collect(maps.Keys(r.Trailer))
	for _, names := range r.Header["Trailer"] { // nginx may have removed the trailers, but not their names
		trailers = append(trailers, strings.Split(names, ",")...)
	}
	if slices.ContainsFunc(trailers, isKeyName) {
		return describe(errMalformed, "Idempotency-Key must be a header, not a trailer; nothing was deducted")
	}
	return nil
}

var toLetters = strings.NewReplacer("-", "", "_", "", " ", "")

// isKeyName reports whether a header is Idempotency-Key, or is meant to be, such as X-Idempotency-Key.
func isKeyName(name string) bool {
	if len(name) < len("IdempotencyKey") {
		return false
	}
	letters := strings.ToLower(toLetters.Replace(name))
	return strings.TrimPrefix(letters, "x") == "idempotencykey"
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
