package plant

import (
	"errors"
	"fmt"
	"testing"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

func TestATrialPassesIfTheJudgeWasRightAboutAChangeThatWasExecuted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		oddity         bool
		verdict        verify.Result
		executed       bool
		passed, judged bool
	}{
		{false, verify.Wrong, true, true, true},
		{false, verify.Correct, true, false, true},
		{false, verify.Inconclusive, true, false, false},
		{true, verify.Correct, true, true, true},
		{true, verify.Wrong, true, false, true},
		{true, verify.Inconclusive, true, false, false},
		{false, verify.Wrong, false, false, false},
		{true, verify.Correct, false, false, false},
	} {
		trial := Trial{Row: Row{Oddity: test.oddity}, Verdict: test.verdict, Executed: test.executed}
		if trial.Passed() != test.passed || trial.Judged() != test.judged {
			t.Errorf("%+v: passed %v, judged %v", test, trial.Passed(), trial.Judged())
		}
	}
}

func TestAnExplorationGivesABugAwayByTheFaultThatShowsIt(t *testing.T) {
	t.Parallel()
	found := func(c trace.Cell) trace.Result { return trace.Result{Exhausted: true, Cells: []trace.Cell{c}} }
	for name, test := range map[string]struct {
		found trace.Result
		want  verify.Result
	}{
		"a claim is refuted":    {found(trace.Cell{Fault: "stock-set"}), verify.Wrong},
		"by another fault":      {found(trace.Cell{Fault: "lost-reply"}), verify.Correct},
		"no claim is refuted":   {found(trace.Cell{Fault: "stock-set", Held: true}), verify.Correct},
		"not all were executed": {trace.Result{}, verify.Inconclusive},
	} {
		trial := Trial{Row: Row{Fault: "stock-set"}, Verdict: verify.Correct}
		err := trial.addExplored(test.found)
		if trial.Verdict != test.want || (err != nil) != (test.want == verify.Wrong) {
			t.Errorf("%s: %s, %v; want %s", name, trial.Verdict, err, test.want)
		}
	}
}

func TestAScenarioGivesABugAwayIfTheStrategyShouldBeSafeInIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		outcome report.Effect
		held    bool
		want    verify.Result
	}{
		{report.Unsafe, false, verify.Wrong},
		{report.Unsafe, true, verify.Correct},
		{report.Safe, true, verify.Correct},
		{report.Blocked, false, verify.Inconclusive},
		{report.Inconclusive, false, verify.Inconclusive},
	} {
		trial := Trial{Verdict: verify.Correct}
		err := trial.addPlayed(report.Fault{Scenario: "scenario", Effect: test.outcome, ClaimHeld: test.held})
		if trial.Verdict != test.want || errors.Is(err, errDecided) != (test.want == verify.Wrong) {
			t.Errorf("%s, claim held %v: %s, %v, want %s", test.outcome, test.held, trial.Verdict, err, test.want)
		}
	}
}

func TestTheWorstVerdictCountsAndWrongEndsTheTrial(t *testing.T) {
	t.Parallel()
	const correct, inconclusive, wrong = verify.Correct, verify.Inconclusive, verify.Wrong
	for _, test := range []struct {
		runs []verify.Result
		want verify.Result
		from int // the run that the verdict is from
	}{
		{[]verify.Result{correct, correct}, correct, 0},
		{[]verify.Result{correct, inconclusive, correct, inconclusive}, inconclusive, 2},
		{[]verify.Result{inconclusive, correct, wrong}, wrong, 3},
	} {
		trial := Trial{Verdict: correct}
		for i, result := range test.runs {
			evidence := []string{fmt.Sprint("evidence ", i+1), "more"}
			err := trial.add(result, fmt.Sprint("workload ", i+1), evidence)
			if errors.Is(err, errDecided) != (result == wrong) {
				t.Errorf("%v: run %d: %v", test.runs, i+1, err)
			}
		}
		by, evidence := "", ""
		if test.from > 0 {
			by, evidence = fmt.Sprint("workload ", test.from), fmt.Sprint("evidence ", test.from)
		}
		if trial.Verdict != test.want || trial.Runs != len(test.runs) || trial.Workload != by || trial.Evidence != evidence {
			t.Errorf("%v: got %+v, want %s by %q", test.runs, trial, test.want, by)
		}
	}
}

func TestTheSummaryCountsBugsAndOddities(t *testing.T) {
	t.Parallel()
	bug, oddity := Row{}, Row{Oddity: true}
	got := Summary([]Trial{
		{Row: bug, Verdict: verify.Wrong, Executed: true},
		{Row: bug, Verdict: verify.Wrong, Executed: true},
		{Row: bug, Verdict: verify.Correct, Executed: true},
		{Row: oddity, Verdict: verify.Correct, Executed: true},
		{Row: oddity, Verdict: verify.Correct},
	})
	if want := "2 of 3 bugs were found WRONG, 1 of 2 oddities CORRECT, 1 not judged (0s)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
