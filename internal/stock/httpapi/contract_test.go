package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
	"stock/nginx"
)

// strange adds strategies to the catalogue that end in unusual ways.
var strange = append(slices.Clone(catalogue.Strategies),
	strangeStrategy("panics", func() error { panic("the secret cause") }),
	strangeStrategy("fails", func() error { return errors.New("the secret cause") }),
	strangeStrategy("fenced", func() error { return fmt.Errorf("%w: token 7", stock.ErrFenced) }),
	idempotent(strangeStrategy("confirms", func() error { return nil })),
	idempotent(strangeStrategy("key-reused", func() error { return stock.ErrKeyReused })),
	idempotent(strangeStrategy("in-progress", func() error { return stock.ErrInProgress })),
	strangeStrategy("unknown-and-busy", func() error { return errors.Join(stock.ErrBusy, stock.ErrUnknown) }),
)

type deductFunc func() error

func (f deductFunc) Deduct(context.Context, stock.Request) (stock.Receipt, error) {
	return stock.Receipt{Attempts: 1}, f()
}

func strangeStrategy(name string, end deductFunc) stock.Strategy {
	s := catalogue.Strategies[0]
	s.Name, s.Stores, s.Needs = name, []stock.Store{stock.NoStore}, nil
	s.New = func(stock.Deps) stock.Deducter { return end }
	return s
}

// idempotent makes a strategy accept idempotency keys.
func idempotent(s stock.Strategy) stock.Strategy {
	s.NoKeys = ""
	s.Claim.ClientRetry = stock.RetryRepeatsAnswer
	return s
}

// contractCase is a request and what must be in the reply.
type contractCase struct {
	name, method, path, body string
	header                   map[string]string
	status                   int
	slug                     string
	detail                   string // a part of the problem's detail
	reply                    string // a part of the reply
}

// check sends the request and checks the reply, also against openapi.json.
func (c contractCase) check(t *testing.T, r *replica) {
	t.Helper()
	url := r.public + c.path
	if !strings.HasPrefix(c.path, "/") {
		url = r.admin + "/" + c.path
	}
	got := do(t, request{method: c.method, url: url, body: c.body, header: c.header}).want(t, c.status, c.slug)
	if detail, _ := got.json["detail"].(string); !strings.Contains(detail, c.detail) {
		t.Errorf("the detail is %q, want %q in it", detail, c.detail)
	}
	if !strings.Contains(string(got.raw), c.reply) {
		t.Errorf("the reply is %s, want %s in it", got.raw, c.reply)
	}
	if strings.Contains(string(got.raw), "secret") {
		t.Errorf("the reply shows internals: %s", got.raw)
	}
}

const deduct = "/stock/deduct"

// tooLong is an object that is larger than a body may be.
var tooLong = `{"goods_id":1,"count":1,"strategy":"` + strings.Repeat("x", 4096) + `"}`

func key(value string) map[string]string { return map[string]string{"Idempotency-Key": value} }

