package httpapi_test

import (
	"context"
	"crypto/rand"
	"maps"
	"net/http"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// parked is a request that has stopped before or after one of its exchanges with MySQL.
type parked struct {
	leave context.CancelFunc // makes its client go away

	goOn chan struct{}
	done chan reply
}

// park sends a request that stops at a point, and returns when it is there.
func park(t testing.TB, r *replica, req request, at stocktest.Point) *parked {
	t.Helper()
	ctx, leave := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	p := &parked{leave: leave, goOn: make(chan struct{}), done: make(chan reply, 1)}
	reached, ended := make(chan struct{}), t.Context().Done()
	id := rand.Text()
	r.pauses.Store(id, stocktest.Once(at, func(context.Context) {
		close(reached)
		select {
		case <-p.goOn:
		case <-ended: // the test has failed
		}
	}))
	req.header = maps.Clone(req.header)
	if req.header == nil {
		req.header = map[string]string{}
	}
	req.header["X-Request-Id"] = id
	go func() {
		got, err := try(ctx, req)
		if err != nil {
			got.raw = []byte(err.Error())
		}
		p.done <- got
	}()
	select {
	case <-reached:
	case got := <-p.done:
		t.Fatalf("%s ended before it stopped at %s: %s", req.url, at, got.raw)
	}
	return p
}

// resume lets the request go on and returns its reply.
func (p *parked) resume() reply {
	close(p.goOn)
	return <-p.done
}

// pausing makes the requests stop that park sends.
func (r *replica) pausing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if pause, ok := r.pauses.Load(req.Header.Get("X-Request-Id")); ok {
			req = req.WithContext(stocktest.WithPause(req.Context(), pause.(stocktest.PauseFunc)))
		}
		next.ServeHTTP(w, req)
	})
}

// parkHolder parks a request while it holds the mutex of item 1.
func parkHolder(t testing.TB, r *replica) *parked {
	t.Helper()
	holder := request{method: "POST", url: r.public + "/stock/deduct/mutex?goods_id=1&count=1"}
	return park(t, r, holder, stocktest.BeforeWrite)
}

func TestARequestWhoseClientGoesAwayTakesNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	working := request{method: "POST", url: r.public + "/stock/deduct/none?goods_id=1&count=1&hold_ms=10000"}
	impatient := park(t, r, working, stocktest.AfterRead)
	impatient.leave()
	impatient.resume()
	eventually(t, "it is counted as client-gone", func() bool {
		return metric(t, r, `stock_deductions_total{outcome="client-gone",store="mysql",strategy="none"}`) == "1"
	})
	if got := get(t, r.public+"/stock/1"); got.text(t, "stock") != "6000" {
		t.Errorf("%s units are left, want all 6000", got.text(t, "stock"))
	}
}

func TestARetryIsCounted(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	sale := request{method: "POST", url: r.public + "/stock/deduct/optimistic-version?goods_id=1&count=1"}
	slow := park(t, r, sale, stocktest.BeforeWrite)
	do(t, sale).want(t, 200, "")
	if got := slow.resume().want(t, 200, ""); got.text(t, "attempts") != "2" {
		t.Errorf("%s attempts, want 2", got.text(t, "attempts"))
	}
	if retries := metric(t, r, `stock_retries_total{store="mysql",strategy="optimistic-version"}`); retries != "1" {
		t.Errorf("stock_retries_total is %q, want 1", retries)
	}
}
