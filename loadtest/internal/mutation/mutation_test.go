package mutation

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

func TestATrialPassesIfTheJudgeWasRightAboutAMutantThatStruck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		oddity  bool
		verdict verify.Result
		strikes int64
		want    bool
	}{
		{false, verify.Wrong, 1, true},
		{false, verify.Correct, 1, false},
		{false, verify.Inconclusive, 1, false},
		{true, verify.Correct, 1, true},
		{true, verify.Wrong, 1, false},
		{true, verify.Inconclusive, 1, false},
		{false, verify.Wrong, 0, false},
		{true, verify.Correct, 0, false},
	} {
		trial := Trial{Mutant: Mutant{Oddity: test.oddity}, Verdict: test.verdict, Strikes: test.strikes}
		if got := trial.Passed(); got != test.want {
			t.Errorf("oddity %v, %s, %d strikes: passed %v, want %v",
				test.oddity, test.verdict, test.strikes, got, test.want)
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
		trial := Trial{Mutant: Mutant{Fault: "stock-set"}, Verdict: verify.Correct}
		err := trial.addExplored(test.found)
		if trial.Verdict != test.want || (err != nil) != (test.want == verify.Wrong) || trial.counted() {
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
		trial := Trial{Mutant: Mutant{Story: "story"}, Verdict: verify.Correct}
		err := trial.addStory(report.Fault{Scenario: "story", Effect: test.outcome, ClaimHeld: test.held})
		if trial.Verdict != test.want || errors.Is(err, errDecided) != (test.want == verify.Wrong) {
			t.Errorf("%s, claim held %v: %s, %v, want %s", test.outcome, test.held, trial.Verdict, err, test.want)
		}
		if trial.Passed() != (test.want == verify.Wrong) {
			t.Errorf("%s, claim held %v: passed %v", test.outcome, test.held, trial.Passed())
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
			var run load.Measured
			run.Verdict.Result = result
			run.History.Run.Workload.Name = fmt.Sprint("workload ", i+1)
			run.Verdict.Evidence = []string{fmt.Sprint("evidence ", i+1), "more"}
			if err := trial.add(run); errors.Is(err, errDecided) != (result == wrong) {
				t.Errorf("%v: run %d: %v", test.runs, i+1, err)
			}
		}
		want := Trial{Verdict: test.want, Runs: len(test.runs)}
		if test.from > 0 {
			want.Workload, want.Evidence = fmt.Sprint("workload ", test.from), fmt.Sprint("evidence ", test.from)
		}
		if trial != want {
			t.Errorf("%v: got %+v, want %+v", test.runs, trial, want)
		}
	}
}

func TestTheSummaryCountsBugsAndOddities(t *testing.T) {
	t.Parallel()
	bug, oddity := Mutant{}, Mutant{Oddity: true}
	got := Summary([]Trial{
		{Mutant: bug, Verdict: verify.Wrong, Strikes: 1},
		{Mutant: bug, Verdict: verify.Wrong, Strikes: 1},
		{Mutant: bug, Verdict: verify.Correct, Strikes: 1},
		{Mutant: oddity, Verdict: verify.Correct, Strikes: 1},
		{Mutant: oddity, Verdict: verify.Wrong, Strikes: 1},
	})
	if want := "2 of 3 bugs were found WRONG, 1 of 2 oddities CORRECT (0s)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestChooseFindsMutantsByName(t *testing.T) {
	t.Parallel()
	all := []Mutant{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	got, err := Choose(all, []string{"c", "a"})
	if want := []Mutant{{Name: "c"}, {Name: "a"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := Choose(all, nil); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v, want all", got, err)
	}
	if _, err := Choose(all, []string{"d"}); err == nil {
		t.Error("an unknown name is accepted")
	}
}
