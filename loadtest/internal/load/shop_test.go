package load

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/monotonic"
	"stock/internal/must"
	"stock/loadtest/internal/history"
)

// shop is a service under test, inside this process, that misbehaves as a test demands.
type shop struct {
	mu    sync.Mutex
	stock map[int64]int64

	takes       time.Duration // per deduction, which run one at a time
	warmUpTakes time.Duration // more per deduction in the warm-up

	// before is called before the n-th deduction after the warm-up, from 1. If it returns true, it has written the
	// reply.
	before func(w http.ResponseWriter, n int) (done bool)
	// onRead is called at the n-th reading of the stock, from 1, and returns the status of the reply, or 0 for no
	// failure.
	onRead func(n int) int

	setWrong map[string]int64 // units that a store sets too few, by store

	loseRestock int // the number of the restock that is confirmed and lost, from 1; 0: none

	writesBehind bool            // sells in redis; every reading of mysql finds one more sale there
	mysql        map[int64]int64 // the stock in mysql
	neverWritten int64           // units of sales that never reach mysql
	lateRestock  int64           // units of a restock that reaches mysql long after the last sale
	writtenNS    int64           // when a sale or the restock last reached mysql

	deductions, reads, restocks int
}

// ample is more stock than any run of these tests gets, and less than that of the warm-up.
const ample = 1_000_000

// decode reads the body of a request, or refuses it.
func decode(w http.ResponseWriter, r *http.Request, body any) (ok bool) {
	err := json.NewDecoder(r.Body).Decode(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func (s *shop) deduct(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		GoodsID int64 `json:"goods_id"`
		Count   int64 `json:"count"`
	}
	if !decode(w, r, &asked) {
		return
	}
	s.mu.Lock()
	warmUp := s.stock[asked.GoodsID] > ample
	if !warmUp {
		s.deductions++
	}
	n := s.deductions
	s.mu.Unlock()
	if !warmUp && s.before != nil && s.before(w, n) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(s.takes)
	if warmUp {
		time.Sleep(s.warmUpTakes)
	}
	left := s.stock[asked.GoodsID]
	if left < asked.Count {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"type":"/problems/sold-out","goods_id":%d,"remaining":%d}`, asked.GoodsID, left)
		return
	}
	s.stock[asked.GoodsID] -= asked.Count
	fmt.Fprintf(w, `{"goods_id":%d,"count":%d,"remaining":%d}`, asked.GoodsID, asked.Count, left-asked.Count)
}

// take deducts a unit without a request.
func (s *shop) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock[1]--
}

func (s *shop) set(w http.ResponseWriter, r *http.Request) {
	var body struct{ Stock int64 }
	if !decode(w, r, &body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := goodsID(r)
	s.stock[id], s.mysql[id] = body.Stock-s.setWrong[s.store()], body.Stock-s.setWrong["mysql"]
}

// restock puts units back, unless it is the restock to lose.
func (s *shop) restock(w http.ResponseWriter, r *http.Request) {
	var body struct{ Count int64 }
	if !decode(w, r, &body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restocks++
	s.stock[goodsID(r)] += body.Count
	fmt.Fprintf(w, `{"stock":%d}`, s.stock[goodsID(r)])
	if s.restocks == s.loseRestock {
		s.stock[goodsID(r)] -= body.Count
	}
}

func (s *shop) read(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.onRead != nil {
		if status := s.onRead(s.reads); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	if s.writesBehind && r.URL.Query().Get("store") == "mysql" {
		s.write(goodsID(r))
		fmt.Fprintf(w, `{"stock":%d}`, s.mysql[goodsID(r)])
		return
	}
	fmt.Fprintf(w, `{"stock":%d}`, s.stock[goodsID(r)])
}

// write writes another sale to mysql, or the late restock when all are there.
func (s *shop) write(id int64) {
	now := monotonic.Now()
	switch {
	case s.deductions == 0:
	case s.mysql[id] > s.stock[id]+s.neverWritten-s.lateRestock:
		s.mysql[id]--
		s.writtenNS = now
	case s.lateRestock > 0 && now-s.writtenNS > int64(200*time.Millisecond):
		s.mysql[id] += s.lateRestock
		s.lateRestock, s.writtenNS = 0, now
	}
}

func goodsID(r *http.Request) (id int64) {
	_, _ = fmt.Sscan(r.PathValue("id"), &id) // 0 if it is not a number, and no item has this id
	return id
}

// store is the store that sells.
func (s *shop) store() string {
	if s.writesBehind {
		return "redis"
	}
	return "mysql"
}

// open serves the shop, and returns a runner for its only strategy, which is correct on one replica only.
func (s *shop) open(t *testing.T, config Config) *Runner {
	t.Helper()
	s.stock, s.mysql = map[int64]int64{1: 0}, map[int64]int64{1: 0}
	store := s.store()
	strategy := Strategy{
		Name: "any", Stores: []string{store}, WriteBehind: s.writesBehind,
		Claim: Claim{OneReplica: "correct", TwoReplicas: "loses-updates", Exclusive: true},
	}
	config.Choices = []Choice{{strategy, store}}
	config.Replicas, config.Rounds = max(config.Replicas, 1), max(config.Rounds, 1)
	config.Timeout = cmp.Or(config.Timeout, time.Minute)
	config.Users, config.Goods, config.MinCount, config.MaxCount = 8, 1, 1, 1
	config.WarmUp, config.Dir = 50*time.Millisecond, t.TempDir()

	server := s.serve(t, int64(config.Replicas))
	target := Target{
		Service: Service{URL: server.URL, Admin: server.URL, Client: server.Client()},
		Fewer:   map[int]string{1: s.serve(t, 1).URL},
	}
	runner, err := New(target, config)
	must.Succeed(t, err)
	runner.plan = slices.DeleteFunc(runner.plan, func(row row) bool { return judgedOnly(row.Workload.Name) })
	runner.patience = patience{
		quietKnown: 5 * time.Millisecond, quiet: 50 * time.Millisecond, service: 500 * time.Millisecond,
		limit: time.Second,
	}
	return runner
}

// serve starts a server that pretends to be so many replicas, which answer in turn.
func (s *shop) serve(t *testing.T, replicas int64) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /stock/deduct", s.deduct)
	mux.HandleFunc("GET /stock/{id}", s.read)
	mux.HandleFunc("PUT /admin/stock/{id}", s.set)
	mux.HandleFunc("POST /admin/stock/{id}/restock", s.restock)
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Replica", fmt.Sprint(requests.Add(1)%replicas))
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

// runAll returns the runs by workload and replicas, such as "plenty on 2".
func runAll(t *testing.T, r *Runner) map[string]Measured {
	t.Helper()
	all := map[string]Measured{}
	err := r.Run(t.Context(), func(m Measured) error {
		all[fmt.Sprintf("%s on %d", m.History.Run.Workload.Name, m.History.Run.Replicas)] = m
		return nil
	})
	must.Succeed(t, err)
	return all
}

// onDisk reads the histories that a runner has written.
func onDisk(t *testing.T, r *Runner) (all []*history.History) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(r.config.Dir, "history", "*.jsonl"))
	must.Succeed(t, err)
	for _, path := range paths {
		h, err := history.Read(path)
		must.Succeed(t, err)
		all = append(all, h)
	}
	return all
}

// runOne runs the only cell of a runner with a given stock on one replica.
func runOne(t *testing.T, r *Runner) Measured {
	t.Helper()
	return runAll(t, r)["given-stock on 1"]
}
