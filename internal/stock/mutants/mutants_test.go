package mutants

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
)

func TestEveryMutantChangesAStepOfAKnownStrategy(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range All() {
		if !regexp.MustCompile(`^[a-z-]+$`).MatchString(m.Name) || names[m.Name] {
			t.Errorf("%q: the name is malformed or used twice", m.Name)
		}
		names[m.Name] = true
		if !regexp.MustCompile(`^[A-Z0-9].*[^.]\.$`).MatchString(m.Planted) || strings.Contains(m.Planted, "|") {
			t.Errorf("%s: %q is no sentence for a table", m.Name, m.Planted)
		}
		i := slices.IndexFunc(catalogue.Strategies, func(s stock.Strategy) bool { return s.Name == m.Strategy })
		if i < 0 {
			t.Errorf("%s: no strategy is named %q", m.Name, m.Strategy)
			continue
		}
		original := catalogue.Strategies[i]
		if m.Store != "" && !slices.Contains(original.Stores, m.Store) {
			t.Errorf("%s: strategy %s does not work on store %s", m.Name, m.Strategy, m.Store)
		}
		if original.Claim.TwoReplicas != stock.Correct {
			t.Errorf("%s: strategy %s is not correct without the mutant either", m.Name, m.Strategy)
		}
		p := m.Plant("replica-2").plan
		inDeducter, inLock := p.deduct != nil || p.order != nil || p.cancel != nil || p.confirm != nil, p.lock != nil
		if inDeducter && original.New == nil || inLock && original.Lock == nil {
			t.Errorf("%s: strategy %s does not take the step that the mutant changes", m.Name, m.Strategy)
		}
		onTheWay := p.edit != nil || p.execute != nil || p.row != nil || p.begin != nil || p.commit != nil ||
			p.script != nil || p.command != nil
		if !inDeducter && !inLock && !onTheWay {
			t.Errorf("%s changes nothing", m.Name)
		}
	}
}
