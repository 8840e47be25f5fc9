package httpapi_test

import (
	"strings"
	"testing"

	"stock/internal/stock"
)

// ordered asks for units of goods 1 by the strategy ledger, with a key.
func ordered(r *replica, query, key string) request {
	return request{method: "POST", url: r.public + "/stock/deduct/ledger?goods_id=1&" + query, header: map[string]string{"Idempotency-Key": key}}
}

// twoReplicas share a database.
func twoReplicas(t *testing.T) (first, second *replica) {
	o := options{deps: stock.Deps{MySQL: database(t)}, pauses: true}
	return newReplica(t, o), newReplica(t, o)
}

// same says whether two replies tell the client the same, but for what names the request and times it.
func same(t *testing.T, a, b reply) bool {
	for _, member := range []string{"goods_id", "count", "remaining", "strategy", "store", "type", "title", "detail"} {
		if a.text(t, member) != b.text(t, member) {
			return false
		}
	}
	return a.status == b.status
}

func TestARequestThatIsSentAgainIsAnsweredAsBefore(t *testing.T) {
	t.Parallel()
	first, second := twoReplicas(t)
	for _, test := range []struct {
		name, query string
		status      int
		slug        string
	}{
		{"sale", "count=2", 200, ""},
		{"sold out", "count=10000", 409, "sold-out"},
	} {
		// In quotes, bare, and with work to do: one key, and one order.
		answer := do(t, ordered(first, test.query, `"`+strings.ReplaceAll(test.name, " ", "-")+`"`)).want(t, test.status, test.slug)
		if answer.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: the first answer says that it is replayed", test.name)
		}
		post(t, first.public+"/stock/deduct/ledger?goods_id=1&count=1", "").want(t, 200, "")
		again := do(t, ordered(second, test.query+"&hold_ms=1", strings.ReplaceAll(test.name, " ", "-"))).want(t, test.status, test.slug)
		if again.header.Get("Idempotency-Replayed") != "true" || !same(t, answer, again) {
			t.Errorf("%s: answered %s, and again (replayed: %q) %s", test.name, answer.raw, again.header.Get("Idempotency-Replayed"), again.raw)
		}
		if metrics, err := try(t.Context(), request{method: "GET", url: second.admin + "/metrics"}); err != nil ||
			!strings.Contains(string(metrics.raw), `stock_deductions_total{outcome="replayed",store="mysql",strategy="ledger"}`) {
			t.Errorf("%s: the metrics do not tell of the replay, %v", test.name, err)
		}
	}
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5996" {
		t.Errorf("%s units are left, want 5996", left)
	}
}

func TestAKeyWithAnotherOrderIsRefused(t *testing.T) {
	t.Parallel()
	first, second := twoReplicas(t)
	do(t, ordered(first, "count=2", "k")).want(t, 200, "")
	do(t, ordered(second, "count=3", "k")).want(t, 422, "idempotency-key-reused")
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5998" {
		t.Errorf("%s units are left, want 5998", left)
	}
}

func TestAKeyWhoseFirstRequestIsInProgressIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	first, second := twoReplicas(t)
	parked := ordered(first, "count=2", "k")
	parked.header["X-Request-Id"], parked.header["X-Pause"] = "first", "before-commit"
	done := park(t, first, parked)
	for _, r := range []*replica{first, second} {
		do(t, ordered(r, "count=2", "k")).want(t, 409, "in-progress")
	}
	do(t, request{method: "DELETE", url: first.admin + "/admin/pauses/first"}).want(t, 200, "")
	(<-done).want(t, 200, "")
	do(t, ordered(second, "count=2", "k")).want(t, 200, "")
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5998" {
		t.Errorf("%s units are left, want 5998", left)
	}
}

func TestEveryStrategyHonoursAKeyOrRefusesIt(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), Redis: redisClient(t)}})
	for _, strategy := range stock.Catalogue {
		got := do(t, request{method: "POST", url: r.public + "/stock/deduct/" + strategy.Name + "?goods_id=1&count=1",
			header: map[string]string{"Idempotency-Key": strategy.Name}})
		if refused := got.slug() == "idempotency-key-unsupported"; refused == strategy.Idempotent {
			t.Errorf("%s: %d %s", strategy.Name, got.status, got.raw)
		}
	}
}
