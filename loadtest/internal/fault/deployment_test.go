package fault

import (
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/tenant"
	"stock/loadtest/internal/topology"
)

func TestNoScenarioIsPlayedOnServersThatCannotBeReachedThroughProxies(t *testing.T) {
	t.Parallel()
	var secure, cluster, single topology.Topology
	secure.TLS = true
	cluster.Redis, cluster.Tenants.Redis = []string{"a:6379", "b:6379"}, &tenant.Keys{}
	single.Redis, single.Tenants.Redis = []string{"a:6379"}, &tenant.Keys{}
	single.MySQLDSN = "nonsense" // it is looked at, because the scenario is played
	for name, test := range map[string]struct {
		on   *topology.Topology
		want report.Effect
		why  string
	}{
		"TLS":       {&secure, report.Skipped, NoTLS},
		"a Cluster": {&cluster, report.Skipped, NoCluster},
		"a single one": {
			&single, report.Inconclusive,
			"start the servers of the scenario: invalid DSN: missing the slash separating the database name",
		},
	} {
		var played report.Fault
		err := (&Player{Topology: test.on}).Run(t.Context(), Options{
			Scenarios: []Scenario{{
				Name: "scenario", For: players{"all"}, Play: func(*Stage) {},
				On: Setting{Isolation: "SERIALIZABLE"},
			}},
			Choices: anyone, Repeat: 1,
			Done: func(f report.Fault, _ history.History) error { played = f; return nil },
		})
		if err != nil || played.Effect != test.want || played.Evidence[0] != test.why {
			t.Errorf("%s: %s because %q, %v; want %s because %q",
				name, played.Effect, played.Evidence, err, test.want, test.why)
		}
	}
}
