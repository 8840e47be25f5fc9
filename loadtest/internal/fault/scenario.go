// Package fault replays short stories of what can go wrong: a holder dies, its write comes late, a client sends again.
//
// A story runs on real processes. It injects its fault at a point that it can observe, never after a delay alone, and
// says what proves that it did. The judge of the lab decides what came of it.
package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// Scenario is one story. Every strategy to which it applies plays it as a cell of its own.
type Scenario struct {
	Name  string
	Title string // what happens, in one sentence
	// Applies returns why the story means nothing for a strategy; empty if it does.
	Applies func(scenario.Strategy) string
	// Claimed is what a strategy claims about this story, and Expected the outcomes that its claim allows.
	Claimed  func(scenario.Claim) string
	Expected func(scenario.Claim) []report.Outcome
	Play     func(context.Context, *Stage) error
}

// everyStrategy applies to each strategy that deducts something.
func everyStrategy(s scenario.Strategy) string {
	if s.Baseline() {
		return "it deducts nothing"
	}
	return ""
}

// Find returns the scenarios with the given names, or all if there are no names.
func Find(names []string) (found []Scenario, err error) {
	if len(names) == 0 {
		return Scenarios, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
		if i < 0 {
			var known []string
			for _, s := range Scenarios {
				known = append(known, s.Name)
			}
			return nil, fmt.Errorf("no scenario is named %q; the names are %s", name, strings.Join(known, ", "))
		}
		found = append(found, Scenarios[i])
	}
	return found, nil
}
