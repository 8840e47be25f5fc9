package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"stock/internal/stock/catalogue"
)

func TestABuyerIsRefusedBeyondTheLimit(t *testing.T) {
	t.Parallel()
	first, second := twoReplicas(t)
	const query = "count=2&buyer=a+b&buyer_limit=3"
	do(t, keyedDeduction(first, query, "k1")).want(t, 200, "")
	refused := do(t, keyedDeduction(first, query, "k2")).want(t, 409, "buyer-limit")
	if refused.text(t, "bought") != "2" || refused.text(t, "buyer_limit") != "3" {
		t.Errorf("%s, want 2 bought and a limit of 3", refused.raw)
	}
	again := do(t, keyedDeduction(second, query, "k2")).want(t, 409, "buyer-limit")
	if again.header.Get("Idempotency-Replayed") != "true" || !same(t, refused, again) {
		t.Errorf("the answers are %s and (%v) %s", refused.raw, again.header, again.raw)
	}
	do(t, keyedDeduction(second, "count=2&buyer=a+b&buyer_limit=4", "k2")).want(t, 422, "idempotency-key-reused")
	body := `{"goods_id":1,"count":1,"buyer":"a b","buyer_limit":3}`
	post(t, second.public+"/stock/deduct/batch-ledger", body).want(t, 200, "")
	refused = post(t, second.public+"/stock/orders/ledger",
		`{"lines":[{"goods_id":1,"count":1}],"buyer":"a b","buyer_limit":3}`).want(t, 409, "buyer-limit")
	if refused.text(t, "bought") != "3" || refused.text(t, "lines") != "[0]" {
		t.Errorf("%s, want 3 bought, because of line 0", refused.raw)
	}
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5997" {
		t.Errorf("%s units are left, want 5997", left)
	}
	const count = `stock_deductions_total{outcome="buyer-limit",store="mysql",strategy="update"}`
	if got := metric(t, second, count); got != "1" {
		t.Errorf("%s is %s, want 1", count, got)
	}
}

func TestABuyerIsMalformed(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	for _, members := range []string{
		`"buyer":"a"`, `"buyer_limit":1`, `"buyer":"","buyer_limit":1`, `"buyer":"a","buyer_limit":0`,
		`"buyer":"a","buyer_limit":1000001`, `"buyer":"a\n","buyer_limit":1`, `"buyer":"é","buyer_limit":1`,
		`"buyer":"` + strings.Repeat("a", 65) + `","buyer_limit":1`,
	} {
		body := `{"goods_id":1,"count":1,` + members + `}`
		post(t, r.public+"/stock/deduct/ledger", body).want(t, 400, "malformed")
	}
}

func TestEveryStrategyAcceptsABuyerOrRefusesOne(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	for _, strategy := range catalogue.Strategies {
		url := fmt.Sprintf("%s/stock/deduct/%s?goods_id=1&count=1&buyer=a&buyer_limit=1", r.public, strategy.Name)
		if strategy.Claim.BuyerLimit == "" {
			post(t, url, "").want(t, 400, "buyer-unsupported")
		} else {
			post(t, url, "").want(t, 503, "unavailable") // the replica has no servers
		}
	}
}
