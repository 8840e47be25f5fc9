package httpapi_test

import (
	"strings"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
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

func TestAKeyOfADifferentRequestIsRefused(t *testing.T) {
	t.Parallel()
	first, second := twoReplicas(t)
	do(t, keyedDeduction(first, "count=2", "k")).want(t, 200, "")
	do(t, keyedDeduction(second, "count=3", "k")).want(t, 422, "idempotency-key-reused")
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5998" {
		t.Errorf("%s units are left, want 5998", left)
	}
}

func TestAKeyWhoseFirstRequestDoesNotEndInTimeIsInProgress(t *testing.T) {
	t.Parallel()
	first, second := twoReplicas(t)
	sale := park(t, first, keyedDeduction(first, "count=2&hold_ms=1", "k"), stocktest.BeforeCommit)
	for _, r := range []*replica{first, second} {
		do(t, keyedDeduction(r, "count=2&wait_ms=0", "k")).want(t, 409, "in-progress")
	}
	sale.resume().want(t, 200, "")
	do(t, keyedDeduction(second, "count=2", "k")).want(t, 200, "")
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5998" {
		t.Errorf("%s units are left, want 5998", left)
	}
}

func TestEveryStrategyAcceptsAKeyOrRefusesIt(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), Redis: redisClient(t)}})
	for _, strategy := range catalogue.Strategies {
		for _, req := range []request{
			{
				method: "POST", url: r.public + "/stock/deduct/" + strategy.Name + "?goods_id=1&count=1",
				header: key("deduct"),
			},
			keyedOrder(r, strategy.Name, `{"goods_id":1,"count":1}`, "order"),
		} {
			got := do(t, req)
			if refused := got.slug() == "idempotency-key-unsupported"; refused == strategy.Idempotent() {
				t.Errorf("%s: %d %s", req.url, got.status, got.raw)
			}
		}
	}
}

func TestAnOrderThatIsSentAgainIsAnsweredAsBefore(t *testing.T) {
	t.Parallel()
	first, second := twoReplicas(t)
	do(t, request{method: "PUT", url: first.admin + "/admin/stock/2", body: `{"stock":10}`}).want(t, 200, "")
	const (
		lines    = `{"goods_id":2,"count":3},{"goods_id":1,"count":1}`
		permuted = `{"goods_id":1,"count":1},{"goods_id":2,"count":1},{"goods_id":2,"count":2}`
		tooMany  = `{"goods_id":2,"count":100}`
	)
	for _, strategy := range []string{"update", "batch", "lock-mysql-getlock"} {
		saleKey, shortageKey := strategy+"-sale", strategy+"-shortage"
		sale := do(t, keyedOrder(first, strategy, lines, saleKey)).want(t, 200, "")
		shortage := do(t, keyedOrder(first, strategy, tooMany+","+lines, shortageKey)).want(t, 409, "sold-out")
		do(t, request{method: "POST", url: first.admin + "/admin/stock/2/restock", body: `{"count":1000}`}).want(t, 200, "")

		for _, test := range []struct {
			first         reply
			lines, key    string
			status        int
			slug, member  string
			lineOfProblem string
		}{
			{first: sale, lines: permuted, key: saleKey, status: 200, member: "lines"},
			{
				first: shortage, lines: permuted + "," + tooMany, key: shortageKey, status: 409, slug: "sold-out",
				member: "detail", lineOfProblem: `"goods_id":2,"lines":[1,2,3]`,
			},
		} {
			again := do(t, keyedOrder(second, strategy, test.lines, test.key)).want(t, test.status, test.slug)
			if test.first.header.Get("Idempotency-Replayed") != "" || again.header.Get("Idempotency-Replayed") != "true" ||
				test.first.text(t, test.member) != again.text(t, test.member) ||
				!strings.Contains(string(again.raw), test.lineOfProblem) {
				t.Errorf("%s: the answers are %s and %s", test.key, test.first.raw, again.raw)
			}
		}
		do(t, keyedOrder(second, strategy, `{"goods_id":1,"count":1}`, saleKey)).want(t, 422, "idempotency-key-reused")
		do(t, request{
			method: "POST", url: second.public + "/stock/deduct/" + strategy + "?goods_id=1&count=1", header: key(saleKey),
		}).want(t, 422, "idempotency-key-reused")
		do(t, request{method: "PUT", url: first.admin + "/admin/stock/2", body: `{"stock":10}`}).want(t, 200, "")
	}
	if left := get(t, first.public+"/stock/1").text(t, "stock"); left != "5997" {
		t.Errorf("%s units are left, want 5997", left)
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
