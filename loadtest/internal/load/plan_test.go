package load

import (
	"slices"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/history"
)

func TestStrategyWithDifferentClaimsAlsoRunsOnOneReplica(t *testing.T) {
	t.Parallel()
	choices, _, err := Choose(catalogue, nil, "")
	must.Succeed(t, err)
	planned := func(replicas int, oneReplica bool) []row {
		cells := []history.Cell{{Subject: history.Subject{Replicas: replicas}}}
		return rows(choices, []string{Plenty, FlashSale}, cells, oneReplica)
	}
	oneReplica := 0
	for _, row := range planned(2, true) {
		if row.Replicas == 1 {
			oneReplica++
			if row.Strategy != "mutex" {
				t.Errorf("%s runs on one replica", row.Label())
			}
		}
	}
	if oneReplica != 2 {
		t.Errorf("mutex has %d cells on one replica, want one for each workload", oneReplica)
	}
	if got := len(planned(2, false)); got != 8 {
		t.Errorf("%d cells without a URL of one replica, want 8", got)
	}
	if got := len(planned(1, true)); got != 8 {
		t.Errorf("%d cells on one replica, want 8", got)
	}
}

func TestTheOrderDependsOnSeedAndRoundOnly(t *testing.T) {
	t.Parallel()
	choices, _, _ := Choose(catalogue, nil, "")
	all := rows(choices, []string{Plenty, FlashSale}, []history.Cell{{Subject: history.Subject{Replicas: 2}}}, true)
	names := func(round int) (names []string) {
		r := &Runner{config: Config{Seed: 42}}
		r.addRound(round, all)
		for _, row := range r.plan {
			names = append(names, row.Label())
		}
		return names
	}
	if !slices.Equal(names(1), names(1)) {
		t.Error("the same seed and round give different orders")
	}
	if slices.Equal(names(1), names(2)) {
		t.Error("two rounds run the cells in the same order")
	}
	sorted := func(names []string) []string { return slices.Sorted(slices.Values(names)) }
	if !slices.Equal(sorted(names(1)), sorted(names(2))) {
		t.Error("two rounds run different cells")
	}
}
