package httpapi_test

import (
	"strings"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
)

// keyedDeduction asks for units of item 1 with the strategy update and a key.
func keyedDeduction(r *replica, query, id string) request {
	return request{method: "POST", url: r.public + "/stock/deduct/update?goods_id=1&" + query, header: key(id)}
}

// keyedOrder orders several items with a key.
func keyedOrder(r *replica, strategy, lines, id string) request {
	return request{
		method: "POST", url: r.public + "/stock/orders/" + strategy, body: `{"lines":[` + lines + `]}`, header: key(id),
	}
}

// twoReplicas returns replicas that share a database.
func twoReplicas(t *testing.T) (first, second *replica) {
	o := options{deps: stock.Deps{MySQL: database(t)}}
	return newReplica(t, o), newReplica(t, o)
}

// same reports whether two replies are equal except for the request id and the times.
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
		// The key is the same with and without quotes, and hold_ms may differ.
		id := strings.ReplaceAll(test.name, " ", "-")
		answer := do(t, keyedDeduction(first, test.query, `"`+id+`"`)).want(t, test.status, test.slug)
		if answer.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: the first answer is marked as replayed", test.name)
		}
		post(t, first.public+"/stock/deduct/update?goods_id=1&count=1", "").want(t, 200, "")
		again := do(t, keyedDeduction(second, test.query+"&hold_ms=1", id)).want(t, test.status, test.slug)
		if replayed := again.header.Get("Idempotency-Replayed"); replayed != "true" || !same(t, answer, again) {
			t.Errorf("%s: the answers are %s and (replayed: %q) %s", test.name, answer.raw, replayed, again.raw)
		}
		const count = `stock_deductions_total{outcome="replayed",store="mysql",strategy="update"}`
		metrics, err := try(t.Context(), request{method: "GET", url: second.admin + "/metrics"})
		if err != nil || !strings.Contains(string(metrics.raw), count) {
			t.Errorf("%s: the metrics do not count the replay, %v", test.name, err)
		}
	}
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5996" {
		t.Errorf("%s units are left, want 5996", left)
	}
}

func TestEveryStrategyAcceptsWhatItKeepsAndRefusesWhatItWouldIgnore(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{}) // without servers
	for _, strategy := range catalogue.Strategies {
		url := r.public + "/stock/deduct/" + strategy.Name + "?goods_id=1&count=1"
		const keyRefused, buyerRefused = "idempotency-key-unsupported", "buyer-unsupported"
		for _, test := range []struct {
			req    request
			keeps  bool
			refuse string
		}{
			{request{method: "POST", url: url, header: key("k")}, strategy.Idempotent(), keyRefused},
			{keyedOrder(r, strategy.Name, `{"goods_id":1,"count":1}`, "k"), strategy.Idempotent(), keyRefused},
			{request{method: "POST", url: url + "&buyer=a&buyer_limit=1"}, strategy.Claim.BuyerLimit != "", buyerRefused},
		} {
			got := do(t, test.req)
			if refused := got.slug() == test.refuse; refused == test.keeps || got.status == 200 {
				t.Errorf("%s: %d %s", test.req.url, got.status, got.raw)
			}
		}
	}
}

func TestStrategiesThatKeepKeysRequireOneIfTheServiceSaysSo(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}, requireKey: true})
	for _, req := range []request{
		keyedDeduction(r, "count=1", "deduction"), keyedOrder(r, "batch", `{"goods_id":1,"count":1}`, "order"),
	} {
		do(t, req).want(t, 200, "")
		req.header = nil
		got := do(t, req).want(t, 400, "malformed")
		if !strings.Contains(string(got.raw), "Idempotency-Key is missing") {
			t.Errorf("%s: got %s", req.url, got.raw)
		}
	}
	do(t, request{method: "POST", url: r.public + "/stock/deduct/mutex-in-tx?goods_id=1&count=1"}).want(t, 200, "")
	post(t, r.public+reservations, `{"goods_id":1,"count":1,"ttl_ms":1000}`).want(t, 201, "")
}
