package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
)

const maxBody = 4 << 10 // bytes

// bodies and encoders are reused: every deduction reads one body and writes one reply.
var (
	bodies   = sync.Pool{New: func() any { return new([maxBody + 1]byte) }}
	encoders = sync.Pool{New: func() any {
		e := &encoder{}
		e.json = json.NewEncoder(&e.buffer)
		e.json.SetEscapeHTML(false)
		return e
	}}
)

type encoder struct {
	buffer bytes.Buffer
	json   *json.Encoder
}

// readJSON decodes a body that is one JSON object with no members but those of v, all of whose members, and theirs, have
// names of small letters and underscores.
func readJSON(r *http.Request, v any) error {
	body := bodies.Get().(*[maxBody + 1]byte)
	defer bodies.Put(body)
	return readJSONInto(body[:], r, v)
}

// readJSONInto has room for a body that is shorter than the room.
func readJSONInto(room []byte, r *http.Request, v any) error {
	if err := checkMediaType(r.Header.Get("Content-Type")); err != nil {
		return err
	}
	n, err := io.ReadFull(r.Body, room)
	switch {
	case err == nil:
		return describe(errTooLarge, "the body has more than %d bytes", len(room)-1)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		return describe(errors.Join(errMalformed, err), "the body ended too early")
	}
	decoder := json.NewDecoder(bytes.NewReader(room[:n]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		// The decoder's own words name Go types.
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return describe(errMalformed, "%s must not be a JSON %s", cmp.Or(wrong.Field, "the body"), wrong.Value)
		}
		return describe(errMalformed, "the body is not the JSON object expected: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return describe(errMalformed, "something follows the JSON object")
	}
	return checkNames(room[:n])
}

// checkNames refuses what encoding/json passes: a name that comes twice in one object, of which the last would win, and a
// name that differs from the member's own in case. The object has been decoded, so that it is well formed.
func checkNames(object []byte) error {
	var (
		room    [8][]byte
		seen    = room[:0] // names in the objects that are open here
		opened  [8]int     // where those of each object begin
		objects = opened[:0]
	)
	for {
		name, rest, found := nextString(object)
		between := object
		if found {
			between = object[:len(object)-len(rest)-len(name)-len(`""`)]
		}
		for _, c := range between {
			switch c {
			case '{':
				objects = append(objects, len(seen))
			case '}':
				seen = seen[:objects[len(objects)-1]]
				objects = objects[:len(objects)-1]
			}
		}
		if !found {
			return nil
		}
		object = rest
		if rest = bytes.TrimLeft(rest, " \t\r\n"); len(rest) == 0 || rest[0] != ':' {
			continue // the string is a value
		}
		for _, c := range name {
			if (c < 'a' || c > 'z') && c != '_' {
				return describe(errMalformed, "%q is not a member: names are written in small letters, without escapes", name)
			}
		}
		for _, other := range seen[objects[len(objects)-1]:] {
			if bytes.Equal(name, other) {
				return describe(errMalformed, "%s is given more than once", name)
			}
		}
		seen = append(seen, name)
	}
}

// nextString cuts at the first string of well-formed JSON. The text is as it is written: escapes are left in it.
func nextString(in []byte) (text, rest []byte, found bool) {
	start := bytes.IndexByte(in, '"') + 1
	if start == 0 {
		return nil, nil, false
	}
	for i := start; i < len(in); i++ {
		switch in[i] {
		case '\\':
			i++
		case '"':
			return in[start:i], in[i+1:], true
		}
	}
	return nil, nil, false
}

func checkMediaType(contentType string) error {
	if contentType == "application/json" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(contentType); err == nil && media == "application/json" {
		return nil
	}
	return describe(errMediaType, "a body must have Content-Type: application/json, not %q", contentType)
}

// hasBody says whether a request carries at least one byte of body.
func hasBody(r *http.Request) bool {
	switch {
	case r.ContentLength > 0:
		return true
	case r.ContentLength == 0:
		return false
	}
	// The length is not known beforehand: chunked encoding, or HTTP/1.0 through a proxy.
	n, _ := io.ReadFull(r.Body, make([]byte, 1))
	return n > 0
}

// Header values are made once: replies share them.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	noSniff     = []string{"nosniff"}
	noStore     = []string{"no-store"}
	replayed    = []string{"true"}
)

func writeJSON(w http.ResponseWriter, status int, contentType []string, v any) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.buffer.Reset()
	if err := e.json.Encode(v); err != nil {
		panic(err) // v is one of this package's own types: it can always be encoded
	}
	writeRaw(w, status, contentType, e.buffer.Bytes())
}

func writeRaw(w http.ResponseWriter, status int, contentType []string, body []byte) {
	header := w.Header()
	header["Content-Type"] = contentType
	header["X-Content-Type-Options"] = noSniff
	header["Cache-Control"] = noStore
	w.WriteHeader(status)
	// A client that is gone cannot be told so.
	_, _ = w.Write(body)
}
