package mutation

import (
	"slices"
	"testing"

	"stock/loadtest/internal/verify"
)

func TestATrialPassesIfTheJudgeWasRightAboutAMutantThatStruck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		harmless bool
		verdict  verify.Result
		strikes  int64
		want     bool
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
		trial := Trial{Mutant: Mutant{Harmless: test.harmless}, Verdict: test.verdict, Strikes: test.strikes}
		if got := trial.Passed(); got != test.want {
			t.Errorf("harmless %v, %s, %d strikes: passed %v, want %v",
				test.harmless, test.verdict, test.strikes, got, test.want)
		}
	}
}

func TestTheSummaryCountsBugsAndOddities(t *testing.T) {
	t.Parallel()
	bug, oddity := Mutant{}, Mutant{Harmless: true}
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
