package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"stock/loadtest/internal/timeline"
)

// Effect is what came of a fault scenario.
type Effect string

// The outcomes.
const (
	Safe Effect = "safe"
	// Unsafe: a sale is lost or made twice, more is sold than there is, or a sale is refused without reason.
	Unsafe       Effect = "unsafe"
	Blocked      Effect = "blocked"      // nobody could buy the item for a while
	Unavailable  Effect = "unavailable"  // nobody could buy the item as long as the scenario went on
	Inconclusive Effect = "inconclusive" // the fault did not strike as it should, or it ended in two ways
	Skipped      Effect = "skipped"      // something that the scenario needs is missing
)

// lateWrite is the scenario that a correct strategy may fail: a table must not call it correct and nothing else.
const lateWrite = "late-write"

// Fault is what came of a fault scenario for one strategy.
type Fault struct {
	Scenario string  `json:"scenario"`
	Title    string  `json:"title"` // what happens, in one sentence
	Strategy string  `json:"strategy"`
	Store    string  `json:"store"`
	Repeat   int     `json:"repeat"` // from 1
	Effect   Effect  `json:"outcome"`
	Seconds  float64 `json:"seconds"` // how long the item was blocked, until the next sale; 0: not, or not measured
	// Until says what the next buyer waited for, if that takes as long as is set, and how long it was: the lab sets
	// less than the service does by default. Empty: something else.
	Until string `json:"until,omitempty"`
	// Proof shows that the fault struck. Without one, the outcome is Inconclusive.
	Proof     string      `json:"proof"`
	Evidence  []string    `json:"evidence"`   // of the judge, or why there is no other outcome
	Claimed   string      `json:"claimed"`    // what the strategy claims about this fault
	ClaimHeld bool        `json:"claim_held"` // false if it was skipped, which does not count as failed
	Replay    string      `json:"replay"`     // the command that plays this again, step by step
	Steps     []FaultStep `json:"steps"`
	// First says what came of it beside others, if that was in doubt, so that it was played again, alone. This is what
	// came of it then, or Inconclusive if that was something else.
	First string `json:"first,omitempty"`
	Place int    `json:"-"` // among those of a run; they may be added in another order
	// Windows shows the requests and critical sections, on a time axis that begins with the scenario.
	Windows []timeline.Window `json:"windows,omitempty"`
}

// FaultStep is one thing that happened.
type FaultStep struct {
	After time.Duration `json:"after_ns"` // since the scenario began
	Kind  StepKind      `json:"kind,omitempty"`
	Text  string        `json:"text"`
}

// StepKind says what a step means to the scenario.
type StepKind string

// The kinds of steps.
const (
	Event   StepKind = ""
	Strike  StepKind = "strike" // the fault strikes
	Proof   StepKind = "proof"  // shows that the fault struck
	Mending StepKind = "mended" // the fault is over
)

// String returns the outcome, and for how long the item was blocked.
func (f Fault) String() string {
	switch {
	case f.Seconds == 0:
	case f.Effect == Blocked && f.Until != "":
		return "blocked until " + f.Until
	case f.Effect == Blocked:
		return fmt.Sprintf("blocked %.1f s", f.Seconds)
	case f.Effect == Unavailable:
		return fmt.Sprintf("unavailable (%.0f s)", f.Seconds)
	}
	return string(f.Effect)
}

// Found returns the outcome, and the first evidence if there is any.
func (f Fault) Found() string {
	if len(f.Evidence) == 0 {
		return f.String()
	}
	return fmt.Sprintf("%s (%s)", f, f.Evidence[0])
}

// claimWords are the words of the tables of strategies for what the catalogue claims about faults.
var claimWords = map[string]string{
	"harmless":                "safe",
	"rolls-back":              "safe: the server rolls back",
	"unlocks":                 "safe: the server frees the lock at once",
	"blocks-until-lease-ends": "blocked until the lease ends",
	"blocks-forever":          "blocked for ever",
	"refused":                 "safe: its write is refused",
	"not-sent":                "gives up, unless it has sent its write",
	"blocks":                  "blocks the item meanwhile",
	"loses-updates":           "loses an update",
	"deducts-again":           "deducts again",
	"repeats-answer":          "with an idempotency key: the first answer again",
	"sent-once":               "the request is sent once",
	"sells-once":              "the request sells once",
}

// ClaimWords says what the strategy claims about this fault. A claim is a value of the catalogue, which something may
// follow, or a text of the scenario.
func (f Fault) ClaimWords() string {
	end := strings.IndexAny(f.Claimed+" ", " :")
	value, rest := f.Claimed[:end], f.Claimed[end:]
	return cmp.Or(claimWords[value], value) + rest
}

// AddFault adds what came of a fault scenario.
func (b *Builder) AddFault(f Fault) { b.faults = append(b.faults, f) }

// faultsOf returns the outcomes of a row's strategy by scenario. If a scenario was repeated, the worst counts.
func (r *Report) faultsOf(row *Row) map[string]string {
	if row.Replicas < 2 {
		return nil // scenarios are played on two replicas
	}
	worst := map[string]Fault{}
	for _, f := range r.Faults {
		if f.Strategy != row.Strategy || f.Store != row.Store {
			continue
		}
		if was, known := worst[f.Scenario]; !known || f.Severity() > was.Severity() {
			worst[f.Scenario] = f
		}
	}
	if len(worst) == 0 {
		return nil
	}
	words := map[string]string{}
	for scenario, f := range worst {
		words[scenario] = f.String()
	}
	return words
}

// Severity orders outcomes from the best to the worst.
func (f Fault) Severity() int {
	return slices.Index([]Effect{Skipped, Safe, Blocked, Unavailable, Inconclusive, Unsafe}, f.Effect)
}

// Scenarios returns the names of the fault scenarios, in the order in which they were played.
func (r *Report) Scenarios() (names []string) {
	for _, f := range r.Faults {
		if !slices.Contains(names, f.Scenario) {
			names = append(names, f.Scenario)
		}
	}
	return names
}

// faultProblems appends a problem for each claim about a fault that did not hold.
func (r *Report) faultProblems() {
	for _, f := range r.Faults {
		if f.ClaimHeld || f.Effect == Skipped {
			continue
		}
		r.ClaimsHeld = false
		what := "claim not held"
		if f.Effect == Inconclusive {
			r.Inconclusive, what = true, "inconclusive"
		} else {
			r.ClaimFailed = true
		}
		r.Problems = append(r.Problems,
			fmt.Sprintf("%s: %s, %s: claims %q, found %s", what, f.Scenario, f.Strategy, f.ClaimWords(), f.Found()))
	}
}

// writeFaults writes the fault scenarios.
func (r *Report) writeFaults(out printer) {
	if len(r.Faults) == 0 {
		return
	}
	out.section("Faults")
	r.writeScenarios(out)
	for _, f := range r.Faults {
		if f.First != "" {
			out.paragraph(fmt.Sprintf("Played again, alone: %s, %s: first %s, then %s.", f.Scenario, f.Strategy, f.First, f))
		}
	}
}
