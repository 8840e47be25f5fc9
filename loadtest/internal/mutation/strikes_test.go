package mutation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// replica is a service whose mutant strikes with every deduction of the warm-up, and perRun times in each run. It sells
// nothing.
type replica struct {
	units   atomic.Int64
	strikes atomic.Int64
}

const (
	// ample is more stock than any run of this test gets, and less than that of the warm-up.
	ample  = 1_000_000
	perRun = 3
)

func (r *replica) serve(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE stock_mutant_strikes_total counter\nstock_mutant_strikes_total %d\n", r.strikes.Load())
	})
	mux.HandleFunc("GET /stock/{id}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"stock":%d}`, r.units.Load())
	})
	mux.HandleFunc("PUT /admin/stock/{id}", func(w http.ResponseWriter, req *http.Request) {
		var body struct{ Stock int64 }
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if r.units.Store(body.Stock); body.Stock < ample {
			r.strikes.Add(perRun)
		}
	})
	mux.HandleFunc("POST /stock/deduct", func(w http.ResponseWriter, _ *http.Request) {
		if r.units.Load() > ample {
			r.strikes.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestStrikesOfTheWarmUpDoNotCount(t *testing.T) {
	t.Parallel()
	var r replica
	server := r.serve(t)
	strategy := load.Strategy{
		Name: "any", Stores: []string{"mysql"}, Claim: load.Claim{OneReplica: verify.ClaimCorrect},
	}
	lab := Lab{
		Topology: &topology.Topology{Replicas: []*topology.Replica{{Name: "replica-1", AdminURL: server.URL}}},
		Target:   load.Target{Service: load.Service{URL: server.URL, Admin: server.URL, Client: server.Client()}},
	}
	var trial Trial
	err := lab.try(t.Context(), &trial, load.Config{
		Choices: []load.Choice{{Strategy: strategy, Store: "mysql"}}, Replicas: 1, Rounds: 1, Users: 2, Requests: 10,
		Goods: 1, MinCount: 1, MaxCount: 1, Stock: 10, Timeout: time.Minute, WarmUp: 10 * time.Millisecond,
		Patience: time.Millisecond, Dir: t.TempDir(),
	})
	must.Succeed(t, err)
	if all := r.strikes.Load(); all == perRun || trial.Strikes != perRun {
		t.Errorf("%d strikes count, of %d with those of the warm-up, want %d of more", trial.Strikes, all, perRun)
	}
}
