package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/history"
)

// serve starts a server with the handler, and a driver for it.
func serve(t testing.TB, users int, handler http.HandlerFunc) *Driver {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return drive(t, server.URL, users)
}

func drive(t testing.TB, base string, users int) *Driver {
	t.Helper()
	driver, err := NewDriver(users, base)
	must.Succeed(t, err)
	t.Cleanup(driver.Close)
	return driver
}

type deduction struct {
	GoodsID  int64  `json:"goods_id"`
	Count    int64  `json:"count"`
	Strategy string `json:"strategy"`
	Store    string `json:"store"`
	HoldMS   int64  `json:"hold_ms"`
}

// sell confirms a deduction as the service does.
func sell(w http.ResponseWriter, r *http.Request) {
	var asked deduction
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Replica", "one")
	w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
	fmt.Fprintf(w, `{"goods_id":%d,"count":%d,"remaining":41,"strategy":%q,"store":%q,"replica":"one","request_id":%q,`+
		`"attempts":2,"token":9,"waited_us":30,"held_us":40,"entered_ns":50,"left_ns":60}`,
		asked.GoodsID, asked.Count, asked.Strategy, asked.Store, r.Header.Get("X-Request-Id"))
}

// send sends a load to its end. It asks for units of one item unless the load has a mix.
func send(t testing.TB, driver *Driver, load Load) Result {
	t.Helper()
	load.Mix = cmp.Or(load.Mix, one(t))
	load.Timeout = cmp.Or(load.Timeout, time.Minute)
	result, err := driver.Run(t.Context(), load)
	must.Succeed(t, err)
	return result
}

// answerOf sends one request, and returns what is recorded of it.
func answerOf(t *testing.T, driver *Driver) history.Op {
	t.Helper()
	return send(t, driver, Load{Users: 1, Requests: 1, RequestPrefix: "t"}).Ops[0]
}

func one(t testing.TB) *Mix { return newMix(t, MixConfig{Goods: 1, MinCount: 1, MaxCount: 1}) }

func TestClosedLoopSendsEachRequestOnce(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	var received atomic.Int64
	driver := serve(t, 16, func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
		if _, again := seen.LoadOrStore(r.Header.Get("X-Request-Id"), true); again {
			t.Errorf("request %s was sent twice", r.Header.Get("X-Request-Id"))
		}
		sell(w, r)
	})
	var answered atomic.Int64
	mix := newMix(t, MixConfig{Seed: 5, Goods: 3, MinCount: 1, MaxCount: 3})
	result := send(t, driver, Load{
		Strategy: "update", Mix: mix, Users: 16, Requests: 1000,
		RequestPrefix: "t", Answered: &answered,
	})
	if len(result.Ops) != 1000 || received.Load() != 1000 || answered.Load() != 1000 {
		t.Errorf("%d recorded, %d received, %d counted, want 1000 each", len(result.Ops), received.Load(), answered.Load())
	}
	demand := mix.Demand(1000)
	for i, op := range result.Ops {
		demand[op.GoodsID] -= op.Count
		if op.Outcome != history.Sold {
			t.Fatalf("request %s: %s %s, want sold", op.Name, op.Outcome, op.Error)
		}
		if op.SentNS < result.StartedNS || op.ReceivedNS < op.SentNS || op.ReceivedNS > result.EndedNS {
			t.Fatalf("request %s: sent %d, received %d, outside of the run %d-%d",
				op.Name, op.SentNS, op.ReceivedNS, result.StartedNS, result.EndedNS)
		}
		if i > 0 && op.SentNS < result.Ops[i-1].SentNS {
			t.Fatal("operations are not sorted by the time of sending")
		}
	}
	for goodsID, units := range demand {
		if units != 0 {
			t.Errorf("item %d: demand and requests differ by %d", goodsID, units)
		}
	}
	if result.OutOfTime {
		t.Error("a complete run reports that it was out of time")
	}
}

