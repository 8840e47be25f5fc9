package httpapi_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"stock/internal/must"
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
	must.Succeed(t, err)
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("the status is %d", reply.StatusCode)
	}
	r.wantStock(t, "8")
}
