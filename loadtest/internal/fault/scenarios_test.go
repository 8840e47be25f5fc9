package fault

import (
	"slices"
	"strings"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
)

// A name that is misspelt in the list would leave a strategy, a claim or a scenario out.
func TestTheListOfScenariosNamesWhatExists(t *testing.T) {
	t.Parallel()
	strategies := func(scenario string, names players) {
		for _, name := range names {
			if name[0] == '!' {
				name = name[1:]
			}
			listed := func(s stock.Strategy) bool { return s.Name == name }
			if _, known := groups[name]; !known && !slices.ContainsFunc(catalogue.Strategies, listed) {
				t.Errorf("%s: no strategy and no group is named %q", scenario, name)
			}
		}
	}
	played := map[string]bool{}
	for _, s := range Scenarios {
		strategies(s.Name, s.For)
		for _, c := range s.Claims {
			strategies(s.Name, c.Of)
		}
		if s.For == nil || s.Claims == nil {
			t.Errorf("%s: strategies play it: %t; it has claims: %t", s.Name, s.For != nil, s.Claims != nil)
		}
		scenario, _, _ := strings.Cut(s.Name, "/")
		played[s.Name], played[scenario] = true, true
	}
	for _, all := range families {
		for name := range all {
			if !played[name] {
				t.Errorf("the list has no %s", name)
			}
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
