package fault

import (
	"slices"
	"testing"

	"stock/internal/stock/catalogue"
	"stock/internal/stock/mutants"
	"stock/loadtest/internal/report"
)

// A mutant is found because its strategy becomes unsafe in a scenario in which it should not be.
func TestEachMutantOfAScenarioBreaksAClaim(t *testing.T) {
	t.Parallel()
	for _, m := range mutants.All() {
		if m.Story == "" {
			continue
		}
		found, err := Find([]string{m.Story})
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		for _, sc := range found {
			claim, applies := claimOf(t, sc, m.Strategy)
			if !applies || slices.Contains(claim.Effects, report.Unsafe) {
				t.Errorf("%s: in %s, %s is no claim that the mutant could break", m.Name, sc.Name, claim.Words)
			}
		}
		if m.Oddity {
			t.Errorf("%s: nobody counts how often an oddity strikes in a scenario", m.Name)
		}
	}
}

// The judge learns from the claims which locks must issue fencing tokens.
func TestTheClaimsTellWhichLocksAreFenced(t *testing.T) {
	t.Parallel()
	for _, s := range catalogue.Strategies {
		if got := asListed(t, s).Fenced(); got != s.Fenced {
			t.Errorf("%s: fenced %v, want %v", s.Name, got, s.Fenced)
		}
	}
}
