package httpapi_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"stock/internal/stock"
)

const sales = "/stock/sales/"

// sellWithKey sells three units of item 1.
func (r *replica) sellWithKey(t *testing.T, key string) reply {
	t.Helper()
	header := map[string]string{"Idempotency-Key": `"` + key + `"`}
	return do(t, request{method: "POST", url: r.public + "/stock/deduct?goods_id=1&count=3", header: header})
}

func wantSale(t *testing.T, got reply, state, lines string, replayed bool) {
	t.Helper()
	got.want(t, 200, "")
	again := got.header.Get("Idempotency-Replayed") == "true"
	if got.text(t, "state") != `"`+state+`"` || got.text(t, "lines") != lines || again != replayed {
		t.Errorf("%s, replayed %v, want %s with the lines %s, replayed %v", got.raw, again, state, lines, replayed)
	}
}

func TestACancelledSaleOverHTTP(t *testing.T) {
	t.Parallel()
	r, _ := newShop(t)
	url := r.public + sales + "k"
	if got := get(t, url).want(t, 404, "unknown-sale"); strings.Contains(string(got.raw), "cancelled") {
		t.Errorf("nothing was to be cancelled, but a read of an unknown sale is answered %s", got.raw)
	}
	post(t, url+"/cancel", `{"cancelled":1}`).want(t, 404, "unknown-sale")
	r.sellWithKey(t, "k").want(t, 200, "")
	wantSale(t, get(t, url), "sold", `[{"cancelled":0,"count":3,"given_back":0,"goods_id":1}]`, false)
	for again := range 2 {
		part := post(t, url+"/cancel", `{"cancelled":1}`)
		wantSale(t, part, "sold", `[{"cancelled":1,"count":3,"given_back":1,"goods_id":1}]`, again > 0)
	}
	r.wantStock(t, "8")
	r.sellWithKey(t, "k").want(t, 200, "")
	if detail, _ := post(t, url+"/cancel", `{"lines":[{"goods_id":1,"cancelled":4}]}`).want(t, 422, "more-than-sold").
		json["detail"].(string); !strings.Contains(detail, "3 of item 1 were sold, and 4") {
		t.Errorf("the detail is %q", detail)
	}
	for again := range 2 {
		whole := post(t, url+"/cancel?strategy=update&goods_id=1", "")
		wantSale(t, whole, "cancelled", `[{"cancelled":3,"count":3,"given_back":3,"goods_id":1}]`, again > 0)
	}
	r.wantStock(t, "10")
	if got := r.sellWithKey(t, "k").want(t, 409, "cancelled"); got.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the cancelled sale again: %s, want a replay", got.raw)
	}
	r.wantStock(t, "10")
}

func TestASaleThatWasCancelledBeforeItArrivesOverHTTP(t *testing.T) {
	t.Parallel()
	r, _ := newShop(t)
	for _, key := range []string{"early", `a b/c%2F"\?#..`} {
		at := r.public + sales + url.PathEscape(key)
		cancelled := post(t, at+"/cancel", "")
		wantSale(t, cancelled, "never-sold", "[]", false)
		if cancelled.json["key"] != key {
			t.Errorf("the key is %v, want %q", cancelled.json["key"], key)
		}
		wantSale(t, get(t, at+"?strategy=batch"), "never-sold", "[]", false)
		escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key)
		r.sellWithKey(t, escaped).want(t, 409, "cancelled")
	}
	r.wantStock(t, "10")
}

func TestASaleUnderALockNamesTheStrategyThatCancelsIt(t *testing.T) {
	t.Parallel()
	r, _ := newShop(t)
	r.sellWithKey(t, "plain").want(t, 200, "")
	if got := get(t, r.public+sales+"plain").want(t, 200, ""); got.json["strategy"] != nil {
		t.Errorf("a sale that any strategy of the store can cancel: %s, want no strategy", got.raw)
	}
	const seller = "mutex-around-tx"
	do(t, request{
		method: "POST", url: r.public + "/stock/deduct?goods_id=1&count=3&strategy=" + seller,
		header: map[string]string{"Idempotency-Key": "k"},
	}).want(t, 200, "")
	wantStrategy := func(got reply) {
		t.Helper()
		if got.want(t, 200, ""); got.json["strategy"] != seller {
			t.Errorf("%s, want the strategy %s", got.raw, seller)
		}
	}
	wantStrategy(get(t, r.public+sales+"k"))
	refused := post(t, r.public+sales+"k/cancel", "").want(t, 422, "idempotency-key-reused")
	if detail, _ := refused.json["detail"].(string); !strings.Contains(detail, seller) {
		t.Errorf("the detail is %q, want the strategy %s", detail, seller)
	}
	wantStrategy(post(t, r.public+sales+"k/cancel?strategy="+seller, ""))
	r.wantStock(t, "7")
}

