package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// rounds returns a report of one row, with a round for each goodput.
func rounds(goodput ...float64) *Report {
	row := &Row{Subject: history.Subject{Strategy: "update", Workload: history.Workload{Name: "plenty"}}}
	for i, v := range goodput {
		row.Rounds = append(row.Rounds, Cell{Round: 1 + i, GoodputPerS: v})
	}
	return &Report{Rows: []*Row{row}}
}

func TestCompareNeedsTwoRounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after *Report
		delta, note   string
	}{
		"three rounds":       {rounds(100, 102, 98), rounds(200, 204, 196), "+100.0%", ""},
		"inside the noise":   {rounds(100, 120, 90), rounds(102, 121, 93), "~", ""},
		"one with more":      {rounds(100, 102, 98), rounds(200, 204, 196, 199, 201), "+100.0%", ""},
		"a single round":     {rounds(100), rounds(200, 202), "~", "a single round tells nothing"},
		"two far apart":      {rounds(1, 1000), rounds(2, 3000), "~", ""},
		"a round of nothing": {rounds(100, 102, 0), rounds(200, 204, 196), "~", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Compare(c.before, c.after)
			if len(got.Figures) != 1 || got.Figures[0].Delta != c.delta {
				t.Fatalf("got %+v, want %s", got.Figures, c.delta)
			}
			notes := strings.Join(got.Notes, "\n")
			if !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("got the note %q, want %q", notes, c.note)
			}
		})
	}
}

func TestTheBaselineAloneIsNothingInCommon(t *testing.T) {
	t.Parallel()
	with := func(strategy, workload string) *Report {
		return &Report{Rows: []*Row{
			{Subject: history.Subject{Strategy: "noop"}, Baseline: true},
			{Subject: history.Subject{Strategy: strategy, Workload: history.Workload{Name: workload}}},
		}}
	}
	faults := func(scenario string) *Report {
		return &Report{Faults: []Fault{{Scenario: scenario, Strategy: "update"}}}
	}
	for _, test := range []struct {
		before, after *Report
		want          bool
	}{
		{with("update", "tail"), with("update", "tail"), true},
		{with("update", "tail"), with("batch", "tail"), false},
		{with("update", "tail"), with("update", "plenty"), false},
		{faults("late-write"), faults("late-write"), true},
		{faults("late-write"), faults("shutdown"), false},
		{faults("late-write"), with("update", "tail"), false},
	} {
		if got := HaveCommon(test.before, test.after); got != test.want {
			t.Errorf("%+v and %+v: %v, want %v", test.before, test.after, got, test.want)
		}
	}
}

func TestCompareTellsNewBrokenClaimsFromOldOnes(t *testing.T) {
	t.Parallel()
	reported := func(held map[string]bool) *Report {
		r := &Report{}
		for _, strategy := range []string{"a", "b", "c", "d", "e"} {
			claimHeld, there := held[strategy]
			if !there {
				continue
			}
			row := &Row{Subject: history.Subject{Strategy: strategy}, ClaimHeld: claimHeld}
			row.Result, row.Evidence = verify.Wrong, []string{"why"}
			r.Rows = append(r.Rows, row)
			r.Faults = append(r.Faults, Fault{Scenario: "late-write", Strategy: strategy, Effect: Safe, ClaimHeld: true})
		}
		return r
	}
	before := reported(map[string]bool{"a": true, "b": false, "c": false, "d": true, "e": false})
	after := reported(map[string]bool{"a": false, "b": true, "c": false, "d": true})
	after.Faults[3].ClaimHeld, after.Faults[3].Effect = false, Unsafe

	var got []string
	c := Compare(before, after)
	for _, claim := range c.Broken {
		got = append(got, fmt.Sprintf("%s %s", claim.State, claim.What))
	}
	want := []string{
		"new " + after.Rows[0].Label(), "resolved " + before.Rows[1].Label(), "ongoing " + before.Rows[2].Label(),
		"new late-write, d",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var out bytes.Buffer
	const line = "NEW: claim not held: late-write, d"
	if err := c.WriteText(&out, false); err != nil || !strings.Contains(out.String(), line) {
		t.Errorf("%v\n%s", err, &out)
	}
}
