package report

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

func TestReportDoesNotDifferFromItself(t *testing.T) {
	t.Parallel()
	c := Compare(sample(), sample())
	for _, m := range c.Figures {
		if m.Delta != "~" {
			t.Errorf("%s, %s: a report differs from itself by %s", m.Row, m.Figure, m.Delta)
		}
	}
	if len(c.Broken)+len(c.OnlyOld)+len(c.OnlyNew) != 0 {
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

// simulated is a lab that is run in a simulation: 36 strategies, of which the first ten run in twelve rounds and the
// others in three, on a machine that is slowed down for a moment in some of them.
type simulated struct {
	random *rand.Rand
	noise  float64 // standard deviation of a round's speed
	spoilt float64 // part of the rounds that something else slows down
}

func (s simulated) speed(of float64) float64 {
	log := s.noise * s.random.NormFloat64()
	if s.random.Float64() < s.spoilt {
		log -= 0.5 * s.random.ExpFloat64()
	}
	return of * math.Exp(log)
}

// run returns a report. processor slows down noop and half of the strategies, disk the other half; changed is the
// speed of the first strategy.
func (s simulated) run(processor, disk, changed float64) *Report {
	cell := func(round int, speed float64) Cell {
		return Cell{
			Round: round, ElapsedS: 1, GoodputPerS: speed, ThroughputPerS: speed,
			Verdict: verify.Verdict{Figures: verify.Figures{Covered: int64(speed)}}, LatencyMS: Latency{P50: 1e6 / speed},
		}
	}
	row := func(name string) *Row {
		return &Row{Subject: history.Subject{Strategy: name, Workload: history.Workload{Name: "plenty"}}}
	}
	noop := row("noop")
	noop.Baseline = true
	for round := 1; round <= 12; round++ {
		noop.Rounds = append(noop.Rounds, cell(round, s.speed(20_000*processor)))
	}
	r := &Report{Rows: []*Row{noop}}
	for i := range 36 {
		row, speed, n := row(fmt.Sprint("strategy ", i)), 5000*processor, 3
		if i%2 == 1 {
			speed = 1000 * disk
		}
		if i < 10 {
			n = 12
		}
		if i == 0 {
			speed *= changed
		}
		for k := range n {
			row.Rounds = append(row.Rounds, cell(1+k*12/n, s.speed(speed)))
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

// differing returns the names of the rows that compare reports as different.
func differing(c *Comparison) map[string]bool {
	rows := map[string]bool{}
	for _, change := range c.Figures {
		if change.Delta != "~" {
			name, _, _ := strings.Cut(change.Row, ",")
			rows[name] = true
		}
	}
	return rows
}

func TestALabSeldomDiffersFromItself(t *testing.T) {
	t.Parallel()
	for name, machine := range map[string]struct{ processor, disk float64 }{
		"as before":      {1, 1},
		"busy processor": {0.6, 1},
		"busy machine":   {0.6, 0.6},
	} {
		const runs = 20
		lab := simulated{random: rand.New(rand.NewPCG(3, 4)), noise: 0.1, spoilt: 0.15}
		differences := 0
		for range runs {
			found := differing(Compare(lab.run(1, 1, 1), lab.run(machine.processor, machine.disk, 1)))
			delete(found, "noop") // whose speed is that of the machine
			differences += len(found)
		}
		if differences > 36*runs/20 {
			t.Errorf("%s: %d of %d rows differ, want at most 5 %%", name, differences, 36*runs)
		}
	}
}

func TestCompareFindsTheOneRowThatChanged(t *testing.T) {
	t.Parallel()
	quiet := simulated{random: rand.New(rand.NewPCG(5, 6)), noise: 0.06, spoilt: 0.02}
	const runs = 50
	for _, changed := range []float64{0.75, 1.3} {
		found := 0
		for range runs {
			if differing(Compare(quiet.run(1, 1, 1), quiet.run(1, 1, changed)))["strategy 0"] {
				found++
			}
		}
		if found < runs*9/10 {
			t.Errorf("a strategy that is %v as fast is found in %d of %d comparisons", changed, found, runs)
		}
	}
}