func TestRequestFollowsItsLoad(t *testing.T) {
	t.Parallel()
	driver := serve(t, 1, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		const want = `{"strategy":"for-update","store":"redis","hold_ms":2,"goods_id":1,"count":3}`
		if r.Method != http.MethodPost || r.URL.Path != "/stock/deduct" || string(body) != want {
			t.Errorf("%s %s %s, want POST /stock/deduct %s", r.Method, r.URL.Path, body, want)
		}
	})
	mix := newMix(t, MixConfig{Goods: 1, MinCount: 3, MaxCount: 3})
	send(t, driver, Load{
		Strategy: "for-update", Store: "redis", Hold: 2 * time.Millisecond, Mix: mix, Users: 1, Requests: 1,
	})
}

func TestEveryMemberOfAReceiptIsRecorded(t *testing.T) {
	t.Parallel()
	got := answerOf(t, serve(t, 1, sell))
	want := history.Op{
		Kind: history.Deduct, Name: "t-0", GoodsID: 1, Count: 1, SentNS: got.SentNS, ReceivedNS: got.ReceivedNS,
		Status: 200, Outcome: history.Sold, Remaining: 41, Replica: "one", RequestID: "t-0", Attempts: 2, Token: 9,
		WaitedUS: 30, HeldUS: 40, EnteredNS: 50, LeftNS: 60,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("recorded %+v\nwant     %+v", got, want)
	}
}

func TestOutcomeFollowsStatusAndProblemType(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		body   string
		want   history.Outcome
		error  string
	}{
		{200, `{"goods_id":1,"count":1,"remaining":0}`, history.Sold, ""},
		{200, `{"goods_id":1}`, history.Unknown, "the receipt does not match the request"},
		{200, `{"goods_id":2,"count":1,"remaining":0}`, history.Unknown, "the receipt does not match the request"},
		{200, `<html>`, history.Unknown, "the receipt does not match the request"},
		{409, `{"type":"/problems/sold-out","remaining":0}`, history.SoldOut, "/problems/sold-out"},
		{409, `{"type":"/problems/in-progress"}`, history.Busy, "/problems/in-progress"},
		{404, `{"type":"/problems/unknown-goods"}`, history.Rejected, "/problems/unknown-goods"},
		{503, `{"type":"/problems/busy"}`, history.Busy, "/problems/busy"},
		{503, `{"type":"/problems/unavailable"}`, history.Busy, "/problems/unavailable"},
		{503, `<html>`, history.Unknown, "Service Unavailable"},
		{500, `{"type":"/problems/outcome-unknown"}`, history.Unknown, "/problems/outcome-unknown"},
		{502, `<html>`, history.Unknown, "Bad Gateway"},
		// What a malformed reply begins with promises nothing.
		{503, `{"type":"/problems/busy"} and more`, history.Unknown, "Service Unavailable"},
		{503, `{"type":"/problems/busy"`, history.Unknown, "Service Unavailable"},
		{409, `{"type":"/problems/sold-out","remaining":0,`, history.Rejected, "Conflict"},
		{503, `{"type":"/problems/busy","type":"/problems/busy"}`, history.Unknown, "Service Unavailable"},
		{307, ``, history.Unknown, "Temporary Redirect"},
	} {
		t.Run(fmt.Sprintf("%d %s", test.status, test.body), func(t *testing.T) {
			t.Parallel()
			driver := serve(t, 1, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.body)
			})
			op := answerOf(t, driver)
			if op.Outcome != test.want || op.Error != test.error || op.Status != test.status {
				t.Errorf("status %d, outcome %s, error %q, want %d, %s, %q",
					op.Status, op.Outcome, op.Error, test.status, test.want, test.error)
			}
		})
	}
}

