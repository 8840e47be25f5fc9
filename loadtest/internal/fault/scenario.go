// Package fault replays short stories of what can go wrong: a holder dies, its write comes late, a client sends again.
//
// A story runs on real processes. It injects its fault at a point that it can observe, never after a delay alone, and
// says what proves that it did. The judge of the lab decides what came of it.
package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"stock/internal/suggest"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/verify"
)

// Scenario is one story. Every strategy to which it applies plays it as a cell of its own.
type Scenario struct {
	// Name is that of the story. Variants of a story have a common part before a slash.
	Name  string
	Title string // what happens, in one sentence
	// Applies returns why the story means nothing for a strategy; empty if it does.
	Applies func(scenario.Strategy) string
	// Claim is what follows from the catalogue's claims about a strategy to which the story applies.
	Claim func(scenario.Strategy) Claim
	// Practices play the story too. They are ways to deduct that the catalogue does not offer, such as common mistakes.
	Practices []Practice
	// Sells reports whether cells may sell an item. Nil means any item.
	Sells func(item int64) bool
	// On is what the story is played on.
	On Setting
	// Play plays the story for a strategy.
	Play func(*Stage)
}

// Claim is what is expected of a story: in words, and the outcomes that agree with them.
type Claim struct {
	Words   string
	Allowed []report.Outcome
}

// claim returns a Claim.
func claim(words string, allowed ...report.Outcome) Claim { return Claim{words, allowed} }

// always is what is claimed of every strategy to which a story applies.
func always(words string, allowed ...report.Outcome) func(scenario.Strategy) Claim {
	return func(scenario.Strategy) Claim { return claim(words, allowed...) }
}

// Practice is a way to deduct that is not in the catalogue.
type Practice struct {
	Name  string
	Store string // that it sells from; empty: MySQL
	Claim Claim
	// Play plays the story: it sends the statements and commands itself. Nil: the explorer executes a script instead, in
	// every order of its steps.
	Play   func(*Stage)
	Script string // in loadtest/scripts, without .star; empty: that with the practice's name
}

// script is a practice that is the script of its name.
func script(name, words string, outcome report.Outcome) Practice {
	return Practice{Name: name, Claim: claim(words, outcome)}
}

// scripted is a scenario that no strategy plays: it compares practices.
func scripted(name, title string, practices ...Practice) Scenario {
	return Scenario{Name: name, Title: title, Applies: noStrategy, Practices: practices}
}

// asStrategy is the practice as the judge sees it: it should sell correctly.
func (p Practice) asStrategy() scenario.Strategy {
	correct := scenario.Claim{OneReplica: verify.ClaimCorrect, TwoReplicas: verify.ClaimCorrect}
	tellsRemaining := p.Store == "" // the rows of other stores would have to be counted
	return scenario.Strategy{Name: p.Name, Claim: correct, ReportsRemaining: &tellsRemaining}
}

// everyStrategy applies to each strategy that deducts something.
func everyStrategy(s scenario.Strategy) string {
	if s.Baseline() {
		return "it deducts nothing"
	}
	return ""
}

// noStrategy applies to none: only practices play the story.
func noStrategy(scenario.Strategy) string { return "the story is about other ways to deduct" }

// only applies to the named strategies.
func only(names ...string) func(scenario.Strategy) string {
	return func(s scenario.Strategy) string {
		if !slices.Contains(names, s.Name) {
			return "the story is about " + strings.Join(names, ", ")
		}
		return ""
	}
}

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
