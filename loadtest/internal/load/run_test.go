package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

func TestRunnerRunsItsPlanAndWritesEveryHistory(t *testing.T) {
	t.Parallel()
	runner := (&shop{}).open(t, Config{Requests: 400, Replicas: 2})
	all := runAll(t, runner)
	if len(all) != 4 {
		t.Fatalf("%d runs, want two workloads on one replica and on two", len(all))
	}
	for name, m := range all {
		if m.Verdict.Result != verify.Correct || m.Verdict.Requests != 400 || m.History.Run.Bounded != "" {
			t.Errorf("%s: %s after %d requests %s, want correct after 400: %v",
				name, m.Verdict.Result, m.Verdict.Requests, m.History.Run.Bounded, m.Verdict.Evidence)
		}
		scarce := m.History.Run.Workload.Name == FlashSale
		if m.History.Run.Scarce != scarce || m.Verdict.DemandExceeded != scarce {
			t.Errorf("%s: scarce %v, demand exceeded %v, want %v",
				name, m.History.Run.Scarce, m.Verdict.DemandExceeded, scarce)
		}
		// Mutexes of two processes do not exclude each other.
		if exclusive := m.History.Run.Replicas == 1; m.History.Run.Exclusive != exclusive {
			t.Errorf("%s: exclusive %v, want %v", name, m.History.Run.Exclusive, exclusive)
		}
	}
	if got := runner.Progress().Heading(); !strings.HasPrefix(got, "[3/4") || !strings.Contains(got, "round 1 of 1: any") {
		t.Errorf("the progress in the last run is %q", got)
	}
	var kept []history.Cell
	for _, h := range onDisk(t, runner) {
		kept = append(kept, h.Run.Cell)
		if h.End == nil || len(h.Ops) != 400 {
			t.Errorf("%v: %d requests on disk, end %v, want 400 and an end", h.Run.Cell, len(h.Ops), h.End)
		} else if h.End.DriverCPUNS <= 0 {
			t.Errorf("%v: the load driver used %d ns of the CPU, want more", h.Run.Cell, h.End.DriverCPUNS)
		}
	}
	if plan := runner.Plan(); !slices.Equal(plan, kept) {
		t.Errorf("planned %v\nkept    %v", plan, kept)
	}
}

// The shop is slow only while its rate is measured. The runs then take almost no time.
func TestBriefCellsOfASlowStrategySendFewerRequests(t *testing.T) {
	t.Parallel()
	const takes = 2 * time.Millisecond
	config := Config{Requests: 6000, Brief: true, Compared: []string{"any"}, Rounds: 2}
	all := runAll(t, (&shop{warmUpTakes: takes}).open(t, config))
	for name, limit := range map[string]time.Duration{
		"plenty on 1": 2 * time.Second, "flash-sale on 1": 400 * time.Millisecond,
	} {
		m, most := all[name], int(limit/takes) // at the highest rate that the warm-up can measure
		requests, bounded := len(m.History.Ops), m.History.Run.Bounded
		if requests <= leastRequests/2 || requests > max(most, leastRequests) || m.History.Run.Planned != 6000 ||
			!strings.Contains(bounded, fmt.Sprintf("of 6 000 requests: its time limit was %.1f s", limit.Seconds())) {
			t.Errorf("%s: %d requests, bounded %q: want at most %d, and the reason", name, requests, bounded, most)
		}
		if m.Verdict.Result != verify.Correct {
			t.Errorf("%s: %s: %v", name, m.Verdict.Result, m.Verdict.Evidence)
		}
	}
	if flash := all["flash-sale on 1"]; !flash.Verdict.DemandExceeded {
		t.Error("the brief flash sale does not sell out")
	}
}

func TestBriefCellsAreAsLongAsTheirRowsNeed(t *testing.T) {
	t.Parallel()
	newRow := func(strategy, workload, claim string) row {
		return row{
			strategy: Strategy{Claim: Claim{OneReplica: claim, TwoReplicas: claim}},
			Cell:     history.Cell{Subject: history.Subject{Strategy: strategy, Workload: history.Workload{Name: workload}}},
		}
	}
	r := &Runner{config: Config{Brief: true, Compared: []string{"known"}}, rates: map[history.Subject]float64{}}
	for _, test := range []struct {
		row
		rate float64
		want int
	}{
		{newRow("known", Plenty, verify.ClaimCorrect), 1000, 2000},
		{newRow("known", FlashSale, verify.ClaimCorrect), 1000, 400},
		{newRow("other", Plenty, verify.ClaimCorrect), 1000, 400},
		{newRow("noop", Plenty, verify.ClaimSellsNothing), 10_000, 4000},
		{newRow("known", Plenty, verify.ClaimLosesUpdates), 2000, 800},
		{newRow("known", FlashSale, verify.ClaimLosesUpdates), 100, leastOfWrong},
		{newRow("other", Plenty, verify.ClaimCorrect), 100, leastRequests},
		{newRow("other", Plenty, verify.ClaimCorrect), 100_000, 6000},
	} {
		r.rates[test.Subject] = test.rate
		c := &cellRun{Runner: r, row: test.row, load: traffic.Load{Requests: 6000}}
		if got := c.bound(); got != test.want || c.load.Requests != got {
			t.Errorf("%s at %g requests/s: %d requests, want %d", test.Label(), test.rate, got, test.want)
		}
		r.config.Brief = false
		c.load.Requests = 6000
		if got := c.bound(); got != 6000 {
			t.Errorf("%s: %d requests, want all that are asked for", test.Label(), got)
		}
		r.config.Brief = true
	}
}