func TestACancellationMayBeChunked(t *testing.T) {
	t.Parallel()
	r, _ := newShop(t)
	r.sellWithKey(t, "k").want(t, 200, "")
	body := struct{ io.Reader }{strings.NewReader(`{"cancelled":1}`)} // without a length that net/http could tell
	reply, err := http.Post(r.public+sales+"k/cancel", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("the status is %d", reply.StatusCode)
	}
	r.wantStock(t, "8")
}

func TestCancellationsThatAreRefusedOverHTTP(t *testing.T) {
	t.Parallel()
	r, _ := newShop(t)
	r.sellWithKey(t, "k").want(t, 200, "")
	cancel := sales + "k/cancel"
	for _, c := range []contractCase{
		{name: "a body and a query", path: cancel + "?strategy=update", body: `{"cancelled":1}`, slug: "malformed"},
		{name: "unknown parameter", path: cancel + "?count=1", slug: "malformed", detail: "goods_id"},
		{name: "cancelled and lines", path: cancel, body: `{"cancelled":1,"lines":[]}`, slug: "malformed"},
		{name: "no lines", path: cancel, body: `{"lines":[]}`, slug: "malformed"},
		{name: "no number", path: cancel, body: `{"cancelled":null}`, slug: "malformed", detail: "cancelled must not be"},
		{name: "lines that are null", path: cancel, body: `{"lines":null}`, slug: "malformed", detail: "lines must not be"},
		{name: "null", path: cancel, body: `null`, slug: "malformed", detail: "it is null"},
		{name: "no units", path: cancel, body: `{"cancelled":0}`, slug: "malformed"},
		{name: "a line without an item", path: cancel, body: `{"lines":[{"cancelled":1}]}`, slug: "malformed"},
		{name: "two lines of an item", path: cancel,
			body: `{"lines":[{"goods_id":1,"cancelled":1},{"goods_id":1,"cancelled":1}]}`, slug: "malformed"},
		{name: "an item below 1", path: cancel + "?goods_id=-1", slug: "malformed"},
		{name: "a control", path: cancel + "?strategy=decrement", slug: "idempotency-key-unsupported"},
		{name: "another store", path: cancel + "?store=redis", slug: "unsupported-store", detail: "name a strategy of that"},
		{name: "a body with a read", method: "GET", path: sales + "k", body: `{}`, slug: "malformed"},
		{name: "no key", path: sales + "/cancel", status: 404, slug: "not-found", detail: "the key of the sale is missing"},
		{name: "a key that is too long", path: sales + strings.Repeat("k", stock.MaxKey+1) + "/cancel", slug: "malformed"},
		{name: "a key that is not ASCII", path: sales + "%C3%BC/cancel", slug: "malformed"},
		{name: "unknown strategy", path: cancel + "?strategy=magic", status: 404, slug: "unknown-strategy"},
		{name: "another item", path: cancel + "?goods_id=2", status: 404, slug: "unknown-sale",
			detail: "sold by another strategy"},
		{name: "a part of nothing", path: sales + "x/cancel", body: `{"cancelled":1}`, status: 404, slug: "unknown-sale",
			detail: "cancel everything"},
		{name: "the key of another store", path: cancel + "?strategy=slots", status: 422, slug: "idempotency-key-reused"},
	} {
		if c.method == "" {
			c.method = http.MethodPost
		}
		if c.status == 0 {
			c.status = 400
		}
		t.Run(c.name, func(t *testing.T) { c.check(t, r) })
	}
	r.wantStock(t, "7")
}
