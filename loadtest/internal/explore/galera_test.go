package explore_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

func TestStrategiesOnGalera(t *testing.T) {
	l, err := lab.Start(t.Context(), topology.Options{
		Replicas: 1, Relaxed: true, Galera: true, GaleraSyncWait: explore.GaleraSyncWait,
	})
	if errors.Is(err, servers.ErrNotInstalled) && os.Getenv("STOCK_REQUIRE_GALERA") == "" {
		t.Skip(err)
	}
	must.Succeed(t, err)
	defer func() { must.Succeed(t, l.Close()) }()
	catalogue, err := l.Target.Strategies(t.Context())
	must.Succeed(t, err)
	x, err := explore.Start(t.Context(), l.Topology, explore.Options{Lanes: 1, Requests: 2, Galera: true})
	must.Succeed(t, err)
	defer x.Close()
	x.Workloads = []string{"enough", "last"}
	choose := func(strategy string) scenario.Choice {
		choices, _, err := scenario.Choose(catalogue, []string{strategy}, "")
		must.Succeed(t, err)
		return choices[len(choices)-1]
	}
	explored := func(t *testing.T, strategy string, bounds trace.Bounds) trace.Result {
		result, err := x.Explore(t.Context(), choose(strategy), bounds)
		must.Succeed(t, err)
		if !result.Judged() || !result.Held() {
			t.Errorf("not every schedule was executed and judged, or a claim was refuted: %+v", result)
		}
		return result
	}

	t.Run("the second transaction is rolled back, and repeated", func(t *testing.T) {
		wantRight(t, explored(t, "for-update", trace.Bounds{Preemptions: 2}), "")
		o, err := x.Replay(t.Context(), choose("for-update"), "enough:A.B.A.A.B.B.B.B")
		must.Succeed(t, err)
		rolledBack := slices.ContainsFunc(o.Steps, func(s trace.Step) bool { return strings.Contains(s.Reply, "1213") })
		if !rolledBack {
			t.Errorf("no step has error 1213: %v", o.Steps)
		}
		if o.Kind != trace.Right {
			t.Errorf("the outcome is %s: %v", o.Kind, o.Evidence)
		}
	})
	t.Run("GET_LOCK does not hold on other nodes", func(t *testing.T) {
		wantDamage(t, explored(t, "lock-mysql-getlock", trace.Bounds{Preemptions: 2}), "", trace.LostUpdate)
	})
}