func TestFlashSaleByDurationSellsOutWhenTheServiceGetsSlower(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	for name, rate := range map[string]float64{"closed loop": 0, "open loop, overloaded": 3000} {
		s := &shop{takes: 5 * time.Millisecond} // long compared with what a busy machine adds
		s.before = func(http.ResponseWriter, int) bool {
			time.Sleep(60 * time.Millisecond)
			return false
		}
		m := runAll(t, s.open(t, Config{Duration: time.Second, Rate: rate}))["flash-sale on 1"]
		if !m.Verdict.DemandExceeded {
			t.Errorf("%s: %d of %d units sold, want all", name, m.Verdict.Sold, m.Verdict.Initial)
		}
	}
}

func TestRestocksAreRecordedAndALostOneIsFound(t *testing.T) {
	t.Parallel()
	for lost, want := range map[int]verify.Result{0: verify.Correct, 2: verify.Wrong} {
		s := &shop{takes: time.Millisecond, loseRestock: lost}
		m := runOne(t, s.open(t, Config{Requests: 300, Stock: 300, Restock: 7}))
		if m.Verdict.Result != want || m.Verdict.Restocked < 7 || m.Verdict.Leaked != int64(lost*7/2) {
			t.Errorf("%s, %d restocked, %d leaked, want %s: %v",
				m.Verdict.Result, m.Verdict.Restocked, m.Verdict.Leaked, want, m.Verdict.Evidence)
		}
		if m.History.Run.Restock != 7 {
			t.Errorf("the history records restocks of %d units, want 7", m.History.Run.Restock)
		}
		h, err := history.Read(m.Path)
		must.Succeed(t, err)
		if again := verify.Judge(h); again.Result != want || again.Restocked != m.Verdict.Restocked {
			t.Errorf("judged again: %s, %d restocked", again.Result, again.Restocked)
		}
	}
}

// A service with idempotency keys would replay the answers of the first run.
func TestSecondRunWithTheSameSeedHasNewRequestNames(t *testing.T) {
	t.Parallel()
	s := &shop{}
	seen := map[string]bool{}
	for range 2 {
		m := runOne(t, s.open(t, Config{Requests: 300, Stock: 1000, Seed: 7}))
		for _, op := range m.History.Ops {
			if seen[op.Name] {
				t.Fatalf("request %s is in both", op.Name)
			}
			seen[op.Name] = true
		}
	}
}

func TestInterruptedRunKeepsItsRequests(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	died := errors.New("a server died")
	s := &shop{}
	var runner *Runner
	s.before = func(_ http.ResponseWriter, n int) bool {
		switch n {
		case 1:
			// If the lab were killed now, this would remain.
			if all := onDisk(t, runner); len(all) != 1 || all[0].Run.Strategy != "any" || all[0].End != nil {
				t.Errorf("histories during the first run: %v, want its beginning", all)
			}
		case 200:
			cancel(died)
		}
		return false
	}
	runner = s.open(t, Config{Requests: 1_000_000, Stock: ample})
	err := runner.Run(ctx, func(Measured) error { t.Error("an interrupted run was judged"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run returns %v, want the error of the context", err)
	}
	if all := onDisk(t, runner); len(all) != 1 || all[0].End != nil || len(all[0].Ops) < 190 {
		t.Errorf("%d histories on disk: want one with its requests and without an end", len(all))
	}
}

func TestRejectedStrategyIsAnError(t *testing.T) {
	t.Parallel()
	s := &shop{}
	s.before = func(w http.ResponseWriter, _ int) bool { w.WriteHeader(http.StatusForbidden); return true }
	runner := s.open(t, Config{Requests: 10})
	err := runner.Run(t.Context(), func(Measured) error { t.Error("the run was judged"); return nil })
	if err == nil || !strings.Contains(err.Error(), "rejects every request: 403") {
		t.Errorf("Run returns %v, want that every request was rejected", err)
	}
	if _, err := os.Stat(filepath.Join(runner.config.Dir, "history")); err != nil {
		t.Errorf("there is no history: %v", err)
	}
}
