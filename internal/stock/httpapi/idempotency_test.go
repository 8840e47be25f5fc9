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
		for _, req := range []request{
			{method: "POST", url: r.public + "/stock/deduct/" + strategy.Name + "?goods_id=1&count=1", header: map[string]string{"Idempotency-Key": "deduct"}},
			linesOrdered(r, strategy.Name, `{"goods_id":1,"count":1}`, "order"),
		} {
			got := do(t, req)
			if refused := got.slug() == "idempotency-key-unsupported"; refused == strategy.Idempotent {
				t.Errorf("%s: %d %s", req.url, got.status, got.raw)
			}
		}
	}
}

// linesOrdered asks for several goods by a strategy, with a key.
func linesOrdered(r *replica, strategy, lines, key string) request {
	return request{method: "POST", url: r.public + "/stock/orders/" + strategy, body: `{"lines":[` + lines + `]}`, header: map[string]string{"Idempotency-Key": key}}
}

func TestAnOrderOfSeveralGoodsThatIsSentAgainIsAnsweredAsBefore(t *testing.T) {
	t.Parallel()
	first, second := twoReplicas(t)
	do(t, request{method: "PUT", url: first.admin + "/admin/stock/2", body: `{"stock":10}`}).want(t, 200, "")
	const lines, permuted = `{"goods_id":2,"count":3},{"goods_id":1,"count":1}`, `{"goods_id":1,"count":1},{"goods_id":2,"count":1},{"goods_id":2,"count":2}`
	for _, strategy := range []string{"ledger", "batch-ledger"} {
		key := strategy + "-sale"
		parked := linesOrdered(first, strategy, lines, key)
		parked.header["X-Request-Id"], parked.header["X-Pause"] = key, "after-lock"
		done := park(t, first, parked)
		do(t, linesOrdered(second, strategy, lines, key)).want(t, 409, "in-progress")
		do(t, request{method: "DELETE", url: first.admin + "/admin/pauses/" + key}).want(t, 200, "")
		sale := (<-done).want(t, 200, "")
		shortage := do(t, linesOrdered(first, strategy, `{"goods_id":2,"count":100},`+lines, strategy+"-shortage")).want(t, 409, "sold-out")
		do(t, request{method: "POST", url: first.admin + "/admin/stock/2/restock", body: `{"count":1000}`}).want(t, 200, "")

		for _, test := range []struct {
			first         reply
			lines, key    string
			status        int
			slug, member  string
			lineOfProblem string
		}{
			{sale, permuted, key, 200, "", "lines", ""},
			{shortage, permuted + `,{"goods_id":2,"count":100}`, strategy + "-shortage", 409, "sold-out", "detail", `"goods_id":2,"lines":[1,2,3]`},
		} {
			again := do(t, linesOrdered(second, strategy, test.lines, test.key)).want(t, test.status, test.slug)
			if test.first.header.Get("Idempotency-Replayed") != "" || again.header.Get("Idempotency-Replayed") != "true" ||
				test.first.text(t, test.member) != again.text(t, test.member) || !strings.Contains(string(again.raw), test.lineOfProblem) {
				t.Errorf("%s was answered %s, and again %s", test.key, test.first.raw, again.raw)
			}
		}
		do(t, linesOrdered(second, strategy, `{"goods_id":1,"count":1}`, key)).want(t, 422, "idempotency-key-reused")
		do(t, request{method: "POST", url: second.public + "/stock/deduct/" + strategy + "?goods_id=1&count=1",
			header: map[string]string{"Idempotency-Key": key}}).want(t, 422, "idempotency-key-reused")
		do(t, request{method: "PUT", url: first.admin + "/admin/stock/2", body: `{"stock":10}`}).want(t, 200, "")
	}
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5998" {
		t.Errorf("%s units are left, want 5998", left)
	}
}
