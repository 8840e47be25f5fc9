package traffic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"stock/loadtest/internal/history"
)

// desk takes reservations of one item, as the service does. Nothing of it lasts.
type desk struct {
	mu    sync.Mutex
	free  int64
	held  map[string]*reply // by id
	byKey map[string]string // id
	// lose is called with the number of each request, from 1: if it returns true, the client gets no reply.
	lose     func(n int) bool
	requests int
	paths    []string
}

func newDesk(free int64) *desk {
	return &desk{free: free, held: map[string]*reply{}, byKey: map[string]string{}}
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	d.paths = append(d.paths, r.Method+" "+r.URL.String())
	for _, held := range d.held {
		if held.State == history.Held && !time.Now().Before(held.ExpiresAt) {
			held.State = history.Expired
			d.free += held.Count
		}
	}
	status, answer := d.answer(r)
	if d.lose != nil && d.lose(d.requests) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Replica", "one")
	w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
	w.WriteHeader(status)
	body, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(body)
}

func (d *desk) answer(r *http.Request) (status int, answer reply) {
	if r.URL.Path == reservationsPath {
		return d.hold(r)
	}
	id, action, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, reservationsPath+"/"), "/")
	held := d.held[id]
	switch {
	case held == nil:
		return http.StatusNotFound, reply{Type: history.ProblemUnknownHold}
	case action == "confirm" && held.State == history.Held:
		held.State, held.EndedAt = history.Confirmed, time.Now()
	case action == "confirm" && held.State != history.Confirmed:
		return http.StatusConflict, reply{Type: "/problems/reservation-" + held.State}
	case r.Method == http.MethodDelete && held.State == history.Held:
		held.State, held.EndedAt = history.Cancelled, time.Now()
		d.free += held.Count
	case r.Method == http.MethodDelete && held.State == history.Confirmed:
		return http.StatusConflict, reply{Type: history.ProblemConfirmed}
	}
	return http.StatusOK, *held
}

func (d *desk) hold(r *http.Request) (status int, answer reply) {
	var asked struct {
		Strategy string `json:"strategy"`
		GoodsID  int64  `json:"goods_id"`
		Count    int64  `json:"count"`
		TTLMS    int64  `json:"ttl_ms"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Strategy != "reserve" {
		return http.StatusBadRequest, reply{}
	}
	key := r.Header.Get("Idempotency-Key")
	if id := d.byKey[key]; id != "" {
		return http.StatusCreated, *d.held[id]
	}
	if d.free < asked.Count {
		return http.StatusConflict, reply{Type: problemSoldOut, Remaining: &d.free}
	}
	d.free -= asked.Count
	now := time.Now()
	held := &reply{
		ID: fmt.Sprintf("id-%d", len(d.held)), State: history.Held, GoodsID: asked.GoodsID, Count: asked.Count,
		CreatedAt: now, ExpiresAt: now.Add(time.Duration(asked.TTLMS) * time.Millisecond),
	}
	d.held[held.ID] = held
	if key != "" {
		d.byKey[key] = held.ID
	}
	return http.StatusCreated, *held
}

func reservationLoad(t *testing.T, requests int) Load {
	t.Helper()
	return Load{
		Strategy: "reserve", Mix: newMix(t, MixConfig{Goods: 1, MinCount: 1, MaxCount: 2}), Users: 16,
		Requests: requests, Timeout: time.Minute, RequestPrefix: "t",
		HoldFor: 20 * time.Millisecond,
	}
}

func TestBuyersHoldAndConfirmAndCancelInEveryWay(t *testing.T) {
	t.Parallel()
	d := newDesk(1000)
	driver := serve(t, 16, d.ServeHTTP)
	load := reservationLoad(t, 2*len(habits))
	result := send(t, driver, load)
	if result.Sent != load.Requests || result.OutOfTime {
		t.Fatalf("%d buyers, out of time %v", result.Sent, result.OutOfTime)
	}
	driver.ReadReservations(t.Context(), load, &result)
	if len(result.Ops) != d.requests {
		t.Errorf("%d requests are recorded, and %d were received", len(result.Ops), d.requests)
	}
	seen := map[string]int{}
	last := int64(0)
	for _, c := range result.Ops {
		if c.SentNS < last || c.ReceivedNS < c.SentNS || c.GoodsID != 1 || c.Replica != "one" || c.RequestID == "" {
			t.Errorf("after %d: %+v", last, c)
		}
		last = c.SentNS
		seen[fmt.Sprintf("%s %s%s", c.Kind, c.Outcome, strings.TrimPrefix(c.Error, "/problems/reservation"))]++
	}
	for _, want := range []string{
		"hold done", "confirm done", "confirm refused-expired", "confirm refused-cancelled", "cancel done",
		"cancel refused-confirmed", "inspect done",
	} {
		if seen[want] == 0 {
			t.Errorf("no %s among %v", want, seen)
		}
	}
	for _, path := range d.paths {
		if id := strings.Contains(path, "/id-"); id != strings.HasSuffix(path, "?strategy=reserve") {
			t.Errorf("%s: without the strategy", path)
		}
	}
}

func TestARefusedBuyerComesAgainUnderANewName(t *testing.T) {
	t.Parallel()
	d := newDesk(4)
	driver := serve(t, 16, d.ServeHTTP)
	result := send(t, driver, reservationLoad(t, 30))
	first, refused := map[string]bool{}, 0
	for _, c := range result.Ops {
		if c.Kind != history.Hold {
			continue
		}
		if first[c.Name] == !c.Again && !c.Keyed {
			t.Errorf("hold %s, sent again %v, was named before: %v", c.Name, c.Again, first[c.Name])
		}
		first[c.Name] = true
		if c.Outcome == history.SoldOut {
			refused++
		}
	}
	if refused < 10 || len(first) <= 30 {
		t.Errorf("%d were refused, and %d holds were sent", refused, len(first))
	}
}

func TestAClientAsksUntilItKnowsWhatBecameOfItsReservation(t *testing.T) {
	t.Parallel()
	d := newDesk(1000)
	d.lose = func(n int) bool { return n%3 == 0 }
	driver := serve(t, 16, d.ServeHTTP)
	result := send(t, driver, reservationLoad(t, 2*len(habits)))
	unknown, known := map[string]bool{}, map[string]bool{}
	for _, c := range result.Ops {
		call := c.Kind + " " + c.Name
		if c.Kind == history.Confirm && c.Outcome == history.Unknown {
			unknown[call] = true
		} else if c.Outcome != history.Unknown {
			known[call] = true
		}
	}
	if len(unknown) == 0 {
		t.Error("no confirmation was lost")
	}
	for call := range unknown {
		if !known[call] {
			t.Errorf("nobody knows what became of %s", call)
		}
	}
}

func TestAReplyForAnotherReservationConfirmsNothing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		``, `{}`, `{"id":"id-0","state":"held","goods_id":8,"count":1,"created_at":"2026-01-02T03:04:05Z",` +
			`"expires_at":"2026-01-02T03:04:06Z"}`,
	} {
		driver := serve(t, 16, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, body)
		})
		load := reservationLoad(t, 2)
		load.Mix = newMix(t, MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
		result := send(t, driver, load)
		if len(result.Ops) == 0 {
			t.Fatal("no calls")
		}
		for _, c := range result.Ops {
			if c.Outcome != history.Unknown || c.Error != history.Mismatch {
				t.Errorf("%q: %+v", body, c)
			}
		}
	}
}