// The wire contract, one rule per row.
var contract = []contractCase{
	{
		name: "JSON", method: "POST", path: deduct,
		body: `{"goods_id":1,"count":1,"strategy":"update","store":"mysql","hold_ms":0}`, status: 200,
	},
	{name: "short JSON", method: "POST", path: deduct, body: `{"goods_id":1,"count":1}`, status: 200},
	{
		name: "JSON with a charset", method: "POST", path: deduct, body: `{"goods_id":1,"count":1}`,
		header: map[string]string{"Content-Type": "Application/JSON; charset=utf-8"}, status: 200,
	},
	{
		name: "query", method: "POST",
		path: deduct + "?goods_id=1&count=1&strategy=update&store=mysql&hold_ms=0", status: 200,
	},
	{
		name: "strategy in the path, rest in JSON", method: "POST", path: deduct + "/update",
		body: `{"goods_id":1,"count":1}`, status: 200,
	},
	{
		name: "strategy in the path, rest in the query", method: "POST",
		path: deduct + "/update?goods_id=1&count=1", status: 200,
	},
	{
		name: "the same strategy twice", method: "POST",
		path: deduct + "/update?goods_id=1&count=1&strategy=update", status: 200,
	},
	{
		name: "empty strategy and store", method: "POST", path: deduct,
		body: `{"goods_id":1,"count":1,"strategy":"","store":""}`, status: 200,
	},
	{name: "largest count", method: "POST", path: deduct + "/noop?goods_id=1&count=1000000", status: 200},
	{
		name: "largest goods_id", method: "POST", path: deduct + "/noop?goods_id=9223372036854775807&count=1",
		status: 200,
	},

	{name: "store units", method: "POST", path: deduct + "/units?goods_id=1&count=1&store=units", status: 200},
	{name: "store slots", method: "POST", path: deduct + "/slots?goods_id=1&count=1&store=slots", status: 200},
	{
		name: "sold out in slots", method: "POST", path: deduct + "/slots?goods_id=2&count=4", status: 409,
		slug: "sold-out", detail: "item 2 has 3 units left",
	},

	{
		name: "empty request", method: "POST", path: deduct, status: 400, slug: "malformed",
		detail: "the request is empty",
	},
	{
		name: "not JSON", method: "POST", path: deduct, body: "goods_id=1", status: 400, slug: "malformed",
		detail: "invalid character",
	},
	{
		name: "half a JSON", method: "POST", path: deduct, body: `{"goods_id":1`, status: 400,
		slug: "malformed", detail: "unexpected EOF",
	},
	{name: "an array", method: "POST", path: deduct, body: `[1,1]`, status: 400, slug: "malformed", detail: "array"},
	{name: "null", method: "POST", path: deduct, body: `null`, status: 400, slug: "malformed", detail: "it is null"},
	{
		name: "unknown member", method: "POST", path: deduct, body: `{"goods_id":1,"count":1,"cuont":2}`,
		status: 400, slug: "malformed", detail: `unknown member "cuont"`,
	},
	{
		name: "member twice", method: "POST", path: deduct, body: `{"goods_id":1,"count":1,"count":1000000}`,
		status: 400, slug: "malformed", detail: "count is given more than once",
	},
	{
		name: "member twice, apart", method: "POST", path: deduct,
		body: "{\"count\" : 1,\n\"goods_id\":1, \"count\"\t\r\n:1}", status: 400, slug: "malformed",
		detail: "count is given more than once",
	},
	{
		name: "strategy twice", method: "POST", path: deduct,
		body: `{"goods_id":1,"count":1,"strategy":"update","strategy":"update"}`, status: 400,
		slug: "malformed", detail: "strategy is given more than once",
	},
	{
		name: "member in capitals", method: "POST", path: deduct, body: `{"GOODS_ID":1,"count":1}`, status: 400,
		slug: "malformed", detail: `unknown member "GOODS_ID"`,
	},
	{
		name: "member with a capital", method: "POST", path: deduct, body: `{"goods_id":1,"Count":1}`,
		status: 400, slug: "malformed", detail: `unknown member "Count"`,
	},
	{
		name: "member with a letter that folds to s", method: "POST", path: deduct,
		body: `{"goodſ_id":1,"count":1}`, status: 400, slug: "malformed", detail: "unknown member",
	},
	{
		name: "member with an escape", method: "POST", path: deduct,
		body: `{"goods_id":1,"\u0063ount":1,"count":1000000}`, status: 400, slug: "malformed",
		detail: "count is given more than once",
	},
	{
		name: "value like a member", method: "POST", path: deduct,
		body: `{"goods_id":1,"count":1,"strategy":"\"count\":1"}`, status: 404, slug: "unknown-strategy",
		detail: "count",
	},
	{
		name: "values like members", method: "POST", path: deduct,
		body: `{"goods_id":1,"strategy":"count","store":"count","count":1}`, status: 404,
		slug: "unknown-strategy", detail: "count",
	},
	{
		name: "something after the object", method: "POST", path: deduct, body: `{"goods_id":1,"count":1}{}`,
		status: 400, slug: "malformed", detail: "after top-level value",
	},
	{
		name: "garbage after the object", method: "POST", path: deduct, body: `{"goods_id":1,"count":1}x`,
		status: 400, slug: "malformed", detail: "after top-level value",
	},
	{
		name: "number as text", method: "POST", path: deduct, body: `{"goods_id":"1","count":1}`, status: 400,
		slug: "malformed", detail: "goods_id",
	},
	{
		name: "fraction", method: "POST", path: deduct, body: `{"goods_id":1,"count":1.5}`, status: 400,
		slug: "malformed", detail: "count",
	},
	{
		name: "count missing", method: "POST", path: deduct, body: `{"goods_id":1}`, status: 400,
		slug: "malformed", detail: "count is 0 or missing",
	},
	{
		name: "count 0", method: "POST", path: deduct, body: `{"goods_id":1,"count":0}`, status: 400,
		slug: "malformed", detail: "count",
	},
	{
		name: "count negative", method: "POST", path: deduct, body: `{"goods_id":1,"count":-1}`, status: 400,
		slug: "malformed", detail: "count is -1",
	},
	{
		name: "count too large", method: "POST", path: deduct, body: `{"goods_id":1,"count":1000001}`,
		status: 400, slug: "malformed", detail: "count is 1000001",
	},
	{
		name: "count beyond 64 bits", method: "POST", path: deduct,
		body: `{"goods_id":1,"count":9223372036854775808}`, status: 400, slug: "malformed", detail: "count",
	},
	{
		name: "goods_id missing", method: "POST", path: deduct, body: `{"count":1}`, status: 400,
		slug: "malformed", detail: "goods_id",
	},
	{
		name: "goods_id 0", method: "POST", path: deduct, body: `{"goods_id":0,"count":1}`, status: 400,
		slug: "malformed", detail: "goods_id",
	},
	{
		name: "goods_id negative", method: "POST", path: deduct, body: `{"goods_id":-1,"count":1}`, status: 400,
		slug: "malformed", detail: "goods_id",
	},
	{
		name: "hold_ms negative", method: "POST", path: deduct, body: `{"goods_id":1,"count":1,"hold_ms":-1}`,
		status: 400, slug: "malformed", detail: "hold_ms",
	},
	{
		name: "hold_ms too large", method: "POST", path: deduct,
		body: `{"goods_id":1,"count":1,"hold_ms":10001}`, status: 400, slug: "malformed", detail: "hold_ms",
	},
	{
		name: "body and query", method: "POST", path: deduct + "?goods_id=1&count=1",
		body: `{"goods_id":1,"count":1}`, status: 400, slug: "malformed", detail: "one of them",
	},
	{
		name: "unknown parameter", method: "POST", path: deduct + "?goods_id=1&count=1&cuont=1", status: 400,
		slug: "malformed", detail: "cuont",
	},
	{
		name: "parameter twice", method: "POST", path: deduct + "?goods_id=1&count=1&count=2", status: 400,
		slug: "malformed", detail: "2 times",
	},
	{
		name: "parameter is not a number", method: "POST", path: deduct + "?goods_id=1&count=one", status: 400,
		slug: "malformed", detail: "whole number",
	},
	{
		name: "parameter beyond 64 bits", method: "POST",
		path: deduct + "?goods_id=9223372036854775808&count=1", status: 400, slug: "malformed",
		detail: "whole number",
	},
	{
		name: "parameter empty", method: "POST", path: deduct + "?goods_id=1&count=", status: 400,
		slug: "malformed", detail: "whole number",
	},
	{
		name: "query not well formed", method: "POST", path: deduct + "?goods_id=1&count=%zz", status: 400,
		slug: "malformed", detail: "query",
	},
	{
		name: "two strategies", method: "POST", path: deduct + "/update?goods_id=1&count=1&strategy=none",
		status: 400, slug: "malformed", detail: "the path asks",
	},

	{
		name: "store that the strategy does not support", method: "POST",
		path: deduct + "/update?goods_id=1&count=1&store=redis", status: 400, slug: "unsupported-store",
		detail: "update",
	},
	{
		name: "store that does not exist", method: "POST",
		path: deduct + "/update?goods_id=1&count=1&store=paper", status: 400, slug: "unsupported-store",
		detail: "paper",
	},
	{
		name: "unknown strategy in JSON", method: "POST", path: deduct,
		body: `{"goods_id":1,"count":1,"strategy":"hope"}`, status: 404, slug: "unknown-strategy",
		detail: "hope",
	},
	{
		name: "unknown strategy in the query", method: "POST",
		path: deduct + "?goods_id=1&count=1&strategy=hope", status: 404, slug: "unknown-strategy",
		detail: "hope",
	},
	{
		name: "unknown strategy in the path", method: "POST", path: deduct + "/hope?goods_id=1&count=1",
		status: 404, slug: "unknown-strategy", detail: "hope",
	},
	{
		name: "unknown item", method: "POST", path: deduct + "/update?goods_id=77&count=1", status: 404,
		slug: "unknown-goods", detail: "item 77",
	},
	{
		name: "sold out", method: "POST", path: deduct + "/update?goods_id=2&count=4", status: 409,
		slug: "sold-out", detail: "item 2 has 3 units left",
	},
	{name: "body too large", method: "POST", path: deduct, body: tooLong, status: 413, slug: "too-large", detail: "4096"},
	{
		name: "form", method: "POST", path: deduct, body: "goods_id=1&count=1",
		header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, status: 415,
		slug: "unsupported-media-type", detail: "form",
	},
	{
		name: "no media type", method: "POST", path: deduct, body: `{"goods_id":1,"count":1}`,
		header: map[string]string{"Content-Type": ""}, status: 415, slug: "unsupported-media-type",
	},
	{
		name: "server not configured", method: "POST", path: deduct + "/lock-redlock?goods_id=1&count=1",
		status: 503, slug: "unavailable", detail: "not configured: redlock",
	},
	{
		name: "panic", method: "POST", path: deduct + "/panics?goods_id=1&count=1", status: 500,
		slug: "internal", detail: "log",
	},
	{
		name: "unexpected error", method: "POST", path: deduct + "/fails?goods_id=1&count=1", status: 500,
		slug: "internal", detail: "log",
	},
	{
		name: "fenced", method: "POST", path: deduct + "/fenced?goods_id=1&count=1", status: 503, slug: "busy",
		detail: "set the stock anew (PUT /admin/stock/{goods_id})",
	},
	{
		name: "unknown outcome joined with a refusal", method: "POST",
		path: deduct + "/unknown-and-busy?goods_id=1&count=1", status: 500, slug: "outcome-unknown",
		detail: "units may or may not have been deducted",
	},

	{
		name: "key in quotes", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key(`"8e03978e-40d5-43dd-bc93-6894a57f9324"`), status: 200,
	},
	{
		name: "key in quotes, with a space and escapes", method: "POST",
		path: deduct + "/confirms?goods_id=1&count=1", header: key(`"a \"\\ b"`), status: 200,
	},
	{
		name: "bare key", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key("order=7/a_b:c+d"), status: 200,
	},
	{
		name: "longest key", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key(`"` + strings.Repeat("k", 255) + `"`), status: 200,
	},
	{
		name: "key too long", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key(strings.Repeat("k", 256)), status: 400, slug: "malformed", detail: "256 characters",
	},
	{
		name: "empty key", method: "POST", path: deduct + "/confirms?goods_id=1&count=1", header: key(""),
		status: 400, slug: "malformed", detail: "0 characters",
	},
	{
		name: "empty key in quotes", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key(`""`), status: 400, slug: "malformed", detail: "0 characters",
	},
	{
		name: "key with half its quotes", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key(`"a`), status: 400, slug: "malformed", detail: "in quotes",
	},
	{
		name: "key with text after the quotes", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key(`"a"b`), status: 400, slug: "malformed", detail: "in quotes",
	},
	{
		name: "key with an unknown escape", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key(`"a\b"`), status: 400, slug: "malformed", detail: "in quotes",
	},
	{
		name: "key that ends in an escape", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key(`"a\`), status: 400, slug: "malformed", detail: "in quotes",
	},
	{
		name: "key in Latin-1", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key("\"\xe9\""), status: 400, slug: "malformed", detail: "in quotes",
	},
	{
		name: "two bare keys", method: "POST", path: deduct + "/confirms?goods_id=1&count=1",
		header: key("a, b"), status: 400, slug: "malformed", detail: "in quotes",
	},
	{
		name: "key with a strategy that keeps none", method: "POST", path: deduct + "/none?goods_id=1&count=1",
		header: key("a"), status: 400, slug: "idempotency-key-unsupported", detail: "it is wrong on purpose",
	},
	{
		name: "malformed key with a strategy that keeps none", method: "POST",
		path: deduct + "/none?goods_id=1&count=1", header: key(""), status: 400, slug: "malformed",
		detail: "0 characters",
	},
	{
		name: "key of a different request", method: "POST", path: deduct + "/key-reused?goods_id=1&count=1",
		header: key("a"), status: 422, slug: "idempotency-key-reused", detail: "new key",
	},
	{
		name: "key of a request in progress", method: "POST", path: deduct + "/in-progress?goods_id=1&count=1",
		header: key("a"), status: 409, slug: "in-progress", detail: "may still deduct",
	},

	{name: "stock", method: "GET", path: "/stock/2", status: 200},
	{name: "stock in Redis", method: "GET", path: "/stock/2?store=redis", status: 200},
	{name: "stock in slots", method: "GET", path: "/stock/2?store=slots", status: 200},
	{name: "stock in units", method: "GET", path: "/stock/2?store=units", status: 200},
	{
		name: "stock of unknown item in slots", method: "GET", path: "/stock/77?store=slots", status: 404,
		slug: "unknown-goods", detail: "store slots",
	},
	{
		name: "stock of unknown item", method: "GET", path: "/stock/77", status: 404, slug: "unknown-goods",
		detail: "item 77 does not exist in store mysql",
	},
	{
		name: "stock of unknown item in Redis", method: "GET", path: "/stock/77?store=redis", status: 404,
		slug: "unknown-goods", detail: "store redis",
	},
	{name: "stock of item 0", method: "GET", path: "/stock/0", status: 400, slug: "malformed", detail: "goods_id"},
	{name: "stock of item -1", method: "GET", path: "/stock/-1", status: 400, slug: "malformed", detail: "goods_id"},
	{
		name: "stock of item beyond 64 bits", method: "GET", path: "/stock/9223372036854775808", status: 400,
		slug: "malformed", detail: "goods_id",
	},
	{
		name: "stock in unknown store", method: "GET", path: "/stock/2?store=paper", status: 400,
		slug: "unsupported-store", detail: "paper",
	},
	{
		name: "stock with a count", method: "GET", path: "/stock/2?count=1", status: 400, slug: "malformed",
		detail: "?store=",
	},
	{
		name: "stock with an unknown parameter", method: "GET", path: "/stock/2?shop=1", status: 400,
		slug: "malformed", detail: "shop",
	},

	{name: "strategies", method: "GET", path: "/strategies", status: 200},
	{name: "problem type", method: "GET", path: "/problems/sold-out", status: 200, slug: "sold-out"},
	{
		name: "unknown problem type", method: "GET", path: "/problems/hunger", status: 404, slug: "not-found",
		detail: "hunger",
	},
	{name: "livez", method: "GET", path: "/livez", status: 200},
	{name: "healthz", method: "GET", path: "/healthz", status: 200},
	{name: "readyz", method: "GET", path: "/readyz", status: 200},
	{name: "version", method: "GET", path: "/version", status: 200},
	{name: "docs", method: "GET", path: "/docs", status: 200},
	{name: "HEAD", method: "HEAD", path: "/livez", status: 200},
	{name: "unknown path", method: "GET", path: "/nowhere", status: 404, slug: "not-found", detail: "/nowhere"},
	{
		name: "admin path on the public listener", method: "PUT", path: "/admin/stock/1", body: `{"stock":1}`,
		status: 404, slug: "not-found",
	},
	{name: "metrics on the public listener", method: "GET", path: "/metrics", status: 404, slug: "not-found"},
	{name: "method", method: "GET", path: deduct, status: 405, slug: "method-not-allowed", detail: "allows POST"},
	{
		name: "method on a strategy", method: "PUT", path: deduct + "/update", status: 405,
		slug: "method-not-allowed", detail: "allows POST",
	},
	{
		name: "method on the stock", method: "DELETE", path: "/stock/1", status: 405,
		slug: "method-not-allowed", detail: "allows GET, HEAD",
	},

	{name: "setting stock", method: "PUT", path: "admin/stock/3", body: `{"stock":0}`, status: 200},
	{
		name: "setting stock below 0", method: "PUT", path: "admin/stock/3", body: `{"stock":-1}`, status: 400,
		slug: "malformed", detail: "stock",
	},
	{
		name: "setting the stock without a value", method: "PUT", path: "admin/stock/3", body: `{}`, status: 400,
		slug: "malformed", detail: "stock",
	},
	{
		name: "setting too much stock", method: "PUT", path: "admin/stock/3",
		body: `{"stock":9007199254740992}`, status: 400, slug: "malformed", detail: "stock",
	},
	{
		name: "setting stock of item 0", method: "PUT", path: "admin/stock/0", body: `{"stock":1}`,
		status: 400, slug: "malformed", detail: "goods_id",
	},
	{
		name: "setting with a member twice", method: "PUT", path: "admin/stock/3", body: `{"stock":1,"stock":2}`,
		status: 400, slug: "malformed", detail: "more than once",
	},
	{
		name: "setting with an unknown member", method: "PUT", path: "admin/stock/3", body: `{"stock":1,"price":1}`,
		status: 400, slug: "malformed", detail: "price",
	},
	{
		name: "setting with a form", method: "PUT", path: "admin/stock/3", body: "stock=1",
		header: map[string]string{"Content-Type": "text/plain"}, status: 415, slug: "unsupported-media-type",
	},
	{
		name: "setting with a large body", method: "PUT", path: "admin/stock/3", body: tooLong, status: 413,
		slug: "too-large",
	},
	{name: "restocking", method: "POST", path: "admin/stock/4/restock", body: `{"count":1}`, status: 200},
	{
		name: "restocking in Redis", method: "POST", path: "admin/stock/4/restock?store=redis",
		body: `{"count":1}`, status: 200,
	},
	{
		name: "restocking in slots", method: "POST", path: "admin/stock/4/restock?store=slots",
		body: `{"count":1}`, status: 200,
	},
	{
		name: "restocking with a key", method: "POST", path: "admin/stock/4/restock", body: `{"count":1}`,
		header: map[string]string{"Idempotency-Key": "k"}, status: 400, slug: "idempotency-key-unsupported",
		detail: "restock",
	},
	{
		name: "restocking unknown item", method: "POST", path: "admin/stock/77/restock", body: `{"count":1}`,
		status: 404, slug: "unknown-goods", detail: "item 77 does not exist in store mysql",
	},
	{
		name: "restocking unknown item in Redis", method: "POST", path: "admin/stock/77/restock?store=redis",
		body: `{"count":1}`, status: 404, slug: "unknown-goods", detail: "store redis",
	},
	{
		name: "restocking beyond the limit", method: "POST", path: "admin/stock/4/restock",
		body: `{"count":9007199254740991}`, status: 409, slug: "overstocked", detail: "9007199254740991",
	},
	{
		name: "restocking in unknown store", method: "POST", path: "admin/stock/4/restock?store=paper",
		body: `{"count":1}`, status: 400, slug: "unsupported-store", detail: "paper",
	},
	{
		name: "restocking with a parameter", method: "POST", path: "admin/stock/4/restock?count=1",
		body: `{"count":1}`, status: 400, slug: "malformed", detail: "?store=",
	},
	{
		name: "restocking without a count", method: "POST", path: "admin/stock/4/restock", body: `{}`, status: 400,
		slug: "malformed", detail: "count is 0 or missing",
	},
	{
		name: "restocking a negative count", method: "POST", path: "admin/stock/4/restock",
		body: `{"count":-1}`, status: 400, slug: "malformed", detail: "count is -1",
	},
	{
		name: "restocking too much", method: "POST", path: "admin/stock/4/restock",
		body: `{"count":9007199254740992}`, status: 400, slug: "malformed", detail: "count",
	},
	{
		name: "restocking item 0", method: "POST", path: "admin/stock/0/restock", body: `{"count":1}`,
		status: 400, slug: "malformed", detail: "goods_id",
	},
	{
		name: "restocking with a member twice", method: "POST", path: "admin/stock/4/restock",
		body: `{"count":1,"count":2}`, status: 400, slug: "malformed", detail: "more than once",
	},
	{
		name: "restocking with a form", method: "POST", path: "admin/stock/4/restock", body: "count=1",
		header: map[string]string{"Content-Type": "text/plain"}, status: 415, slug: "unsupported-media-type",
	},
	{
		name: "restocking with a large body", method: "POST", path: "admin/stock/4/restock", body: tooLong,
		status: 413, slug: "too-large",
	},
	{
		name: "method on restocking", method: "PUT", path: "admin/stock/4/restock", status: 405,
		slug: "method-not-allowed", detail: "allows POST",
	},
	{
		name: "admin method", method: "POST", path: "admin/stock/3", status: 405, slug: "method-not-allowed",
		detail: "allows PUT",
	},
	{
		name: "setting stock by a name that leads here", method: "PUT", path: "admin/stock/3", body: `{"stock":1}`,
		header: map[string]string{"Host": "evil.com"}, status: 421, slug: "misdirected", detail: "evil.com",
	},
	{
		name: "version by a name that is configured", method: "GET", path: "version",
		header: map[string]string{"Host": "stock.example.com:9090"}, status: 200,
	},
	{
		name: "version by the name of a service", method: "GET", path: "version",
		header: map[string]string{"Host": "stock-stock-1:9090"}, status: 200,
	},
	{
		name: "setting stock from another page", method: "PUT", path: "admin/stock/3", body: `{"stock":1}`,
		header: map[string]string{"Origin": "http://localhost:3000"}, status: 403, slug: "other-page",
	},
	{
		name: "a profile for an image of another page", method: "GET", path: "debug/pprof/profile?seconds=1",
		header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
		status: 403, slug: "other-page",
	},
	{
		name: "a profile by a link of another page", method: "GET", path: "debug/pprof/profile?seconds=1",
		header: map[string]string{
			"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
		},
		status: 403, slug: "other-page",
	},
}

func TestContract(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{
		deps:      stock.Deps{MySQL: database(t), Redis: redisClient(t)},
		catalogue: strange,
	})
	for goodsID, units := range map[int]int{1: 6000, 2: 3, 4: 1} {
		do(t, request{
			method: "PUT", url: fmt.Sprintf("%s/admin/stock/%d", r.admin, goodsID), body: fmt.Sprintf(`{"stock":%d}`, units),
		}).want(t, 200, "")
	}
	for _, test := range contract {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.check(t, r)
		})
	}
}

func TestTwoIdempotencyKeysAreMalformed(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{catalogue: strange})
	url := r.public + "/stock/deduct/confirms?goods_id=1&count=1"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header["Idempotency-Key"] = []string{"a", "a"}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d, want 400", response.StatusCode)
	}
}

func TestARequestInProgressCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{catalogue: strange})
	got := do(t, request{
		method: "POST", url: r.public + "/stock/deduct/in-progress?goods_id=1&count=1", header: key("a"),
	}).want(t, 409, "in-progress")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
}

func TestBusyWhenTheLockIsNotFreeInTime(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), LockWait: 50 * time.Millisecond}})
	holder := parkHolder(t, r)
	got := post(t, r.public+"/stock/deduct/mutex?goods_id=1&count=1", "").want(t, 503, "busy")
	if got.header.Get("X-Strategy") != "mutex" {
		t.Errorf("X-Strategy is %q", got.header.Get("X-Strategy"))
	}
	holder.resume().want(t, 200, "")
	// Nothing was deducted for the refused request.
	if got := get(t, r.public+"/stock/1"); got.text(t, "stock") != "5999" {
		t.Errorf("%s units are left", got.text(t, "stock"))
	}
}

func TestOutcomeUnknownWhenTheReplyDoesNotComeInTime(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(shared.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	db := migrated(t, stocktest.MySQL(t, config.FormatDSN()))
	config.ReadTimeout = 2 * time.Second
	impatient := stocktest.MySQL(t, config.FormatDSN())
	// Connect first: a statement that cannot be sent is refused.
	if err := impatient.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := newReplica(t, options{deps: stock.Deps{MySQL: impatient}})
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "UPDATE good_stock SET stock = stock WHERE goods_id = 1"); err != nil {
		t.Fatal(err)
	}
	// The row is locked, so the statement is sent but not answered.
	post(t, r.public+"/stock/deduct/update?goods_id=1&count=1", "").want(t, 500, "outcome-unknown")
	if !strings.Contains(r.log.String(), "Outcome unknown") {
		t.Errorf("the log lacks the unknown outcome: %s", r.log)
	}
}

func TestMissingTableIsAnInternalErrorWithoutInternals(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: stocktest.MySQL(t, shared.Database(t))}})
	got := do(t, request{
		method: "POST", url: r.public + "/stock/deduct/update?goods_id=1&count=1",
		header: map[string]string{"X-Request-Id": "broken"},
	}).want(t, 500, "internal")
	if strings.Contains(string(got.raw), "good_stock") {
		t.Errorf("the reply shows internals: %s", got.raw)
	}
	if log := r.log.String(); !strings.Contains(log, "good_stock") || !strings.Contains(log, "broken") {
		t.Errorf("the log lacks the cause or the request id: %s", log)
	}
}

func TestEveryProblemTypeIsExplainedAtItsURL(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	for _, kind := range problemTypes() {
		slug := strings.TrimPrefix(kind.(string), "/problems/")
		if got := get(t, r.public+kind.(string)).want(t, 200, slug); got.json["description"] == "" {
			t.Errorf("%s has no description", kind)
		}
	}
}

func TestEveryProblemOfNginxIsExplained(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	problems := regexp.MustCompile(`"type":"(/problems/[^"]+)","title":"([^"]+)"`).FindAllStringSubmatch(nginx.Main(), -1)
	if len(problems) == 0 {
		t.Fatal("nginx.conf has no problems")
	}
	for _, problem := range problems {
		explained := get(t, r.public+problem[1]).want(t, http.StatusOK, path.Base(problem[1]))
		if title := explained.json["title"]; title != problem[2] {
			t.Errorf("the title of %s is %q, but nginx calls it %q", problem[1], title, problem[2])
		}
	}
}

func TestAReceiptHasEveryMember(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	got := do(t, request{
		method: "POST", url: r.public + "/stock/deduct", body: `{"goods_id":1,"count":7,"strategy":"update","hold_ms":1}`,
		header: map[string]string{"X-Request-Id": "order-1"},
	}).want(t, 200, "")
	for member, want := range map[string]string{
		"goods_id": "1", "count": "7", "remaining": "5993", "strategy": `"update"`, "store": `"mysql"`, "replica": `"a"`,
		"request_id": `"order-1"`, "attempts": "1", "token": "0",
	} {
		if text := got.text(t, member); text != want {
			t.Errorf("%s is %s, want %s", member, text, want)
		}
	}
	for name, want := range map[string]string{"X-Request-Id": "order-1", "X-Replica": "a", "X-Strategy": "update"} {
		if value := got.header.Get(name); value != want {
			t.Errorf("%s is %q, want %q", name, value, want)
		}
	}
}

func TestEveryAvailableStrategySellsOnEveryStore(t *testing.T) {
	t.Parallel()
	shared.AddRedisReplica(t)
	deps := stock.Deps{
		MySQL: database(t), Redis: redisClient(t), RedisReplica: true, Etcd: etcdClient(t), ZooKeeper: zooKeeperClient(t),
	}
	for _, o := range shared.Redlock(t, 3) {
		deps.Redlock = append(deps.Redlock, serverstest.RedisClient(t, o))
	}
	r := newReplica(t, options{deps: deps})
	for _, s := range catalogue.Strategies {
		for _, on := range s.Stores {
			do(t, request{method: "PUT", url: r.admin + "/admin/stock/1", body: `{"stock":10}`}).want(t, 200, "")
			got := post(t, r.public+"/stock/deduct/"+s.Name+"?goods_id=1&count=3&store="+string(on), "").want(t, 200, "")
			want := "7"
			if !s.TellsRemaining() {
				want = "null" // which is how text writes a member that is absent
			}
			if left := got.text(t, "remaining"); s.Claim.OneReplica != stock.SellsNothing && left != want {
				t.Errorf("%s on %s: %s remain, want %s", s.Name, on, left, want)
			}
			if got.header.Get("X-Strategy") != s.Name || got.text(t, "store") != `"`+string(on)+`"` {
				t.Errorf("%s on %s: got %s on %s", s.Name, on, got.header.Get("X-Strategy"), got.text(t, "store"))
			}
		}
	}
}

func TestTheDefaultStrategyIsUsedIfARequestNamesNone(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{}) // the default is the catalogue's first
	got := post(t, r.public+"/stock/deduct", `{"goods_id":1,"count":1}`)
	if got.header.Get("X-Strategy") != catalogue.Strategies[0].Name {
		t.Errorf("X-Strategy is %q", got.header.Get("X-Strategy"))
	}
}

func TestAStrategyIsKnownByItsFormerName(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{strategy: "ledger"})
	for _, url := range []string{"/stock/deduct/ledger?goods_id=none", "/stock/deduct?goods_id=none&strategy=ledger"} {
		if name := post(t, r.public+url, "").header.Get("X-Strategy"); name != "update" {
			t.Errorf("%s: X-Strategy is %q, want update", url, name)
		}
	}
	listing := get(t, r.public+"/strategies")
	for _, part := range []string{`{"default":"update",`, `{"name":"update","formerly":"ledger",`} {
		if !strings.Contains(string(listing.raw), part) {
			t.Errorf("GET /strategies does not tell %s", part)
		}
	}
}

func TestEveryReplyNamesAStrategy(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	byDefault := catalogue.Strategies[0].Name
	for _, test := range []struct{ method, url, want string }{
		{"GET", r.public + "/livez", byDefault},
		{"GET", r.public + "/nowhere", byDefault},
		{"DELETE", r.public + "/livez", byDefault},
		{"POST", r.public + "/stock/deduct?goods_id=none", byDefault},
		{"POST", r.public + "/stock/deduct/hope?goods_id=1&count=1", byDefault},
		{"POST", r.public + "/stock/deduct/update?goods_id=none", "update"},
		{"POST", r.public + "/stock/deduct?goods_id=0&count=1&strategy=update", "update"},
		{"POST", r.public + "/stock/deduct/update?goods_id=1&count=1", "update"},
		{"GET", r.admin + "/version", byDefault},
	} {
		got := do(t, request{method: test.method, url: test.url})
		if name := got.header.Get("X-Strategy"); name != test.want {
			t.Errorf("%s %s: X-Strategy is %q, want %q", test.method, test.url, name, test.want)
		}
	}
}

func TestSoldOutHasTheRemainingUnits(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	got := post(t, r.public+"/stock/deduct/update?goods_id=1&count=6001", "").want(t, 409, "sold-out")
	if got.text(t, "remaining") != "6000" {
		t.Errorf("remaining is %s", got.text(t, "remaining"))
	}
}

func TestUnknownStrategyListsTheNames(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	got := post(t, r.public+"/stock/deduct/hope", `{"goods_id":1,"count":1}`).want(t, 404, "unknown-strategy")
	names, _ := got.json["strategies"].([]any)
	if len(names) != len(catalogue.Strategies) || names[0] != catalogue.Strategies[0].Name {
		t.Errorf("strategies is %v", names)
	}
	if detail := got.json["detail"]; detail != `there is no strategy "hope"` {
		t.Errorf("the detail is %q", detail)
	}
	mistyped := post(t, r.public+"/stock/deduct/updaet", `{"goods_id":1,"count":1}`).want(t, 404, "unknown-strategy")
	if detail := mistyped.json["detail"]; detail != `there is no strategy "updaet": did you mean "update"?` {
		t.Errorf("the detail is %q", detail)
	}
	if name := got.header.Get("X-Strategy"); name != catalogue.Strategies[0].Name {
		t.Errorf("X-Strategy is %q, want the default", name)
	}
}

func TestMethodNotAllowedHasAllow(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	for path, want := range map[string]string{
		"/stock/deduct": "POST", "/stock/deduct/update": "POST", "/livez": "GET, HEAD",
	} {
		got := do(t, request{method: "DELETE", url: r.public + path}).want(t, 405, "method-not-allowed")
		if allow := got.header.Get("Allow"); allow != want {
			t.Errorf("%s: Allow is %q, want %q", path, allow, want)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	for _, test := range []struct {
		name, id string
		kept     bool
	}{
		{"visible ASCII is kept", "~order/1:2;3!", true},
		{"128 characters are kept", strings.Repeat("x", 128), true},
		{"129 characters are replaced", strings.Repeat("x", 129), false},
		{"a space is replaced", "a b", false},
		{"a tab is replaced", "a\tb", false},
		{"a letter beyond ASCII is replaced", "commande-é", false},
		{"a missing one is made", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// A path that exists and one that does not: every reply has an id.
			for _, path := range []string{"/livez", "/nowhere"} {
				got := do(t, request{method: "GET", url: r.public + path, header: map[string]string{"X-Request-Id": test.id}})
				id := got.header.Get("X-Request-Id")
				if (id == test.id) != test.kept || id == "" {
					t.Errorf("%s: the reply has %q", path, id)
				}
				if got.header.Get("X-Replica") != "a" {
					t.Errorf("%s: X-Replica is %q", path, got.header.Get("X-Replica"))
				}
			}
		})
	}
}

func TestStrategiesListsTheCatalogueWithReasons(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	got := get(t, r.public+"/strategies").want(t, 200, "")
	rows := got.json["strategies"].([]any)
	if len(rows) != len(catalogue.Strategies) || got.json["default"] != catalogue.Strategies[0].Name {
		t.Fatalf("%d strategies, default %v", len(rows), got.json["default"])
	}
	for i, s := range catalogue.Strategies {
		row := rows[i].(map[string]any)
		unavailable := row["unavailable"].(map[string]any)
		if row["name"] != s.Name || row["summary"] != s.Summary ||
			row["control"] != s.Control || row["tells_remaining"] != s.TellsRemaining() {
			t.Errorf("row %d is %v", i, row)
		}
		var needs []stock.Need
		for _, need := range row["needs"].([]any) {
			needs = append(needs, stock.Need(need.(string)))
		}
		if want := s.NeedsOn(s.Stores[0]); !slices.Equal(needs, want) || (len(want) == 0) != (s.Stores[0] == stock.NoStore) {
			t.Errorf("%s needs %v, want %v", s.Name, needs, want)
		}
		for _, on := range s.Stores {
			reason, missing := unavailable[string(on)].(string)
			if missing != (on != stock.NoStore) || missing && !strings.Contains(reason, "not configured: ") {
				t.Errorf("%s on %s: the reason is %q", s.Name, on, reason)
			}
		}
	}
}

func TestAChunkedBodyWithAQueryIsRefused(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	// A reader of unknown length makes the client send chunks.
	body := struct{ *strings.Reader }{strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(
		t.Context(), http.MethodPost, r.public+"/stock/deduct?goods_id=1&count=1", body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", response.StatusCode)
	}
}

func TestUnknownDefaultStrategyIsRefusedWithTheNames(t *testing.T) {
	t.Parallel()
	err := newAPIWithDefault(t, "hope")
	if err == nil || !strings.Contains(err.Error(), `"hope"`) || !strings.Contains(err.Error(), "noop") {
		t.Errorf("got %v", err)
	}
}
