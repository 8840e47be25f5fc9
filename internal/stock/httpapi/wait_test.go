package httpapi_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// waiting returns a deduction as a query, one as JSON, and an order if the strategy takes any, each with the given
// wait_ms.
func waiting(r *replica, strategy, waitMS string) []request {
	requests := []request{
		{method: "POST", url: r.public + "/stock/deduct/" + strategy + "?goods_id=1&count=1&wait_ms=" + waitMS},
		{
			method: "POST", url: r.public + "/stock/deduct/" + strategy,
			body: `{"goods_id":1,"count":1,"wait_ms":` + waitMS + `}`,
		},
	}
	if strategy == "for-update" || strategy == "lock-redis-fenced" {
		requests = append(requests, request{
			method: "POST", url: r.public + "/stock/orders/" + strategy,
			body: `{"lines":[{"goods_id":1,"count":1}],"wait_ms":` + waitMS + `}`,
		})
	}
	return requests
}

// The usual wait is longer than any test: only a try is refused before the holder is released.
func TestATryIsRefusedAsBusyWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	deps := stock.Deps{MySQL: database(t), Redis: redisClient(t), LockWait: time.Hour}
	r := newReplica(t, options{deps: deps, timeout: 2 * time.Hour})
	for i, strategy := range []string{"for-update", "lock-redis-fenced", "lock-redis-fair", "lock-redis-queue"} {
		sale := request{method: "POST", url: r.public + "/stock/deduct/" + strategy + "?goods_id=1&count=1"}
		holder := park(t, r, sale, stocktest.BeforeWrite)
		requests := waiting(r, strategy, "0")
		for _, req := range requests {
			if got := do(t, req).want(t, 503, "busy"); got.header.Get("Retry-After") != "1" {
				t.Errorf("%s: Retry-After is %q, want 1", req.url, got.header.Get("Retry-After"))
			}
		}
		holder.resume().want(t, 200, "")
		// Only the holder has deducted. Now the item is free.
		do(t, waiting(r, strategy, "0")[0]).want(t, 200, "")
		want := fmt.Sprint(6000 - 2*(i+1))
		if got := get(t, r.public+"/stock/1"); got.text(t, "stock") != want {
			t.Errorf("%s: %s units are left, want %s", strategy, got.text(t, "stock"), want)
		}
		sample := `stock_deductions_total{outcome="busy",store="mysql",strategy="` + strategy + `"}`
		if busy := metric(t, r, sample); busy != strconv.Itoa(len(requests)) {
			t.Errorf("%s is %q, want %d", sample, busy, len(requests))
		}
	}
}