// Whether the strategy may leave it out is for the judge to decide.
func TestReceiptMayLeaveOutWhatRemains(t *testing.T) {
	t.Parallel()
	for body, omitting := range map[string]bool{
		`{"goods_id":1,"count":1}`:                  true,
		`{"goods_id":1,"count":1,"remaining":null}`: true,
		`{"goods_id":1,"count":1,"remaining":0}`:    false,
	} {
		driver := serve(t, 1, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
		if op := answerOf(t, driver); op.Outcome != history.Sold || op.OmitsRemaining != omitting || op.Remaining != 0 {
			t.Errorf("%s: %s, omitting is %t, %d remaining", body, op.Outcome, op.OmitsRemaining, op.Remaining)
		}
	}
}

// The server answers once on each connection and closes it when the second request arrives. In this situation,
// net/http would send a request again that it considers safe, or that has an Idempotency-Key. The history would not
// show it.
func TestRequestOnABrokenConnectionIsUnknownAndNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, keys := range []bool{false, true} {
		var received atomic.Int64
		var perConnection sync.Map
		driver := serve(t, 1, func(w http.ResponseWriter, r *http.Request) {
			received.Add(1)
			if _, second := perConnection.LoadOrStore(r.RemoteAddr, true); second {
				panic(http.ErrAbortHandler)
			}
			sell(w, r)
		})
		load := Load{Mix: one(t), Users: 1, Requests: 10, Timeout: time.Minute, Keys: keys, RequestPrefix: "t"}
		result := send(t, driver, load)
		unknown := 0
		for _, op := range result.Ops {
			if op.Outcome == history.Unknown {
				unknown++
				if op.Error == "" || op.Status != 0 {
					t.Errorf("status %d, error %q, want no status and a reason", op.Status, op.Error)
				}
			}
		}
		if received.Load() != 10 || unknown != 5 {
			t.Errorf("%d requests received, %d outcomes unknown, want 10 and 5", received.Load(), unknown)
		}
		driver.SendAgain(t.Context(), load, &result)
		if n := received.Load(); int(n) != len(result.Ops) || result.Sent != 10 || n == 10 {
			t.Errorf("%d requests received, %d recorded, %d of the load: want all, of which 10 are the load", n,
				len(result.Ops), result.Sent)
		}
	}
}

func TestReplyThatIsCutShortOrTooLargeIsUnknown(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"cut short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"goods_id":1,"count":1,"remaining":0}`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"a large body": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(" ", maxReply)+`{"goods_id":1,"count":1,"remaining":0}`)
		},
		"a large header": func(w http.ResponseWriter, r *http.Request) {
			for i := range 8 {
				w.Header().Set(fmt.Sprintf("X-Filler-%d", i), strings.Repeat("x", maxHeader/8))
			}
			sell(w, r)
		},
	} {
		if op := answerOf(t, serve(t, 1, handler)); op.Outcome != history.Unknown || op.Error == "" {
			t.Errorf("%s: outcome %s, error %q, want unknown and a reason", name, op.Outcome, op.Error)
		}
	}
}

