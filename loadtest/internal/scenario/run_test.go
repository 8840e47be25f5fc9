package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// shop is a service in this process that does what a test wants of it. Its books are always right.
type shop struct {
	mu    sync.Mutex
	stock map[int64]int64

	takes    time.Duration                                  // each deduction, one at a time
	warmsUp  time.Duration                                  // takes longer by this in the warm-up
	before   func(w http.ResponseWriter, n int) (done bool) // the n-th deduction with abundance gone, from 1
	readings func(n int) int                                // the n-th reading of the stock: its status, or 0
	losesLot int                                            // the restock that is confirmed, and lost
	sales, n int
	restocks int

	writesBehind bool            // sells in redis, and every reading of mysql finds one more sale there
	told         map[int64]int64 // the stock in mysql
	neverTold    int64           // units of sales that do not reach it
	movedNS      int64           // when mysql moved last
	clock        func() int64
}

// abundant is more than any run of these tests is given, and less than a warm-up is.
const abundant = 1_000_000

func (s *shop) deduct(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		GoodsID int64 `json:"goods_id"`
		Count   int64 `json:"count"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	warmUp := s.stock[asked.GoodsID] > abundant
	if !warmUp {
		s.sales++
	}
	n := s.sales
	s.mu.Unlock()
	if !warmUp && s.before != nil && s.before(w, n) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(s.takes)
	if warmUp {
		time.Sleep(s.warmsUp)
	}
	left := s.stock[asked.GoodsID]
	if left < asked.Count {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"type":"/problems/sold-out","remaining":%d}`, left)
		return
	}
	s.stock[asked.GoodsID] = left - asked.Count
	fmt.Fprintf(w, `{"goods_id":%d,"count":%d,"remaining":%d}`, asked.GoodsID, asked.Count, left-asked.Count)
}

// take deducts behind everybody's back.
func (s *shop) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock[1]--
}

func (s *shop) set(w http.ResponseWriter, r *http.Request) {
	var level struct{ Stock int64 }
	if err := json.NewDecoder(r.Body).Decode(&level); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock[goods(r)], s.told[goods(r)] = level.Stock, level.Stock
}

// restock puts units back, and loses the n-th lot, from 1, where it is told to.
func (s *shop) restock(w http.ResponseWriter, r *http.Request) {
	var lot struct{ Count int64 }
	if err := json.NewDecoder(r.Body).Decode(&lot); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restocks++
	s.stock[goods(r)] += lot.Count
	fmt.Fprintf(w, `{"stock":%d}`, s.stock[goods(r)])
	if s.restocks == s.losesLot {
		s.stock[goods(r)] -= lot.Count
	}
}

