package fault

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/topology"
)

// startLab starts servers, and finds out which strategies they have.
func startLab(t *testing.T) (*Player, []load.Strategy) {
	t.Helper()
	serverstest.Long(t)
	on, err := topology.Start(t.Context(), topology.Options{Replicas: 1, Relaxed: true})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := on.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	o, err := oracle.Open(t.Context(), oracle.Config{MySQLDSN: on.MySQLDSN, Redis: on.Redis})
	must.Succeed(t, err)
	t.Cleanup(o.Close)
	catalogue, err := load.Service{URL: on.URL, Client: http.DefaultClient}.Strategies(t.Context())
	must.Succeed(t, err)
	return &Player{Topology: on, Oracle: o}, catalogue
}

// playedTwice is a scenario whose cells end otherwise the second time.
type playedTwice struct {
	plays atomic.Int64
	alone atomic.Bool // nothing else was played at the same time as the last time
}

// busy is how many scenarios are played at the moment.
var busy atomic.Int64

func (p *playedTwice) scenario(name string, first func(*Stage)) Scenario {
	return Scenario{
		Name: name, For: players{"all"},
		Claims: []Claim{{Words: "safe", Effects: []report.Effect{report.Safe}}},
		Play: func(s *Stage) {
			p.alone.Store(busy.Add(1) == 1)
			defer busy.Add(-1)
			s.mustBuy(to(s.Survivor, "A", 1))
			if p.plays.Add(1) == 1 {
				first(s)
			} else {
				s.Provef("it struck")
			}
		},
	}
}

// The machine may hold a buyer up, or let a fault miss. If nobody can tell, the cell is not judged. Damage is believed
// at once.
func TestCellsInDoubtArePlayedAgainAlone(t *testing.T) {
	t.Parallel()
	lab, catalogue := startLab(t)
	anyone := catalogue[slices.IndexFunc(catalogue, func(s load.Strategy) bool { return s.Name == "update" })]
	var slow, missed, broken playedTwice
	var found []report.Fault
	err := lab.Run(t.Context(), Options{
		Scenarios: []Scenario{
			slow.scenario("slow", func(s *Stage) { s.Provef("it struck"); s.blocked = 2 * time.Second }),
			missed.scenario("missed", func(*Stage) {}),
			broken.scenario("broken", func(s *Stage) { s.Provef("it struck"); s.Failf("sold twice") }),
		},
		Choices: []load.Choice{{Strategy: anyone, Store: oracle.MySQL}}, Repeat: 1, Parallel: 3,
		Done: func(f report.Fault, _ history.History) error {
			found = append(found, f)
			return nil
		},
	})
	if err != nil || len(found) != 3 {
		t.Fatalf("%d cells, %v: %+v", len(found), err, found)
	}
	slices.SortFunc(found, func(a, b report.Fault) int { return a.Place - b.Place })
	for i, want := range []struct {
		outcome         report.Effect
		first, evidence string
		held            bool
	}{
		{report.Inconclusive, "blocked 2.0 s", "not judged: first blocked 2.0 s, then safe", false},
		{report.Safe, "inconclusive (" + unproved + ")", "", true},
		{report.Unsafe, "", "sold twice", false},
	} {
		f := found[i]
		if f.Effect != want.outcome || f.ClaimHeld != want.held || f.First != want.first ||
			!strings.Contains(f.Found(), want.evidence) {
			t.Errorf("%s: first %q, then %s, claim held %t; want %+v", f.Scenario, f.First, f.Found(), f.ClaimHeld, want)
		}
	}
	if n := []int64{slow.plays.Load(), missed.plays.Load(), broken.plays.Load()}; !slices.Equal(n, []int64{2, 2, 1}) {
		t.Errorf("played %d times, want 2, 2 and 1", n)
	}
	if !slow.alone.Load() || !missed.alone.Load() {
		t.Error("cells were played again side by side")
	}
}
