package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/stock"
)

// strange are strategies that end in ways that those of the catalogue should not.
var strange = append(slices.Clone(stock.Catalogue),
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
	s := stock.Catalogue[0]
	s.Name, s.Stores, s.Needs = name, []stock.Store{stock.NoStore}, nil
	s.New = func(stock.Deps, stock.Store) (stock.Deducter, error) { return end, nil }
	return s
}

// idempotent says of a strategy that it honours keys.
func idempotent(s stock.Strategy) stock.Strategy {
	s.Idempotent = true
	s.Claim.ClientRetry = "with an idempotency key: the first answer again"
	return s
}

// The wire contract, one row a rule. Every reply is also checked against openapi.json.
func TestContract(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), Redis: redisClient(t)}, catalogue: strange, pauses: true})
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/1", body: `{"stock":6000}`}).want(t, 200, "")
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/2", body: `{"stock":3}`}).want(t, 200, "")
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/4", body: `{"stock":1}`}).want(t, 200, "")

	const deduct = "/stock/deduct"
	key := func(value string) map[string]string { return map[string]string{"Idempotency-Key": value} }
	big := `{"goods_id":1,"count":1,"strategy":"` + strings.Repeat("x", 4096) + `"}`
	for _, test := range []struct {
		name, method, path, body string
		header                   map[string]string
		status                   int
		slug                     string
		detail                   string // a part of it
	}{
		{"JSON", "POST", deduct, `{"goods_id":1,"count":1,"strategy":"update","store":"mysql","hold_ms":0}`, nil, 200, "", ""},
		{"short JSON", "POST", deduct, `{"goods_id":1,"count":1}`, nil, 200, "", ""},
		{"JSON with a charset", "POST", deduct, `{"goods_id":1,"count":1}`, map[string]string{"Content-Type": "Application/JSON; charset=utf-8"}, 200, "", ""},
		{"query", "POST", deduct + "?goods_id=1&count=1&strategy=update&store=mysql&hold_ms=0", "", nil, 200, "", ""},
		{"strategy in the path, rest in JSON", "POST", deduct + "/update", `{"goods_id":1,"count":1}`, nil, 200, "", ""},
		{"strategy in the path, rest in the query", "POST", deduct + "/update?goods_id=1&count=1", "", nil, 200, "", ""},
		{"the same strategy twice", "POST", deduct + "/update?goods_id=1&count=1&strategy=update", "", nil, 200, "", ""},
		{"empty strategy and store", "POST", deduct, `{"goods_id":1,"count":1,"strategy":"","store":""}`, nil, 200, "", ""},
		{"largest count", "POST", deduct + "/noop?goods_id=1&count=1000000", "", nil, 200, "", ""},
		{"largest goods id", "POST", deduct + "/noop?goods_id=9223372036854775807&count=1", "", nil, 200, "", ""},

		{"store slots", "POST", deduct + "/slots?goods_id=1&count=1&store=slots", "", nil, 200, "", ""},
		{"sold out in slots", "POST", deduct + "/slots?goods_id=2&count=4", "", nil, 409, "sold-out", "goods 2 has 3 left"},

		{"no order at all", "POST", deduct, "", nil, 400, "malformed", "the request is empty"},
		{"no JSON", "POST", deduct, "goods_id=1", nil, 400, "malformed", "invalid character"},
		{"half a JSON", "POST", deduct, `{"goods_id":1`, nil, 400, "malformed", "unexpected EOF"},
		{"an array", "POST", deduct, `[1,1]`, nil, 400, "malformed", "array"},
		{"null", "POST", deduct, `null`, nil, 400, "malformed", "goods_id"},
		{"unknown member", "POST", deduct, `{"goods_id":1,"count":1,"cuont":2}`, nil, 400, "malformed", `unknown member "cuont"`},
		{"member twice", "POST", deduct, `{"goods_id":1,"count":1,"count":1000000}`, nil, 400, "malformed", "count is given more than once"},
		{"member twice, apart", "POST", deduct, "{\"count\" : 1,\n\"goods_id\":1, \"count\"\t\r\n:1}", nil, 400, "malformed", "count is given more than once"},
		{"strategy twice", "POST", deduct, `{"goods_id":1,"count":1,"strategy":"update","strategy":"update"}`, nil, 400, "malformed", "strategy is given more than once"},
		{"member in capitals", "POST", deduct, `{"GOODS_ID":1,"count":1}`, nil, 400, "malformed", `unknown member "GOODS_ID"`},
		{"member with a capital", "POST", deduct, `{"goods_id":1,"Count":1}`, nil, 400, "malformed", `unknown member "Count"`},
		{"member with a letter that folds to one of its own", "POST", deduct, `{"goodſ_id":1,"count":1}`, nil, 400, "malformed", "unknown member"},
		{"member with an escape", "POST", deduct, `{"goods_id":1,"\u0063ount":1,"count":1000000}`, nil, 400, "malformed", "count is given more than once"},
		{"value like a member", "POST", deduct, `{"goods_id":1,"count":1,"strategy":"\"count\":1"}`, nil, 404, "unknown-strategy", "count"},
		{"values like members", "POST", deduct, `{"goods_id":1,"strategy":"count","store":"count","count":1}`, nil, 404, "unknown-strategy", "count"},
		{"something after the object", "POST", deduct, `{"goods_id":1,"count":1}{}`, nil, 400, "malformed", "after top-level value"},
		{"garbage after the object", "POST", deduct, `{"goods_id":1,"count":1}x`, nil, 400, "malformed", "after top-level value"},
		{"number as text", "POST", deduct, `{"goods_id":"1","count":1}`, nil, 400, "malformed", "goods_id"},
		{"fraction", "POST", deduct, `{"goods_id":1,"count":1.5}`, nil, 400, "malformed", "count"},
		{"count missing", "POST", deduct, `{"goods_id":1}`, nil, 400, "malformed", "count is 0 or missing"},
		{"count 0", "POST", deduct, `{"goods_id":1,"count":0}`, nil, 400, "malformed", "count"},
		{"count negative", "POST", deduct, `{"goods_id":1,"count":-1}`, nil, 400, "malformed", "count is -1"},
		{"count too large", "POST", deduct, `{"goods_id":1,"count":1000001}`, nil, 400, "malformed", "count is 1000001"},
		{"count beyond 64 bits", "POST", deduct, `{"goods_id":1,"count":9223372036854775808}`, nil, 400, "malformed", "count"},
		{"goods_id missing", "POST", deduct, `{"count":1}`, nil, 400, "malformed", "goods_id"},
		{"goods_id 0", "POST", deduct, `{"goods_id":0,"count":1}`, nil, 400, "malformed", "goods_id"},
		{"goods_id negative", "POST", deduct, `{"goods_id":-1,"count":1}`, nil, 400, "malformed", "goods_id"},
		{"hold_ms negative", "POST", deduct, `{"goods_id":1,"count":1,"hold_ms":-1}`, nil, 400, "malformed", "hold_ms"},
		{"hold_ms too large", "POST", deduct, `{"goods_id":1,"count":1,"hold_ms":10001}`, nil, 400, "malformed", "hold_ms"},
		{"body and query", "POST", deduct + "?goods_id=1&count=1", `{"goods_id":1,"count":1}`, nil, 400, "malformed", "one of them"},
		{"unknown parameter", "POST", deduct + "?goods_id=1&count=1&cuont=1", "", nil, 400, "malformed", "cuont"},
		{"parameter twice", "POST", deduct + "?goods_id=1&count=1&count=2", "", nil, 400, "malformed", "2 times"},
		{"parameter is no number", "POST", deduct + "?goods_id=1&count=one", "", nil, 400, "malformed", "whole number"},
		{"parameter beyond 64 bits", "POST", deduct + "?goods_id=9223372036854775808&count=1", "", nil, 400, "malformed", "whole number"},
		{"parameter empty", "POST", deduct + "?goods_id=1&count=", "", nil, 400, "malformed", "whole number"},
		{"query not well formed", "POST", deduct + "?goods_id=1&count=%zz", "", nil, 400, "malformed", "query"},
		{"two strategies", "POST", deduct + "/update?goods_id=1&count=1&strategy=none", "", nil, 400, "malformed", "the path asks"},
		{"unknown pause point", "POST", deduct + "?goods_id=1&count=1", "", map[string]string{"X-Pause": "nowhere"}, 400, "malformed", "nowhere"},
		{"pause of no time", "POST", deduct + "?goods_id=1&count=1", "", map[string]string{"X-Pause": "after-read=0s"}, 400, "malformed", "0s"},

		{"store that the strategy lacks", "POST", deduct + "/update?goods_id=1&count=1&store=redis", "", nil, 400, "unsupported-store", "update"},
		{"store that does not exist", "POST", deduct + "/update?goods_id=1&count=1&store=paper", "", nil, 400, "unsupported-store", "paper"},
		{"unknown strategy in JSON", "POST", deduct, `{"goods_id":1,"count":1,"strategy":"hope"}`, nil, 404, "unknown-strategy", "hope"},
		{"unknown strategy in the query", "POST", deduct + "?goods_id=1&count=1&strategy=hope", "", nil, 404, "unknown-strategy", "hope"},
		{"unknown strategy in the path", "POST", deduct + "/hope?goods_id=1&count=1", "", nil, 404, "unknown-strategy", "hope"},
		{"unknown goods", "POST", deduct + "/update?goods_id=77&count=1", "", nil, 404, "unknown-goods", "item 77"},
		{"sold out", "POST", deduct + "/update?goods_id=2&count=4", "", nil, 409, "sold-out", "goods 2 has 3 left"},
		{"body too large", "POST", deduct, big, nil, 413, "too-large", "4096"},
		{"form", "POST", deduct, "goods_id=1&count=1", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported-media-type", "form"},
		{"no media type", "POST", deduct, `{"goods_id":1,"count":1}`, map[string]string{"Content-Type": ""}, 415, "unsupported-media-type", ""},
		{"server not configured", "POST", deduct + "/lock-redlock?goods_id=1&count=1", "", nil, 503, "unavailable", "not configured: redlock"},
		{"panic", "POST", deduct + "/panics?goods_id=1&count=1", "", nil, 500, "internal", "log"},
		{"unexpected error", "POST", deduct + "/fails?goods_id=1&count=1", "", nil, 500, "internal", "log"},
		{"fenced", "POST", deduct + "/fenced?goods_id=1&count=1", "", nil, 503, "busy", "set the stock anew (PUT /admin/stock/{goods_id})"},
		{"unknown outcome joined with a refusal", "POST", deduct + "/unknown-and-busy?goods_id=1&count=1", "", nil, 500, "outcome-unknown", "may have taken effect"},

		{"key in quotes", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(`"8e03978e-40d5-43dd-bc93-6894a57f9324"`), 200, "", ""},
		{"key in quotes, with a space and escapes", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(`"a \"\\ b"`), 200, "", ""},
		{"bare key", "POST", deduct + "/confirms?goods_id=1&count=1", "", key("order=7/a_b:c+d"), 200, "", ""},
		{"longest key", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(`"` + strings.Repeat("k", 255) + `"`), 200, "", ""},
		{"key too long", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(strings.Repeat("k", 256)), 400, "malformed", "256 characters"},
		{"empty key", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(""), 400, "malformed", "0 characters"},
		{"empty key in quotes", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(`""`), 400, "malformed", "0 characters"},
		{"key with half its quotes", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(`"a`), 400, "malformed", "in quotes"},
		{"key with something behind", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(`"a"b`), 400, "malformed", "in quotes"},
		{"key with an escape that is none", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(`"a\b"`), 400, "malformed", "in quotes"},
		{"key that ends in an escape", "POST", deduct + "/confirms?goods_id=1&count=1", "", key(`"a\`), 400, "malformed", "in quotes"},
		{"key in Latin-1", "POST", deduct + "/confirms?goods_id=1&count=1", "", key("\"\xe9\""), 400, "malformed", "in quotes"},
		{"two bare keys", "POST", deduct + "/confirms?goods_id=1&count=1", "", key("a, b"), 400, "malformed", "in quotes"},
		{"key that the strategy would ignore", "POST", deduct + "/update?goods_id=1&count=1", "", key("a"), 400, "idempotency-key-unsupported", "update"},
		{"malformed key that the strategy would ignore", "POST", deduct + "/update?goods_id=1&count=1", "", key(""), 400, "malformed", "0 characters"},
		{"key of another order", "POST", deduct + "/key-reused?goods_id=1&count=1", "", key("a"), 422, "idempotency-key-reused", "new key"},
		{"key of an order in progress", "POST", deduct + "/in-progress?goods_id=1&count=1", "", key("a"), 409, "in-progress", "may still deduct"},

		{"stock", "GET", "/stock/2", "", nil, 200, "", ""},
		{"stock in Redis", "GET", "/stock/2?store=redis", "", nil, 200, "", ""},
		{"stock in slots", "GET", "/stock/2?store=slots", "", nil, 200, "", ""},
		{"stock of unknown goods in slots", "GET", "/stock/77?store=slots", "", nil, 404, "unknown-goods", "store slots"},
		{"stock of unknown goods", "GET", "/stock/77", "", nil, 404, "unknown-goods", "item 77 does not exist in store mysql"},
		{"stock of unknown goods in Redis", "GET", "/stock/77?store=redis", "", nil, 404, "unknown-goods", "store redis"},
		{"stock of goods 0", "GET", "/stock/0", "", nil, 400, "malformed", "goods_id"},
		{"stock of goods -1", "GET", "/stock/-1", "", nil, 400, "malformed", "goods_id"},
		{"stock of goods beyond 64 bits", "GET", "/stock/9223372036854775808", "", nil, 400, "malformed", "goods_id"},
		{"stock in no such store", "GET", "/stock/2?store=paper", "", nil, 400, "unsupported-store", "paper"},
		{"stock with a count", "GET", "/stock/2?count=1", "", nil, 400, "malformed", "?store="},
		{"stock with an unknown parameter", "GET", "/stock/2?shop=1", "", nil, 400, "malformed", "shop"},

		{"strategies", "GET", "/strategies", "", nil, 200, "", ""},
		{"problem type", "GET", "/problems/sold-out", "", nil, 200, "sold-out", ""},
		{"unknown problem type", "GET", "/problems/hunger", "", nil, 404, "not-found", "hunger"},
		{"livez", "GET", "/livez", "", nil, 200, "", ""},
		{"healthz", "GET", "/healthz", "", nil, 200, "", ""},
		{"readyz", "GET", "/readyz", "", nil, 200, "", ""},
		{"version", "GET", "/version", "", nil, 200, "", ""},
		{"docs", "GET", "/docs", "", nil, 200, "", ""},
		{"HEAD", "HEAD", "/livez", "", nil, 200, "", ""},
		{"unknown path", "GET", "/nowhere", "", nil, 404, "not-found", "/nowhere"},
		{"admin path on the public listener", "PUT", "/admin/stock/1", `{"stock":1}`, nil, 404, "not-found", ""},
		{"metrics on the public listener", "GET", "/metrics", "", nil, 404, "not-found", ""},
		{"method", "GET", deduct, "", nil, 405, "method-not-allowed", "allows POST"},
		{"method on a strategy", "PUT", deduct + "/update", "", nil, 405, "method-not-allowed", "allows POST"},
		{"method on the stock", "DELETE", "/stock/1", "", nil, 405, "method-not-allowed", "allows GET, HEAD"},

		{"setting stock", "PUT", "admin/stock/3", `{"stock":0}`, nil, 200, "", ""},
		{"setting stock below 0", "PUT", "admin/stock/3", `{"stock":-1}`, nil, 400, "malformed", "stock"},
		{"setting no stock", "PUT", "admin/stock/3", `{}`, nil, 400, "malformed", "stock"},
		{"setting too much stock", "PUT", "admin/stock/3", `{"stock":9007199254740992}`, nil, 400, "malformed", "stock"},
		{"setting stock of goods 0", "PUT", "admin/stock/0", `{"stock":1}`, nil, 400, "malformed", "goods_id"},
		{"setting it twice", "PUT", "admin/stock/3", `{"stock":1,"stock":2}`, nil, 400, "malformed", "more than once"},
		{"setting something else", "PUT", "admin/stock/3", `{"stock":1,"price":1}`, nil, 400, "malformed", "price"},
		{"setting by a form", "PUT", "admin/stock/3", "stock=1", map[string]string{"Content-Type": "text/plain"}, 415, "unsupported-media-type", ""},
		{"setting by a large body", "PUT", "admin/stock/3", big, nil, 413, "too-large", ""},
		{"restocking", "POST", "admin/stock/4/restock", `{"count":1}`, nil, 200, "", ""},
		{"restocking in Redis", "POST", "admin/stock/4/restock?store=redis", `{"count":1}`, nil, 200, "", ""},
		{"restocking in slots", "POST", "admin/stock/4/restock?store=slots", `{"count":1}`, nil, 200, "", ""},
		{"restocking with a key", "POST", "admin/stock/4/restock", `{"count":1}`, map[string]string{"Idempotency-Key": "k"}, 400, "idempotency-key-unsupported", "restock"},
		{"restocking unknown goods", "POST", "admin/stock/77/restock", `{"count":1}`, nil, 404, "unknown-goods", "item 77 does not exist in store mysql"},
		{"restocking unknown goods in Redis", "POST", "admin/stock/77/restock?store=redis", `{"count":1}`, nil, 404, "unknown-goods", "store redis"},
		{"restocking beyond the limit", "POST", "admin/stock/4/restock", `{"count":9007199254740991}`, nil, 409, "overstocked", "9007199254740991"},
		{"restocking in no such store", "POST", "admin/stock/4/restock?store=paper", `{"count":1}`, nil, 400, "unsupported-store", "paper"},
		{"restocking with a parameter", "POST", "admin/stock/4/restock?count=1", `{"count":1}`, nil, 400, "malformed", "?store="},
		{"restocking nothing", "POST", "admin/stock/4/restock", `{}`, nil, 400, "malformed", "count is 0 or missing"},
		{"restocking less than nothing", "POST", "admin/stock/4/restock", `{"count":-1}`, nil, 400, "malformed", "count is -1"},
		{"restocking too much", "POST", "admin/stock/4/restock", `{"count":9007199254740992}`, nil, 400, "malformed", "count"},
		{"restocking goods 0", "POST", "admin/stock/0/restock", `{"count":1}`, nil, 400, "malformed", "goods_id"},
		{"restocking it twice", "POST", "admin/stock/4/restock", `{"count":1,"count":2}`, nil, 400, "malformed", "more than once"},
		{"restocking by a form", "POST", "admin/stock/4/restock", "count=1", map[string]string{"Content-Type": "text/plain"}, 415, "unsupported-media-type", ""},
		{"restocking by a large body", "POST", "admin/stock/4/restock", big, nil, 413, "too-large", ""},
		{"method on restocking", "PUT", "admin/stock/4/restock", "", nil, 405, "method-not-allowed", "allows POST"},
		{"admin method", "POST", "admin/stock/3", "", nil, 405, "method-not-allowed", "allows PUT"},
		{"parked requests", "GET", "admin/pauses", "", nil, 200, "", ""},
		{"release of all", "DELETE", "admin/pauses", "", nil, 200, "", ""},
		{"release of none", "DELETE", "admin/pauses/nobody", "", nil, 404, "not-found", "nobody"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := r.public + test.path
			if strings.HasPrefix(test.path, "admin/") {
				url = r.admin + "/" + test.path
			}
			got := do(t, request{test.method, url, test.body, test.header})
			got.want(t, test.status, test.slug)
			if detail, _ := got.json["detail"].(string); !strings.Contains(detail, test.detail) {
				t.Errorf("the detail is %q, want something with %q", detail, test.detail)
			}
			if strings.Contains(string(got.raw), "secret") {
				t.Errorf("the reply shows internals: %s", got.raw)
			}
		})
	}
}

func TestTwoIdempotencyKeysAreMalformed(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{catalogue: strange})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.public+"/stock/deduct/confirms?goods_id=1&count=1", nil)
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

func TestAnOrderInProgressIsWorthTryingAgain(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{catalogue: strange})
	got := do(t, request{method: "POST", url: r.public + "/stock/deduct/in-progress?goods_id=1&count=1", header: map[string]string{"Idempotency-Key": "a"}}).want(t, 409, "in-progress")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
}

func TestBusyWhenTheLockIsNotFreeInTime(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), LockWait: 50 * time.Millisecond}, pauses: true})
	holder := park(t, r, request{method: "POST", url: r.public + "/stock/deduct/mutex?goods_id=1&count=1", header: map[string]string{"X-Request-Id": "holder", "X-Pause": "after-lock"}})
	got := post(t, r.public+"/stock/deduct/mutex?goods_id=1&count=1", "").want(t, 503, "busy")
	if got.header.Get("X-Strategy") != "mutex" {
		t.Errorf("X-Strategy is %q", got.header.Get("X-Strategy"))
	}
	do(t, request{method: "DELETE", url: r.admin + "/admin/pauses/holder"}).want(t, 200, "")
	(<-holder).want(t, 200, "")
	// Nothing was deducted for the one that was refused.
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
	db := migrated(t, openMySQL(t, config.FormatDSN()))
	config.ReadTimeout = 2 * time.Second
	impatient := openMySQL(t, config.FormatDSN())
	// Connected beforehand: a request that cannot be sent is refused.
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
	// The row is locked, so that the statement is sent and its reply does not come.
	post(t, r.public+"/stock/deduct/update?goods_id=1&count=1", "").want(t, 500, "outcome-unknown")
	if !strings.Contains(r.log.String(), "Outcome unknown") {
		t.Errorf("the log does not tell: %s", r.log)
	}
}

func TestMissingTableIsAnInternalErrorWithoutInternals(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: openMySQL(t, shared.Database(t))}})
	got := do(t, request{method: "POST", url: r.public + "/stock/deduct/update?goods_id=1&count=1", header: map[string]string{"X-Request-Id": "broken"}}).want(t, 500, "internal")
	if strings.Contains(string(got.raw), "good_stock") {
		t.Errorf("the reply shows internals: %s", got.raw)
	}
	if log := r.log.String(); !strings.Contains(log, "good_stock") || !strings.Contains(log, "broken") {
		t.Errorf("the log lacks the cause or the request id: %s", log)
	}
}

func TestEveryProblemTypeIsExplainedAtItsURI(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	for _, kind := range problemTypes() {
		if got := get(t, r.public+kind.(string)).want(t, 200, strings.TrimPrefix(kind.(string), "/problems/")); got.json["description"] == "" {
			t.Errorf("%s has no description", kind)
		}
	}
}

func TestConfirmationTellsAll(t *testing.T) {
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
	deps := stock.Deps{MySQL: database(t), Redis: redisClient(t), Etcd: etcdClient(t), ZooKeeper: zooKeeperClient(t)}
	for _, o := range shared.Redlock(t, 3) {
		deps.Redlock = append(deps.Redlock, openRedis(t, o))
	}
	r := newReplica(t, options{deps: deps})
	for _, s := range stock.Catalogue {
		for _, on := range s.Stores {
			do(t, request{method: "PUT", url: r.admin + "/admin/stock/1", body: `{"stock":10}`}).want(t, 200, "")
			got := post(t, r.public+"/stock/deduct/"+s.Name+"?goods_id=1&count=3&store="+string(on), "").want(t, 200, "")
			want := "7"
			if s.Untold {
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

func TestRequestWithoutStrategyTakesTheDefault(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{}) // the default is the catalogue's first
	if got := post(t, r.public+"/stock/deduct", `{"goods_id":1,"count":1}`); got.header.Get("X-Strategy") != stock.Catalogue[0].Name {
		t.Errorf("X-Strategy is %q", got.header.Get("X-Strategy"))
	}
}

func TestEveryReplyNamesAStrategy(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	byDefault := stock.Catalogue[0].Name
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

func TestSoldOutTellsWhatRemains(t *testing.T) {
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
	if len(names) != len(stock.Catalogue) || names[0] != stock.Catalogue[0].Name {
		t.Errorf("strategies is %v", names)
	}
	if name := got.header.Get("X-Strategy"); name != stock.Catalogue[0].Name {
		t.Errorf("X-Strategy is %q, want the default", name)
	}
}

func TestMethodNotAllowedHasAllow(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	for path, want := range map[string]string{"/stock/deduct": "POST", "/stock/deduct/update": "POST", "/livez": "GET, HEAD"} {
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
	if len(rows) != len(stock.Catalogue) || got.json["default"] != stock.Catalogue[0].Name {
		t.Fatalf("%d strategies, default %v", len(rows), got.json["default"])
	}
	for i, s := range stock.Catalogue {
		row := rows[i].(map[string]any)
		unavailable := row["unavailable"].(map[string]any)
		if row["name"] != s.Name || row["summary"] != s.Summary || row["control"] != s.Control || row["tells_remaining"] != !s.Untold {
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
			if reason, missing := unavailable[string(on)].(string); missing != (on != stock.NoStore) || missing && !strings.Contains(reason, "not configured: ") {
				t.Errorf("%s on %s: the reason is %q", s.Name, on, reason)
			}
		}
	}
}

func TestChunkedBodyBesideAQueryIsRefused(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	// A reader of unknown length makes the client send chunks.
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.public+"/stock/deduct?goods_id=1&count=1", struct{ *strings.Reader }{strings.NewReader("{}")})
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 400 {
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
