package report

import (
	"bytes"
	"strings"
	"testing"

	"stock/internal/must"
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
	held := Fault{Scenario: "late-write", Strategy: "a", Outcome: Unsafe, Claimed: "loses-updates", ClaimHeld: true}
	failed := Fault{
		Scenario: "late-write", Strategy: "b", Outcome: Unsafe, Claimed: "refused", Evidence: []string{"1 unit is lost"},
	}
	unproved := Fault{Scenario: "late-write", Strategy: "c", Outcome: Inconclusive, Claimed: "refused"}
	skipped := Fault{Scenario: "late-write", Strategy: "d", Outcome: Skipped}
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
	add := func(scenario, strategy string, outcome Outcome, seconds float64) {
		faults = append(faults, Fault{
			Scenario: scenario, Title: "It breaks.", Strategy: strategy, Outcome: outcome, Seconds: seconds,
			Proof: "the port is closed", ClaimHeld: outcome != Inconclusive, Evidence: []string{"no compiler"},
		})
	}
	for _, strategy := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		add("one", strategy, Safe, 0)
	}
	add("one", "h", Unsafe, 0)
	add("two", "a", Blocked, 1.51)
	add("two", "b", Blocked, 2.04)
	add("three", "a", Safe, 0)
	add("three", "a", Inconclusive, 0)
	add("four", "a", Skipped, 0)
	add("five", "a", Safe, 0)
	r := faultReport(faults...)
	var text bytes.Buffer
	must.Succeed(t, r.WriteText(&text, false))
	for _, want := range []string{
		"- one: It breaks.\n  - unsafe: h\n  - safe: 7 strategies\n  - proof (a): the port is closed\n",
		"- two: It breaks.\n  - blocked 1.5–2.0 s: a, b\n",
		"- three: It breaks.\n  - inconclusive: a 1/2 ✗\n  - safe: a 1/2\n",
		"- four: It breaks.\n  - skipped (no compiler): a\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
}

func TestEachReasonForSkippingIsShownOnce(t *testing.T) {
	t.Parallel()
	skipped := func(strategy, reason string) Fault {
		return Fault{Scenario: "one", Strategy: strategy, Outcome: Skipped, Evidence: []string{reason}}
	}
	var text bytes.Buffer
	r := faultReport(skipped("a", "no etcd"), skipped("b", "no ZooKeeper"), skipped("c", "no etcd"))
	must.Succeed(t, r.WriteText(&text, false))
	if want := "  - skipped (no etcd): a, c\n  - skipped (no ZooKeeper): b\n"; !strings.Contains(text.String(), want) {
		t.Errorf("the text lacks %q:\n%s", want, &text)
	}
}

func TestTheReportSaysWhatWasPlayedAgain(t *testing.T) {
	t.Parallel()
	// What is played again is added last.
	r := faultReport(
		Fault{Scenario: "late-write", Strategy: "b", Outcome: Safe, ClaimHeld: true, Place: 2},
		Fault{Scenario: "shutdown", Strategy: "a", Outcome: Safe, ClaimHeld: true, Place: 1, First: "blocked 1.4 s"},
	)
	if got := r.Scenarios(); got[0] != "shutdown" {
		t.Errorf("in the order %q", got)
	}
	var text bytes.Buffer
	must.Succeed(t, r.WriteText(&text, false))
	const want = "Played again, alone: shutdown, a: first blocked 1.4 s, then safe.\n"
	if !strings.Contains(text.String(), want) {
		t.Errorf("%q is missing:\n%s", want, &text)
	}
}
