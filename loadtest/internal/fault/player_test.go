package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"stock/internal/servers"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/topology"
)

// anyone plays every scenario.
var anyone = []load.Choice{{Strategy: load.Strategy{Name: "anyone"}, Store: oracle.MySQL}}

// skipped returns scenarios that anyone would play, if no server were missing. missing is called instead.
func skipped(missing func(name string), names ...string) (scenarios []Scenario) {
	for _, name := range names {
		scenarios = append(scenarios, Scenario{
			Name: name, For: players{"all"}, Play: func(*Stage) {},
			On: Setting{Redis: func(context.Context, *Deployment) error {
				missing(name)
				return fmt.Errorf("%w: there is no server", errLeftOut)
			}},
		})
	}
	return scenarios
}

// noLab is a lab without servers.
func noLab() *Player {
	var on topology.Topology
	on.Servers.Redis = &servers.Redis{}
	return &Player{Topology: &on}
}

func TestResultsComeInTheOrderOfTheScenarios(t *testing.T) {
	t.Parallel()
	second := make(chan struct{})
	scenarios := skipped(func(name string) {
		if name == "first" {
			<-second // it ends before the first
		} else {
			close(second)
		}
	}, "first", "second")
	var done []string
	err := noLab().Run(t.Context(), Options{
		Scenarios: scenarios, Choices: anyone, Repeat: 1, Parallel: 2,
		Done: func(f report.Fault, _ history.History) error {
			done = append(done, f.Scenario+" "+string(f.Effect))
			return nil
		},
	})
	if want := []string{"first skipped", "second skipped"}; err != nil || !slices.Equal(done, want) {
		t.Errorf("done: %q, %v, want %q", done, err, want)
	}
}

func TestAnInterruptedScenarioIsNotReported(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var begun []string
	scenarios := skipped(func(name string) {
		begun = append(begun, name)
		cancel()
	}, "first", "second")
	err := noLab().Run(ctx, Options{
		Scenarios: scenarios, Choices: anyone, Repeat: 1,
		Done: func(f report.Fault, _ history.History) error {
			t.Errorf("%s was reported as %s", f.Scenario, f.Effect)
			return nil
		},
	})
	if !errors.Is(err, context.Canceled) || !slices.Equal(begun, []string{"first"}) {
		t.Errorf("Run ended with %v after it had begun %q, want %v after the first", err, begun, context.Canceled)
	}
}
