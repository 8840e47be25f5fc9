package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"stock/internal/suggest"
)

// Scenarios lists every story. To add one, add it to the list of its family.
var Scenarios = slices.Concat(
	Basic, holderScenarios, crowdScenarios, limitScenarios, redisScenarios, ghostLocks, masterScenarios, rowScenarios,
	retryScenarios,
)

// Basic are the scenarios that mean something for every strategy. A lab plays them after its load.
var Basic = []Scenario{holderDies, lateWrite, clientRetries}

// BasicTime is how long the basic scenarios take at most, if they are played in parallel.
const BasicTime = patience + 8*time.Second

// renamed are scenarios that had another name before.
var renamed = map[string]string{
	"pauses-before-write": "holder-pauses", "zombie-replica": "client-times-out",
	"failover-of-sales": "cluster-failover/sales",
}

// Find returns the scenarios with the given names, in that order and each once, or all if there are no names. The part
// of a name before the slash finds all variants.
func Find(names []string) (found []Scenario, err error) {
	if len(names) == 0 {
		return Scenarios, nil
	}
	for _, name := range names {
		name, known := cmp.Or(renamed[name], name), false
		for _, s := range Scenarios {
			if s.Name != name && !strings.HasPrefix(s.Name, name+"/") {
				continue
			}
			known = true
			if !slices.ContainsFunc(found, func(f Scenario) bool { return f.Name == s.Name }) {
				found = append(found, s)
			}
		}
		if !known {
			var all []string
			for _, s := range Scenarios {
				all = append(all, s.Name)
			}
			return nil, fmt.Errorf("no scenario is named %q%s", name,
				cmp.Or(suggest.DidYouMean(name, all), "; the names are "+strings.Join(all, ", ")))
		}
	}
	return found, nil
}
