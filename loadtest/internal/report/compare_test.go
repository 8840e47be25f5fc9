package report

import (
	"bytes"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
)

func TestReportDoesNotDifferFromItself(t *testing.T) {
	t.Parallel()
	c := Compare(sample(), sample())
	for _, m := range c.Figures {
		if m.Delta != "~" {
			t.Errorf("%s, %s: a report differs from itself by %s", m.Row, m.Figure, m.Delta)
		}
	}
	if len(c.Changed)+len(c.OnlyOld)+len(c.OnlyNew) != 0 {
		t.Errorf("got %+v", c)
	}
}

// rounds returns a report of one row, with a round for each goodput.
func rounds(goodput ...float64) *Report {
	row := &Row{Subject: history.Subject{Strategy: "update", Workload: history.Workload{Name: "plenty"}}}
	for i, v := range goodput {
		row.Rounds = append(row.Rounds, Cell{Round: 1 + i, GoodputPerS: v})
	}
	return &Report{Rows: []*Row{row}}
}

func TestCompareChoosesItsTestByTheNumberOfRounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after *Report
		delta, note   string
	}{
		// ln: means 4.6049 and 5.2981, s = 0.0200 both, t = 42.4 with 4 degrees of freedom
		"three rounds":     {rounds(100, 102, 98), rounds(200, 204, 196), "+100.00%", "Welch's t-test over the logarithms"},
		"inside the noise": {rounds(100, 120, 90), rounds(102, 121, 93), "~", "Welch's t-test over the logarithms"},
		"one with more": {
			rounds(100, 102, 98), rounds(200, 204, 196, 199, 201), "+100.01%", "Welch's t-test over the logarithms",
		},
		"four rounds":        {rounds(100, 102, 98, 101), rounds(200, 204, 196, 202), "+100.00%", ""},
		"a single round":     {rounds(100), rounds(200), "~", "a single round tells nothing"},
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

func TestCompareReportsThatNothingIsInCommon(t *testing.T) {
	t.Parallel()
	row := func(hold int64) *Report {
		workload := history.Workload{Name: "plenty", HoldMS: hold}
		return &Report{Rows: []*Row{{Subject: history.Subject{Strategy: "update", Workload: workload}}}}
	}
	var out bytes.Buffer
	if err := Compare(row(0), row(2)).WriteText(&out, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Nothing to compare") {
		t.Errorf("reports of different holds: %s", &out)
	}
}
