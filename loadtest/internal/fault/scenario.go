// Package fault replays short stories of what can go wrong: a holder dies, its write comes late, a client sends again.
//
// A story runs on real processes. It injects its fault at a point that it can observe, never after a delay alone, and
// says what proves that it did. The judge of the lab decides what came of it.
package fault

import (
	"slices"
	"strings"

	"stock/loadtest/internal/oracle"
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

// catalogued is a claim of the catalogue, which says by one word what comes of a fault.
func catalogued(word string) Claim {
	outcome := report.Safe
	switch word {
	case "blocks-until-lease-ends":
		outcome = report.Blocked
	case "blocks-forever":
		outcome = report.Unavailable
	case "loses-units", "loses-updates", "deducts-again":
		outcome = report.Unsafe
	}
	return claim(word, outcome)
}

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
	tellsRemaining := p.Store == oracle.MySQL // the rows of other stores would have to be counted
	return scenario.Strategy{Name: p.Name, Claim: correct, ReportsRemaining: &tellsRemaining}
}

// applies returns a value for Scenario.Applies: the strategies for which a condition holds play the story.
func applies(holds func(scenario.Strategy) bool, why string) func(scenario.Strategy) string {
	return func(s scenario.Strategy) string {
		if holds(s) {
			return ""
		}
		return why
	}
}

// everyStrategy applies to each strategy that deducts something.
var everyStrategy = applies(func(s scenario.Strategy) bool { return !s.Baseline() }, "it deducts nothing")

// noStrategy applies to none: only practices play the story.
func noStrategy(scenario.Strategy) string { return "the story is about other ways to deduct" }

// only applies to the named strategies.
func only(names ...string) func(scenario.Strategy) string {
	listed := func(s scenario.Strategy) bool { return slices.Contains(names, s.Name) }
	return applies(listed, "the story is about "+strings.Join(names, ", "))
}
