package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"stock/internal/must"
	"stock/internal/stock"
)

var parameter = regexp.MustCompile(`\{[^}]+\}`)

// document is openapi.json with the schemas compiled so far.
type document struct {
	root    any
	mu      sync.Mutex // guards schemas
	schemas *jsonschema.Compiler
	paths   map[string]*regexp.Regexp // by template
}

var openapi = sync.OnceValue(func() *document {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		panic(err)
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	d := &document{root: root, schemas: jsonschema.NewCompiler(), paths: map[string]*regexp.Regexp{}}
	if err := d.schemas.AddResource("openapi.json", root); err != nil {
		panic(err)
	}
	for template := range d.at("paths").(map[string]any) {
		pattern := parameter.ReplaceAllString(template, "[^/]+")
		d.paths[template] = regexp.MustCompile("^" + pattern + "$")
	}
	return d
})

// at returns the value at a path in the document, following a $ref at its end, or nil if there is none.
func (d *document) at(keys ...string) any { return d.get(d.resolve(keys)) }

func (d *document) get(keys []string) any {
	node := d.root
	for _, key := range keys {
		object, _ := node.(map[string]any)
		node = object[key]
	}
	return node
}

// resolve follows a $ref at the end of a path.
func (d *document) resolve(keys []string) []string {
	if object, ok := d.get(keys).(map[string]any); ok {
		if ref, ok := object["$ref"].(string); ok {
			return strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		}
	}
	return keys
}

// validate checks a value against the schema at a path in the document.
func (d *document) validate(value any, keys ...string) error {
	pointer := "openapi.json#"
	for _, key := range keys {
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
		pointer += "/" + url.PathEscape(key)
	}
	d.mu.Lock()
	schema, err := d.schemas.Compile(pointer)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// template returns the path template that matches a URL path, preferring the one with fewer parameters.
func (d *document) template(path string) string {
	best := ""
	for template, pattern := range d.paths {
		if pattern.MatchString(path) && (best == "" || strings.Count(template, "{") < strings.Count(best, "{")) {
			best = template
		}
	}
	return best
}

// seenProblems are the types of all problems that the tests of this package have received.
var seenProblems sync.Map

// unseenProblems returns the documented types that no test has received.
func unseenProblems() (unseen []any) {
	for _, kind := range problemTypes() {
		if _, seen := seenProblems.Load(kind); !seen {
			unseen = append(unseen, kind)
		}
	}
	return unseen
}

func problemTypes() []any {
	return openapi().at("components", "schemas", "Problem", "properties", "type", "enum").([]any)
}

// checkReply fails the test if a reply does not conform to openapi.json.
func checkReply(t testing.TB, r request, got reply) {
	t.Helper()
	d := openapi()
	u, err := url.Parse(r.url)
	must.Succeed(t, err)
	method := strings.ToLower(r.method)
	if r.method == http.MethodHead {
		method = "get"
	}
	response := []string{"components", "responses", "Other"} // for a path or method that is not documented
	if template := d.template(u.EscapedPath()); template != "" && d.at("paths", template, method) != nil {
		response = []string{"paths", template, method, "responses", strconv.Itoa(got.status)}
		if d.get(response) == nil {
			response[4] = "default"
		}
		response = d.resolve(response)
	}
	where := r.method + " " + u.Path + ": status " + strconv.Itoa(got.status)

	headers, _ := d.at(append(response, "headers")...).(map[string]any)
	for name := range headers {
		header := d.resolve(append(slices.Clone(response), "headers", name))
		value := got.header.Get(name)
		if required, _ := d.at(append(header, "required")...).(bool); value == "" && !required {
			continue
		}
		if err := d.validate(value, append(header, "schema")...); err != nil || value == "" {
			t.Errorf("%s: header %s is %q: %v", where, name, value, err)
		}
	}
	for _, name := range []string{"X-Request-Id", "X-Replica", "X-Strategy"} {
		if headers[name] == nil {
			t.Errorf("%s: openapi.json does not require %s", where, name)
		}
	}
	if r.method == http.MethodHead {
		return
	}
	media, _, err := mime.ParseMediaType(got.header.Get("Content-Type"))
	if err != nil {
		t.Errorf("%s: Content-Type: %v", where, err)
		return
	}
	content := append(slices.Clone(response), "content", media)
	if d.get(content) == nil {
		t.Errorf("%s: openapi.json has no %s here: %s", where, media, got.raw)
		return
	}
	var body any = string(got.raw)
	if strings.HasSuffix(media, "json") {
		if body, err = jsonschema.UnmarshalJSON(bytes.NewReader(got.raw)); err != nil {
			t.Errorf("%s: the body is not JSON: %v", where, err)
			return
		}
	}
	if err := d.validate(body, append(content, "schema")...); err != nil {
		t.Errorf("%s: the body does not conform to openapi.json: %v\n%s", where, err, got.raw)
	}
	if media == "application/problem+json" {
		seenProblems.Store(got.json["type"], true)
	}
	if media == "application/problem+json" && got.json["status"] != float64(got.status) {
		t.Errorf("%s: the body says %v", where, got.json["status"])
	}
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	undocumented := map[string]bool{"GET /metrics": true, "GET /docs/{asset}": true}
	var routes []string
	for _, handler := range []http.Handler{r.Public(), r.Admin()} {
		add := func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			route = strings.ReplaceAll(route, ":-?[0-9]+", "")
			if !undocumented[method+" "+route] && !strings.HasPrefix(route, "/debug/pprof/") {
				routes = append(routes, method+" "+route)
			}
			return nil
		}
		must.Succeed(t, chi.Walk(handler.(chi.Routes), add))
	}
	var documented []string
	for path := range openapi().paths {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			if openapi().at("paths", path, strings.ToLower(method)) != nil {
				documented = append(documented, method+" "+path)
			}
		}
	}
	slices.Sort(routes)
	routes = slices.Compact(routes) // both listeners have /readyz
	slices.Sort(documented)
	if !slices.Equal(routes, documented) {
		t.Errorf("routes:\n%s\nopenapi.json:\n%s", strings.Join(routes, "\n"), strings.Join(documented, "\n"))
	}
}

func TestOpenAPIAgreesWithTheLimitsOfTheDomain(t *testing.T) {
	t.Parallel()
	limit := func(member, bound string) any {
		return openapi().at("components", "schemas", "Deduction", "properties", member, bound)
	}
	if got := limit("count", "maximum"); got != json.Number(strconv.Itoa(stock.MaxCount)) {
		t.Errorf("count goes up to %v", got)
	}
	if got := limit("hold_ms", "maximum"); got != json.Number(strconv.FormatInt(stock.MaxHold.Milliseconds(), 10)) {
		t.Errorf("hold_ms goes up to %v", got)
	}
	ttl := func(bound string) any {
		return openapi().at("components", "schemas", "Hold", "properties", "ttl_ms", bound)
	}
	if ttl("minimum") != json.Number(strconv.FormatInt(stock.MinTTL.Milliseconds(), 10)) ||
		ttl("maximum") != json.Number(strconv.FormatInt(stock.MaxTTL.Milliseconds(), 10)) {
		t.Errorf("ttl_ms goes from %v to %v", ttl("minimum"), ttl("maximum"))
	}
	description := openapi().at("components", "parameters", "Idempotency-Key", "description").(string)
	if !strings.Contains(description, fmt.Sprintf("1 to %d characters", stock.MaxKey)) {
		t.Errorf("Idempotency-Key: %s", description)
	}
}
