package httpapi_test

import (
	"testing"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// The usual wait is longer than any test: only a try is refused before the holder is released.
func TestATryIsRefusedAsBusyWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	deps := stock.Deps{MySQL: database(t), Redis: redisClient(t), LockWait: time.Hour}
	r := newReplica(t, options{deps: deps, timeout: 2 * time.Hour})
	const strategy = "lock-redis-fenced"
	deduct := r.public + "/stock/deduct/" + strategy
	tries := []request{
		{method: "POST", url: deduct + "?goods_id=1&count=1&wait_ms=0"},
		{method: "POST", url: deduct, body: `{"goods_id":1,"count":1,"wait_ms":0}`},
		{
			method: "POST", url: r.public + "/stock/orders/" + strategy,
			body: `{"lines":[{"goods_id":1,"count":1}],"wait_ms":0}`,
		},
	}
	holder := park(t, r, request{method: "POST", url: deduct + "?goods_id=1&count=1"}, stocktest.BeforeWrite)
	for _, try := range tries {
		if got := do(t, try).want(t, 503, "busy"); got.header.Get("Retry-After") != "1" {
			t.Errorf("%s: Retry-After is %q, want 1", try.url, got.header.Get("Retry-After"))
		}
	}
	holder.resume().want(t, 200, "")
	for _, try := range tries {
		do(t, try).want(t, 200, "")
	}
	sample := `stock_deductions_total{outcome="busy",store="mysql",strategy="` + strategy + `"}`
	if busy := metric(t, r, sample); busy != "3" {
		t.Errorf("%s is %q, want 3", sample, busy)
	}
}
