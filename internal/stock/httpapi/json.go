package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of bodies, bytes. An order has more room because tools may write each of its members on a line of its own.
const (
	maxBody      = 4 << 10
	maxOrderBody = 16 << 10
)

// bodies and encoders are reused, because every deduction needs one of each.
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

// readOnlyJSON is readJSON for requests that cannot be sent as a query.
func readOnlyJSON(r *http.Request, limit int, v any) error {
	if r.URL.RawQuery != "" {
		return describe(errMalformed, "the request has a query: it must be sent as JSON")
	}
	return readJSON(r, limit, v)
}

// readJSON decodes a body that is one JSON object of at most limit bytes. Unknown and duplicate members are errors, so
// that a client's mistake does not go unnoticed. encoding/json would take the last of two members, and ignore case.
func readJSON(r *http.Request, limit int, v any) error {
	if err := checkMediaType(r.Header.Get("Content-Type")); err != nil {
		return err
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return describe(errMediaType, "the body has Content-Encoding: %s, and must have none: send it uncompressed", coding)
	}
	pooled := bodies.Get().(*[maxBody + 1]byte)
	defer bodies.Put(pooled)
	room := pooled[:]
	if limit > maxBody {
		room = make([]byte, limit+1)
	}
	body, err := readBody(r, room)
	if err != nil {
		return err
	}
	if string(bytes.TrimSpace(body)) == "null" { // which the decoder takes for an object without members
		return describe(errMalformed, "the body is not one JSON object: it is null")
	}
	if err := jsonv2.Unmarshal(body, v, jsonv2.RejectUnknownMembers(true)); err != nil {
		return describeJSON(err)
	}
	return nil
}

// readBody reads the whole body into room, which must be larger than the largest body.
func readBody(r *http.Request, room []byte) ([]byte, error) {
	for n := 0; ; {
		read, err := r.Body.Read(room[n:])
		n += read
		switch {
		case n == len(room):
			return nil, describe(errTooLarge, "the body has more than %d bytes", len(room)-1)
		case err == io.EOF:
			return room[:n], nil
		case err != nil:
			return nil, incomplete(err)
		}
	}
}

// incomplete is the error for a body that ended early. The part that arrived may look like a complete request, but must
// not be carried out.
func incomplete(err error) error {
	return describe(errors.Join(errMalformed, err),
		"the body is incomplete: it ended early, took too long, or has a malformed chunk")
}

// describeJSON words an error of the decoder for clients. The decoder's own texts name Go types.
func describeJSON(err error) error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return describe(errMalformed, "%s is given more than once", member(e.JSONPointer))
		}
		return describe(errMalformed, "the body is not one JSON object: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	e, ok := errors.AsType[*jsonv2.SemanticError](err)
	switch {
	case !ok:
		return describe(errMalformed, "the body is not the JSON object expected")
	case errors.Is(err, jsonv2.ErrUnknownName):
		return describe(errMalformed, "unknown member %q", member(e.JSONPointer))
	}
	given, wanted := kindName(e.JSONKind), ""
	if len(e.JSONValue) > 0 {
		given += " " + string(e.JSONValue)
	}
	if e.GoType != nil && e.GoType.Kind() == reflect.Int64 {
		wanted = ": it must be a whole number of at most 18 digits"
	}
	return describe(errMalformed, "%s must not be a JSON %s%s", member(e.JSONPointer), given, wanted)
}

// member writes a JSON pointer as a path, such as lines.0.count.
func member(pointer jsontext.Pointer) string {
	if pointer == "" {
		return "the body"
	}
	var tokens []string
	for token := range pointer.Tokens() {
		tokens = append(tokens, token)
	}
	return strings.Join(tokens, ".")
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case '[':
		return "array"
	case '{':
		return "object"
	case 't', 'f':
		return "boolean"
	}
	return kind.String()
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

// refuseBody refuses a body beside a query, or where none is read.
func refuseBody(r *http.Request) error {
	has, err := hasBody(r)
	if err == nil && has {
		err = describe(errMalformed, "the request has a body, but only the path and the query are read: send one of them")
	}
	return err
}

// hasBody reports whether a request has a body of at least one byte.
func hasBody(r *http.Request) (bool, error) {
	if r.ContentLength >= 0 {
		return r.ContentLength > 0, nil
	}
	// The length is unknown: chunked encoding, or HTTP/1.0 through a proxy.
	first := make([]byte, 1)
	n, err := io.ReadFull(r.Body, first)
	if n == 0 && err != io.EOF {
		return false, incomplete(err)
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first[:n]), r.Body), r.Body}
	return n > 0, nil
}

// Header values that replies share.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	noSniff     = []string{"nosniff"}
	noStore     = []string{"no-store"}
	isTrue      = []string{"true"}
)

func writeJSON(w http.ResponseWriter, status int, contentType []string, v any) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.buffer.Reset()
	if err := e.json.Encode(v); err != nil {
		panic(err) // all types that are passed here can be encoded
	}
	writeRaw(w, status, contentType, e.buffer.Bytes())
}

func writeRaw(w http.ResponseWriter, status int, contentType []string, body []byte) {
	header := w.Header()
	header["Content-Type"] = contentType
	header["X-Content-Type-Options"] = noSniff
	header["Cache-Control"] = noStore
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client is gone
}
