package report

import (
	"strings"
	"testing"
)

func faultReport(faults ...Fault) *Report {
	b := NewBuilder(Environment{})
	for _, f := range faults {
		b.AddFault(f)
	}
	return b.Report()
}

func TestAFaultWhoseClaimFailedIsAProblem(t *testing.T) {
	t.Parallel()
	held := Fault{Scenario: "late-write", Strategy: "a", Effect: Unsafe, Claimed: "loses-updates", ClaimHeld: true}
	failed := Fault{
		Scenario: "late-write", Strategy: "b", Effect: Unsafe, Claimed: "refused", Evidence: []string{"1 unit is lost"},
	}
	unproved := Fault{Scenario: "late-write", Strategy: "c", Effect: Inconclusive, Claimed: "refused"}
	skipped := Fault{Scenario: "late-write", Strategy: "d", Effect: Skipped}
	for _, test := range []struct {
		name                 string
		fault                Fault
		failed, inconclusive bool
		problem              string
	}{
		{"held", held, false, false, ""},
		{
			"failed", failed, true, false,
			`claim not held: late-write, b: claims "safe: its write is refused", found unsafe (1 unit is lost)`,
		},
		{
			"unproved", unproved, false, true,
			`inconclusive: late-write, c: claims "safe: its write is refused", found inconclusive`,
		},
		{"skipped", skipped, false, false, ""},
	} {
		r := faultReport(test.fault)
		problem := strings.Join(r.Problems, "; ")
		if r.ClaimFailed != test.failed || r.Inconclusive != test.inconclusive || problem != test.problem {
			t.Errorf("%s: claim failed %t, inconclusive %t, problems %q", test.name, r.ClaimFailed, r.Inconclusive, r.Problems)
		}
	}
}

func TestManyScenariosAreShownOneBelowTheOther(t *testing.T) {
	t.Parallel()
	var faults []Fault
	add := func(scenario, strategy string, outcome Effect, seconds float64) {
		faults = append(faults, Fault{
			Scenario: scenario, Title: "It breaks.", Strategy: strategy, Effect: outcome, Seconds: seconds,
			Proof: "the port is closed", ClaimHeld: outcome != Inconclusive, Evidence: []string{"no compiler"},
		})
	}
	for _, strategy := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		add("one", strategy, Safe, 0)
	}
	add("one", "h", Unsafe, 0)
	add("two", "a", Blocked, 1.51)
	add("two", "b", Blocked, 2.04)
	add("two", "c", Blocked, 4.01)
	faults[len(faults)-1].Until = "the lease ends (here 4 s)"
	add("two", "d", Blocked, 4.33)
	faults[len(faults)-1].Until = "the lease ends (here 4 s)"
	add("three", "a", Safe, 0)
	add("three", "a", Inconclusive, 0)
	add("four", "a", Skipped, 0)
	add("four", "b", Skipped, 0)
	faults[len(faults)-1].Evidence = []string{"no ZooKeeper"}
	add("four", "c", Skipped, 0)
	add("five", "a", Safe, 0)
	mustSay(t, text(t, faultReport(faults...)),
		"- one: It breaks.\n  - unsafe: h\n  - safe: 7 strategies\n  - proof (a): the port is closed\n",
		"- two: It breaks.\n  - blocked 1.5–2.0 s: a, b\n  - blocked until the lease ends (here 4 s): c, d\n",
		"- three: It breaks.\n  - inconclusive: a 1/2 ✗\n  - safe: a 1/2\n",
		"- four: It breaks.\n  - skipped (no compiler): a, c\n  - skipped (no ZooKeeper): b\n")
}

func TestTheReportSaysWhatWasPlayedAgain(t *testing.T) {
	t.Parallel()
	// What is played again is added last.
	r := faultReport(
		Fault{Scenario: "late-write", Strategy: "b", Effect: Safe, ClaimHeld: true, Place: 2},
		Fault{Scenario: "shutdown", Strategy: "a", Effect: Safe, ClaimHeld: true, Place: 1, First: "blocked 1.4 s"},
	)
	if got := r.Scenarios(); got[0] != "shutdown" {
		t.Errorf("in the order %q", got)
	}
	mustSay(t, text(t, r), "Played again, alone: shutdown, a: first blocked 1.4 s, then safe.\n")
}