func (s *shop) read(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if s.readings != nil {
		if status := s.readings(s.n); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	if s.writesBehind && r.URL.Query().Get("store") == "mysql" {
		if s.told[goods(r)]-s.neverTold > s.stock[goods(r)] {
			s.told[goods(r)]--
			s.movedNS = s.clock()
		}
		fmt.Fprintf(w, `{"stock":%d}`, s.told[goods(r)])
		return
	}
	fmt.Fprintf(w, `{"stock":%d}`, s.stock[goods(r)])
}

func goods(r *http.Request) (id int64) {
	fmt.Sscan(r.PathValue("id"), &id)
	return id
}

// open gives the shop an address, and a runner for it whose only strategy is correct on one replica.
func (s *shop) open(t *testing.T, config Config) *Runner {
	t.Helper()
	s.stock, s.told = map[int64]int64{1: 0}, map[int64]int64{1: 0}
	store := "mysql"
	if s.writesBehind {
		store = "redis"
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /stock/deduct", s.deduct)
	mux.HandleFunc("GET /stock/{id}", s.read)
	mux.HandleFunc("PUT /admin/stock/{id}", s.set)
	mux.HandleFunc("POST /admin/stock/{id}/restock", s.restock)
	// Replicas take turns.
	serve := func(replicas int64) *httptest.Server {
		var turn atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Replica", fmt.Sprint(turn.Add(1)%replicas))
			mux.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		return server
	}

	config.Choices = []Choice{{Strategy{
		Name: "any", Stores: []string{store}, Claim: Claim{OneReplica: "correct", TwoReplicas: "loses-updates", Exclusive: true},
		WriteBehind: s.writesBehind,
	}, store}}
	if config.Replicas == 0 {
		config.Replicas = 1
	}
	if config.Timeout == 0 {
		config.Timeout = time.Minute
	}
	config.Rounds, config.Users, config.Goods, config.MinCount, config.MaxCount = 1, 8, 1, 1, 1
	config.WarmUp, config.Dir = 50*time.Millisecond, t.TempDir()
	server := serve(int64(config.Replicas))
	target := Target{Service: Service{URL: server.URL, Admin: server.URL, Client: server.Client()}, Alone: serve(1).URL}
	runner, err := New(target, config, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.clock = monotonic.Now
	runner.patient = patience{glance: 5 * time.Millisecond, still: 50 * time.Millisecond, service: 500 * time.Millisecond, limit: time.Second}
	return runner
}

func runAll(t *testing.T, r *Runner) map[string]Measured {
	t.Helper()
	all := map[string]Measured{}
	err := r.Run(t.Context(), func(m Measured) error {
		all[fmt.Sprintf("%s on %d", m.History.Run.Workload.Name, m.History.Run.Replicas)] = m
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// onDisk reads all histories of a runner.
func onDisk(t *testing.T, r *Runner) (all []*history.History) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(r.config.Dir, "history", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		h, err := history.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

func TestRunnerDoesAllThatItPlansAndKeepsIt(t *testing.T) {
	t.Parallel()
	runner := (&shop{}).open(t, Config{Requests: 400, Replicas: 2})
	all := runAll(t, runner)
	if len(all) != 4 {
		t.Fatalf("%d runs, want two workloads on one replica and on two", len(all))
	}
	for name, m := range all {
		if m.Verdict.Result != verify.Correct || m.Verdict.Requests != 400 || m.History.Run.Bounded != "" {
			t.Errorf("%s: %s after %d requests %s, want correct after 400: %v", name, m.Verdict.Result, m.Verdict.Requests,
				m.History.Run.Bounded, m.Verdict.Evidence)
		}
		scarce := m.History.Run.Workload.Name == FlashSale
		if m.History.Run.Scarce != scarce || m.Verdict.DemandExceeded != scarce {
			t.Errorf("%s: scarce %v, demand exceeded %v, want %v", name, m.History.Run.Scarce, m.Verdict.DemandExceeded, scarce)
		}
		// Two mutexes in two processes exclude nobody.
		if exclusive := m.History.Run.Replicas == 1; m.History.Run.Exclusive != exclusive {
			t.Errorf("%s: exclusive %v, want %v", name, m.History.Run.Exclusive, exclusive)
		}
	}
	var kept []history.Cell
	for _, h := range onDisk(t, runner) {
		kept = append(kept, h.Run.Cell)
		if h.End == nil || len(h.Ops) != 400 {
			t.Errorf("%v: %d requests on disk, end %v, want 400 and an end", h.Run.Cell, len(h.Ops), h.End)
		}
	}
	if plan := runner.Plan(); !slices.Equal(plan, kept) {
		t.Errorf("planned %v\nkept    %v", plan, kept)
	}
}

// The shop is slow only while its rate is measured. The rest then takes no time worth speaking of, and how many requests fit
// into the budget does not depend on how busy the machine is.
func TestSlowStrategyIsBoundedByTheBudget(t *testing.T) {
	t.Parallel()
	const budget, takes = 10 * time.Second, 10 * time.Millisecond
	runner := (&shop{warmsUp: takes}).open(t, Config{Requests: 6000, Budget: budget})
	all := runAll(t, runner)
	most := int(budget / takes / 2) // at the best rate that the shop can have shown, in half of the budget
	for _, cell := range runner.Plan() {
		name := cell.Workload.Name + " on 1"
		m := all[name]
		requests := len(m.History.Ops)
		if requests < leastRequests || requests > most || !strings.Contains(m.History.Run.Bounded, "of 6 000 requests") {
			t.Errorf("%s: %d requests, bounded %q: want from %d to %d, and the reason", name, requests, m.History.Run.Bounded, leastRequests, most)
		}
		most *= 2 // the second run may have what the first one has left, which is nearly all
		if m.Verdict.Result != verify.Correct {
			t.Errorf("%s: %s: %v", name, m.Verdict.Result, m.Verdict.Evidence)
		}
	}
	if flash := all["flash-sale on 1"]; !flash.Verdict.DemandExceeded {
		t.Error("the bounded flash sale does not sell out")
	}
}

func TestFlashSaleByDurationSellsOutAlsoWhenTheServiceIsSlowerThanItWas(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"closed loop": 0, "open loop beyond what the service can do": 3000} {
		s := &shop{takes: 5 * time.Millisecond}                                                            // long beside what a busy machine adds
		s.before = func(http.ResponseWriter, int) bool { time.Sleep(60 * time.Millisecond); return false } // not in the warm-up
		m := runAll(t, s.open(t, Config{Duration: time.Second, Rate: rate}))["flash-sale on 1"]
		if !m.Verdict.DemandExceeded {
			t.Errorf("%s: %d of %d units sold, want all", name, m.Verdict.Sold, m.Verdict.Initial)
		}
	}
}

func TestEffectOfARequestThatNobodyWaitsForIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := &shop{}
	done := make(chan struct{})
	s.before = func(w http.ResponseWriter, n int) bool {
		if n == 300 {
			// The client gives up long before, and the stock does not move for much longer than "still".
			time.Sleep(600 * time.Millisecond)
			s.take()
			close(done)
		}
		return n == 300
	}
	runner := s.open(t, Config{Requests: 300, Stock: 1000, Timeout: 200 * time.Millisecond})
	runner.patient.service, runner.patient.limit = time.Second, 5*time.Second
	m := runAll(t, runner)["given-stock on 1"]
	if m.Verdict.Outcomes[history.Unknown] == 0 {
		t.Fatal("no outcome is unknown")
	}
	<-done
	if !maps.Equal(m.History.End.Final, s.stock) {
		t.Errorf("the stock was read as %v, and came to rest at %v", m.History.End.Final, s.stock)
	}
}

func TestStockThatStillMovesIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := &shop{}
	s.before = func(w http.ResponseWriter, n int) bool {
		if n != 300 {
			return false
		}
		// Every buyer has an answer, and the last unit goes a little later.
		go func() {
			for range 10 {
				time.Sleep(3 * time.Millisecond)
				s.take()
			}
		}()
		return false
	}
	m := runAll(t, s.open(t, Config{Requests: 300, Stock: 1000}))["given-stock on 1"]
	if want := map[int64]int64{1: 690}; !maps.Equal(m.History.End.Final, want) {
		t.Errorf("the stock was read as %v, want %v", m.History.End.Final, want)
	}
}

func TestRestocksAreTrafficAndALostOneIsFound(t *testing.T) {
	t.Parallel()
	for lost, want := range map[int]verify.Result{0: verify.Correct, 2: verify.Wrong} {
		s := &shop{takes: time.Millisecond, losesLot: lost}
		m := runAll(t, s.open(t, Config{Requests: 300, Stock: 300, Restock: 7}))["given-stock on 1"]
		if m.Verdict.Result != want || m.Verdict.Restocked < 7 || m.Verdict.Leaked != int64(lost*7/2) {
			t.Errorf("%s, %d restocked, %d leaked, want %s: %v", m.Verdict.Result, m.Verdict.Restocked, m.Verdict.Leaked, want, m.Verdict.Evidence)
		}
		if m.History.Run.Restock != 7 {
			t.Errorf("the history says that %d units were put back each time, want 7", m.History.Run.Restock)
		}
		h, err := history.Read(m.Path)
		if err != nil {
			t.Fatal(err)
		}
		if again := verify.Judge(h); again.Result != want || again.Restocked != m.Verdict.Restocked {
			t.Errorf("judged again: %s, %d restocked", again.Result, again.Restocked)
		}
	}
}

// Sales that are not durable yet are not made: the run lasts until they are, however long that takes.
func TestRunOfAStrategyThatWritesBehindLastsUntilAllIsWritten(t *testing.T) {
	t.Parallel()
	s := &shop{writesBehind: true}
	runner := s.open(t, Config{Requests: 300, Stock: 1000})
	runner.patient.limit = 50 * time.Millisecond // to write it all takes much longer
	m := runAll(t, runner)["given-stock on 1"]
	if m.Verdict.Result != verify.Correct || m.Verdict.Good != 300 {
		t.Errorf("%s, %d units: %v", m.Verdict.Result, m.Verdict.Good, m.Verdict.Evidence)
	}
	if m.History.End.EndedNS < s.movedNS {
		t.Errorf("the run ended %v before its last sale was durable", time.Duration(s.movedNS-m.History.End.EndedNS))
	}
}

func TestSalesThatAreNeverWrittenAreLost(t *testing.T) {
	t.Parallel()
	s := &shop{writesBehind: true, neverTold: 5}
	runner := s.open(t, Config{Requests: 300, Stock: 1000})
	runner.patient.limit = 50 * time.Millisecond
	m := runAll(t, runner)["given-stock on 1"]
	if !maps.Equal(m.History.End.Seller, map[int64]int64{1: 700}) || !maps.Equal(m.History.End.Final, map[int64]int64{1: 705}) {
		t.Errorf("the stores were read as %v and %v, want 700 and 705 units", m.History.End.Seller, m.History.End.Final)
	}
	if m.Verdict.Result != verify.Wrong || m.Verdict.LostUpdates != 5 || m.History.End.EndedNS < s.movedNS {
		t.Errorf("%s, %d lost, ended %d, last moved %d: %v", m.Verdict.Result, m.Verdict.LostUpdates, m.History.End.EndedNS, s.movedNS, m.Verdict.Evidence)
	}
}

// A service that remembers orders would give the answers of the first run again.
func TestOrdersOfASecondRunWithTheSameSeedAreNew(t *testing.T) {
	t.Parallel()
	s := &shop{}
	seen := map[string]bool{}
	for range 2 {
		m := runAll(t, s.open(t, Config{Requests: 300, Stock: 1000, Seed: 7}))["given-stock on 1"]
		for _, op := range m.History.Ops {
			if seen[op.Order] {
				t.Fatalf("order %s is in both", op.Order)
			}
			seen[op.Order] = true
		}
	}
}

func TestStockThatNeverComesToRestIsNoEvidence(t *testing.T) {
	t.Parallel()
	s := &shop{}
	s.readings = func(int) int { s.stock[1]--; return 0 }
	m := runAll(t, s.open(t, Config{Requests: 300, Stock: 1000, Timeout: 100 * time.Millisecond}))["given-stock on 1"]
	if m.History.End == nil || m.History.End.Final != nil || m.Verdict.Result != verify.Inconclusive {
		t.Errorf("end %+v, %s: want no final stock and no verdict", m.History.End, m.Verdict.Result)
	}
}

func TestInterruptedRunLeavesWhatItKnows(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	died := errors.New("a server died")
	s := &shop{}
	var runner *Runner
	s.before = func(_ http.ResponseWriter, n int) bool {
		switch {
		case n == 1:
			// A kill at this moment would leave just this.
			if all := onDisk(t, runner); len(all) != 1 || all[0].Run.Strategy != "any" || all[0].End != nil {
				t.Errorf("on disk are %v while the first run is under way, want its beginning", all)
			}
		case n == 200:
			cancel(died)
		}
		return false
	}
	runner = s.open(t, Config{Requests: 1_000_000, Stock: abundant})
	began := time.Now()
	err := runner.Run(ctx, func(Measured) error { t.Error("half a run was judged"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the run ends with %v, want the context's error", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if all := onDisk(t, runner); len(all) != 1 || all[0].End != nil || len(all[0].Ops) < 190 {
		t.Errorf("on disk are %d histories: want one with its requests and without an end", len(all))
	}
}

func TestFailedReadingKeepsTheHistory(t *testing.T) {
	t.Parallel()
	s := &shop{}
	s.readings = func(n int) int {
		if n > 1 {
			return http.StatusInternalServerError
		}
		return 0
	}
	runner := s.open(t, Config{Requests: 300})
	err := runner.Run(t.Context(), func(Measured) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "500") || !strings.Contains(err.Error(), "round 1") {
		t.Errorf("the run ends with %v, want what failed, and where", err)
	}
	if all := onDisk(t, runner); len(all) != 1 || all[0].End != nil || len(all[0].Ops) != 300 {
		t.Errorf("on disk are %d histories: want one with its requests and without an end", len(all))
	}
}

func TestFoundStockIsSharedAmongTheRuns(t *testing.T) {
	t.Parallel()
	s := &shop{takes: 100 * time.Microsecond}
	runner := s.open(t, Config{Requests: 1000})
	target := runner.target
	target.Admin = ""
	for _, test := range []struct {
		units    int64
		requests int
		duration time.Duration
		want     int // requests; 0: as many as fit
		bounded  string
	}{
		{400, 1000, 0, 400, "400 of 1 000 requests: this run's share of the stock found"},
		{400, 0, 20 * time.Second, 400, "of 20.0 s: this run's share of the stock found"},
		{1 << 50, 0, 100 * time.Millisecond, 0, ""}, // to count so many orders would take for ever
	} {
		s.stock[1] = test.units
		config := runner.config
		config.Requests, config.Duration, config.Budget, config.Dir = test.requests, test.duration, time.Minute, t.TempDir()
		r, err := New(target, config, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m := runAll(t, r)["found-stock on 1"]
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%d units: it took %v", test.units, took)
		}
		if n := len(m.History.Ops); test.want > 0 && n != test.want || !strings.HasSuffix(m.History.Run.Bounded, test.bounded) ||
			test.bounded == "" && m.History.Run.Bounded != "" {
			t.Errorf("%d units: %d requests, bounded %q, want %d, %q", test.units, n, m.History.Run.Bounded, test.want, test.bounded)
		}
	}
}

func TestRefusedStrategyIsAnError(t *testing.T) {
	t.Parallel()
	s := &shop{}
	s.before = func(w http.ResponseWriter, _ int) bool { w.WriteHeader(http.StatusForbidden); return true }
	runner := s.open(t, Config{Requests: 10})
	err := runner.Run(t.Context(), func(Measured) error { t.Error("it was judged"); return nil })
	if err == nil || !strings.Contains(err.Error(), "refuses every request: 403") {
		t.Errorf("the run ends with %v, want that every request was refused", err)
	}
	if _, err := os.Stat(filepath.Join(runner.config.Dir, "history")); err != nil {
		t.Errorf("the history is not kept: %v", err)
	}
}