func TestTimeoutAndRefusedConnectionAreUnknown(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	driver := serve(t, 2, func(http.ResponseWriter, *http.Request) { <-release })
	result := send(t, driver, Load{Users: 2, Requests: 2, Timeout: 20 * time.Millisecond})
	close(release)
	for _, op := range result.Ops {
		if op.Outcome != history.Unknown || op.Error != "timeout" {
			t.Errorf("outcome %s, error %q, want unknown, timeout", op.Outcome, op.Error)
		}
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	address := listener.Addr().String()
	listener.Close()
	if op := answerOf(t, drive(t, "http://"+address, 1)); op.Outcome != history.Unknown || op.Error == "" {
		t.Errorf("outcome %s, error %q, want unknown and a reason", op.Outcome, op.Error)
	}
}

func TestLoadThatRunsOutOfTimeReportsIt(t *testing.T) {
	t.Parallel()
	driver := serve(t, 4, sell)
	result := send(t, driver, Load{Users: 4, Requests: 1 << 40, Duration: 200 * time.Millisecond})
	if !result.OutOfTime || len(result.Ops) == 0 {
		t.Errorf("out of time %v after %d requests, want true after some", result.OutOfTime, len(result.Ops))
	}
	for _, op := range result.Ops {
		if op.SentNS-result.StartedNS > int64(5*time.Second) || op.Outcome != history.Sold {
			t.Fatalf("%s sent %v after the start: %s", op.Name, time.Duration(op.SentNS-result.StartedNS), op.Outcome)
		}
	}
}

func TestOpenLoopKeepsItsScheduleWhileTheServiceStalls(t *testing.T) {
	t.Parallel()
	const users, requests = 4, 20
	release := make(chan struct{})
	var received atomic.Int64
	driver := serve(t, users, func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
		<-release
		sell(w, r)
	})
	// The service answers after the whole schedule is over, so every request beyond the number of clients is dropped.
	const rate = 1000
	time.AfterFunc(time.Second, func() { close(release) })
	result := send(t, driver, Load{Users: users, Rate: rate, Requests: requests})
	if len(result.Ops) != users || received.Load() != users || result.Dropped != requests-users {
		t.Errorf("%d sent, %d received, %d dropped, want %d, %d, %d",
			len(result.Ops), received.Load(), result.Dropped, users, users, requests-users)
	}
	if result.OutOfTime {
		t.Error("a load that dropped requests reports that it was out of time")
	}
	slices.SortFunc(result.Ops, func(a, b history.Op) int { return int(a.IntendedNS - b.IntendedNS) })
	for i, op := range result.Ops {
		if want := result.StartedNS + int64(i)*int64(time.Second/rate); op.IntendedNS != want {
			t.Errorf("request %d intended for %d, want %d", i, op.IntendedNS, want)
		}
		if op.SentNS < op.IntendedNS {
			t.Errorf("request %d sent before its time", i)
		}
		if late := time.Duration(op.SentNS - op.IntendedNS); late > result.MaxLag {
			t.Errorf("request %d was %v late, but the largest lag is %v", i, late, result.MaxLag)
		}
	}
}

func TestCancellationCutsOffRequestsInFlight(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 1000} {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		var received atomic.Int64
		driver := serve(t, 3, func(http.ResponseWriter, *http.Request) {
			if received.Add(1) == 3 {
				cancel()
			}
			<-release
		})
		result, err := driver.Run(ctx, Load{Mix: one(t), Users: 3, Rate: rate, Requests: 1000, Timeout: time.Minute})
		close(release)
		cancel()
		must.Succeed(t, err)
		if len(result.Ops) != 3 {
			t.Errorf("rate %g: %d requests recorded, want the 3 in flight", rate, len(result.Ops))
		}
		for _, op := range result.Ops {
			if op.Outcome != history.Unknown || op.Error != "cancelled" {
				t.Errorf("rate %g: outcome %s, error %q, want unknown, cancelled", rate, op.Outcome, op.Error)
			}
		}
		if result.OutOfTime {
			t.Errorf("rate %g: a cancelled load reports that it was out of time", rate)
		}
	}
}

// canned serves the same reply to every request, without an allocation, so that only the driver's cost counts. It
// returns its URL.
func canned(tb testing.TB) string {
	tb.Helper()
	const body = `{"goods_id":1,"count":1,"remaining":41,"strategy":"update","store":"mysql","replica":"one",` +
		`"request_id":"bench-123456","attempts":1,"token":0,"waited_us":30,"held_us":40,"entered_ns":501234567890123,` +
		`"left_ns":501234567990123}`
	reply := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: application/json\r\n"+
		"X-Replica: one\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return accept(tb, func(conn net.Conn) {
		request := make([]byte, 4096) // more than a request, which arrives in one piece
		for {
			if _, err := conn.Read(request); err != nil {
				return
			}
			if _, err := conn.Write(reply); err != nil {
				return
			}
		}
	})
}

// accept starts a server that handles each connection, and returns its URL.
func accept(tb testing.TB, handle func(net.Conn)) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(tb, err)
	tb.Cleanup(func() { listener.Close() })
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}
