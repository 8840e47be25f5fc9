package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"stock/internal/stock"
)

// parkHolder parks the request "holder" while it holds the mutex of item 1.
func parkHolder(t testing.TB, r *replica) <-chan reply {
	t.Helper()
	return park(t, r, request{
		method: "POST", url: r.public + "/stock/deduct/mutex?goods_id=1&count=1",
		header: map[string]string{"X-Request-Id": "holder", "X-Pause": "after-lock"},
	})
}

// park sends a request that stops at a pause point, and returns when it is there. The request must have an id.
func park(t testing.TB, r *replica, req request) <-chan reply {
	t.Helper()
	done := make(chan reply, 1)
	go func() {
		got, err := try(context.WithoutCancel(t.Context()), req)
		if err != nil {
			got.raw = []byte(err.Error())
		}
		done <- got
	}()
	id := req.header["X-Request-Id"]
	eventually(t, id+" is parked", func() bool { return isParked(t, r, id) })
	return done
}

func isParked(t testing.TB, r *replica, id string) bool {
	t.Helper()
	return strings.Contains(string(get(t, r.admin+"/admin/pauses").raw), `"request_id":"`+id+`"`)
}

func deductUntilReleased(r *replica, id string, point stock.Point) request {
	return request{
		method: "POST", url: r.public + "/stock/deduct/none?goods_id=1&count=1",
		header: map[string]string{"X-Request-Id": id, "X-Pause": string(point)},
	}
}

func pausingReplica(t *testing.T) *replica {
	t.Helper()
	return newReplica(t, options{deps: stock.Deps{MySQL: database(t)}, pauses: true})
}

// The client would believe that the request was paused.
func TestAPauseIsRefusedIfTheReplicaHasNoPausePoints(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	for _, path := range []string{
		"/stock/deduct?goods_id=1&count=1", "/stock/orders/update", "/stock/reservations",
	} {
		req := request{method: "POST", url: r.public + path, header: map[string]string{"X-Pause": "after-read=1ms"}}
		switch path {
		case "/stock/orders/update":
			req.body = `{"lines":[{"goods_id":1,"count":1}]}`
		case "/stock/reservations":
			req.body = `{"goods_id":1,"count":1,"ttl_ms":60000}`
		}
		if got := do(t, req).want(t, 400, "malformed"); !strings.Contains(got.text(t, "detail"), "--pause-points") {
			t.Errorf("%s: %s", path, got.raw)
		}
	}
	if got := get(t, r.public+"/stock/1"); got.text(t, "stock") != "6000" {
		t.Errorf("the stock is %s, want 6000 as before", got.text(t, "stock"))
	}
}

// Two requests deduct one unit each, but only one unit is gone: the lost update of the strategy none.
func TestPausePointReplaysALostUpdate(t *testing.T) {
	t.Parallel()
	r := pausingReplica(t)
	first := park(t, r, deductUntilReleased(r, "first", stock.AfterRead))
	post(t, r.public+"/stock/deduct/none?goods_id=1&count=1", "").want(t, 200, "")
	do(t, request{method: "DELETE", url: r.admin + "/admin/pauses/first"}).want(t, 200, "")
	(<-first).want(t, 200, "")
	if got := get(t, r.public+"/stock/1"); got.text(t, "stock") != "5999" {
		t.Errorf("%s units are left, want 5999: one update lost", got.text(t, "stock"))
	}
}

func TestParkedRequestsAreListed(t *testing.T) {
	t.Parallel()
	r := pausingReplica(t)
	first := park(t, r, deductUntilReleased(r, "first", stock.AfterRead))
	second := park(t, r, deductUntilReleased(r, "second/of 2", stock.BeforeWrite).withID("second/of-2"))
	list := string(get(t, r.admin+"/admin/pauses").raw)
	i := strings.Index(list, `"request_id":"first","point":"after-read","goods_id":1`)
	j := strings.Index(list, `"request_id":"second/of-2","point":"before-write"`)
	if i < 0 || j < i {
		t.Errorf("the list is %s", list)
	}
	// An id with a slash has to be escaped in the path.
	do(t, request{method: "DELETE", url: r.admin + "/admin/pauses/second%2Fof-2"}).want(t, 200, "")
	(<-second).want(t, 200, "")
	if got := do(t, request{method: "DELETE", url: r.admin + "/admin/pauses"}); got.text(t, "released") != "1" {
		t.Errorf("released %s, want 1", got.text(t, "released"))
	}
	(<-first).want(t, 200, "")
	if list := string(get(t, r.admin+"/admin/pauses").raw); strings.TrimSpace(list) != "[]" {
		t.Errorf("the list is %s after the release", list)
	}
}

func (r request) withID(id string) request {
	r.header["X-Request-Id"] = id
	return r
}

func TestAPauseWithADurationEndsByItself(t *testing.T) {
	t.Parallel()
	r := pausingReplica(t)
	got := do(t, request{
		method: "POST", url: r.public + "/stock/deduct/none?goods_id=1&count=1",
		header: map[string]string{"X-Pause": "after-read=20ms"},
	}).want(t, 200, "")
	if held := got.json["held_us"].(float64); held < 20_000 {
		t.Errorf("held for %v us, want 20 ms or more", held)
	}
}

func TestParkedRequestIsReleasedWhenItsClientGoesAway(t *testing.T) {
	t.Parallel()
	r := pausingReplica(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan struct{})
	go func() {
		_, _ = try(ctx, deductUntilReleased(r, "impatient", stock.AfterRead))
		close(gone)
	}()
	eventually(t, "it is parked", func() bool { return isParked(t, r, "impatient") })
	leave()
	<-gone
	eventually(t, "it is released", func() bool { return !isParked(t, r, "impatient") })
	eventually(t, "it is counted as canceled", func() bool {
		return metric(t, r, `stock_deductions_total{outcome="canceled",store="mysql",strategy="none"}`) == "1"
	})
	if got := get(t, r.public+"/stock/1"); got.text(t, "stock") != "6000" {
		t.Errorf("%s units are left, want all 6000", got.text(t, "stock"))
	}
}

// A request that lost a race is retried and comes to the same pause point again.
func TestRetryIsNotParkedAgain(t *testing.T) {
	t.Parallel()
	r := pausingReplica(t)
	request := deductUntilReleased(r, "retry", stock.AfterRead)
	request.url = r.public + "/stock/deduct/optimistic-version?goods_id=1&count=1"
	parked := park(t, r, request)
	post(t, r.public+"/stock/deduct/optimistic-version?goods_id=1&count=1", "").want(t, 200, "")
	do(t, deleteAllPauses(r)).want(t, 200, "")
	got := (<-parked).want(t, 200, "")
	if got.text(t, "attempts") != "2" {
		t.Errorf("%s attempts, want 2", got.text(t, "attempts"))
	}
	if retries := metric(t, r, `stock_retries_total{store="mysql",strategy="optimistic-version"}`); retries != "1" {
		t.Errorf("stock_retries_total is %q, want 1", retries)
	}
}

func deleteAllPauses(r *replica) request {
	return request{method: "DELETE", url: r.admin + "/admin/pauses"}
}

func TestPausePointsDoNotExistUnlessEnabled(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	for _, method := range []string{"GET", "DELETE"} {
		do(t, request{method: method, url: r.admin + "/admin/pauses"}).want(t, 404, "not-found")
	}
	if list := fmt.Sprint(metric(t, r, "stock_parked_requests")); list != "" {
		t.Errorf("stock_parked_requests is %s", list)
	}
}
