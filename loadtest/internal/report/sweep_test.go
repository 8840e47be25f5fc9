package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// at returns a round of a strategy at a value of a sweep, with 300 units.
func at(axis string, value int, strategy string, round int) history.Run {
	run := plenty(strategy, "correct")
	run.Store, run.Round, run.Sweep, run.Value = "mysql", round, axis, fmt.Sprint(value)
	run.Initial = map[int64]int64{1: 300}
	return run
}

// swept is a sweep over users: three rounds of each strategy at 1, 8 and 32 users. paces are the µs per request at
// these values, 0 for a value that was not run. The rounds differ by noise percent, optimistic's in another way than
// the others, so that the standard error of its ratio to another strategy is noise percent, too.
func swept(paces map[string][3]int, noise int) *Report {
	b := NewBuilder(Environment{})
	for round := 1; round <= 3; round++ {
		for strategy, pace := range paces {
			for i, users := range []int{1, 8, 32} {
				if pace[i] == 0 {
					continue
				}
				percent := 100 + noise*[]int{1, -1, 0}[round-1]
				if strategy == "optimistic" {
					percent = 100 + noise*[]int{0, 1, -1}[round-1]
				}
				h := play(at("users", users, strategy, round), 300,
					time.Duration(pace[i])*time.Microsecond*time.Duration(percent)/20)
				h.Run.Users = users
				if users == 1 {
					for i := range h.Ops {
						h.Ops[i].ReceivedNS = h.Ops[i].SentNS + 10
					}
				}
				b.Add(h, verify.Judge(h))
			}
		}
	}
	return b.Report()
}

func TestSweepShowsHowCostGrows(t *testing.T) {
	t.Parallel()
	r := swept(map[string][3]int{"update": {300, 150, 100}, "for-update": {600, 600, 1200}}, 2)
	if r.Err() != nil {
		t.Errorf("problems: %q", r.Problems)
	}
	s := r.Sweep
	if s == nil || s.Axis != "users" || strings.Join(s.Values, " ") != "1 8 32" || len(s.Curves) != 2 ||
		s.Curves[0].Strategy != "update" {
		t.Fatalf("got %+v", s)
	}
	last := s.Curves[1].Points[2]
	if last.At != 32 || last.RatioToFirst == nil || *last.RatioToFirst != 0.5 || last.RatioInterval == nil {
		t.Errorf("for-update at 32 users: %+v, want half its first value, with an interval", last)
	}
	if first := s.Curves[1].Points[0]; first.RatioToFirst != nil || !first.Untested || first.ClaimHeld {
		t.Errorf("for-update with one user: %+v, want no ratio and an untested claim", first)
	}
	if len(s.Crossovers) > 0 {
		t.Errorf("found crossovers although update is always faster: %v", s.Crossovers)
	}
	var out bytes.Buffer
	if err := r.WriteText(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"plenty · goodput/s by users · 2 replicas", "0.50×", "untested"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, out.String())
		}
	}
}

func TestCrossoverNeedsSignificantDifferences(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// noise is in percent. By Student's t and three rounds, a difference is significant from 4.3 times the noise on, and
		// the first of three differences from 7.7 times.
		noise int
		paces map[string][3]int
		want  []string
	}{
		{"between neighbours", 2, map[string][3]int{"optimistic": {100, 200, 800}, "for-update": {200, 400, 400}},
			[]string{"from 32 users on, optimistic falls below for-update: " +
				"2.00 ± 0.17× as fast at 8 users, 0.50 ± 0.04× at 32 users"}},
		{"with a tie between", 2, map[string][3]int{"optimistic": {100, 200, 800}, "for-update": {200, 200, 400}},
			[]string{"from 32 users on, optimistic falls below for-update: " +
				"2.00 ± 0.17× as fast at 1 user, 0.50 ± 0.04× at 32 users"}},
		{"for good", 2, map[string][3]int{"optimistic": {100, 800, 900}, "for-update": {200, 400, 400}},
			[]string{"from 8 users on, optimistic falls below for-update"}},
		{"there and back", 2, map[string][3]int{"optimistic": {100, 800, 100}, "for-update": {200, 400, 200}},
			[]string{"at 8 users, optimistic falls below for-update", "from 32 users on, for-update falls below optimistic"}},
		{"then a tie", 2, map[string][3]int{"optimistic": {100, 800, 400}, "for-update": {200, 400, 400}},
			[]string{"at 8 users, optimistic falls below for-update"}},
		{"then not run", 2, map[string][3]int{"optimistic": {100, 800, 0}, "for-update": {200, 400, 200}},
			[]string{"at 8 users, optimistic falls below for-update"}},
		{"never", 2, map[string][3]int{"optimistic": {100, 200, 300}, "for-update": {100, 200, 400}}, nil},
		{"not run at every value", 2, map[string][3]int{"optimistic": {100, 0, 800}, "for-update": {200, 400, 0}}, nil},
		{"inside the noise", 10, map[string][3]int{"optimistic": {400, 400, 500}, "for-update": {400, 500, 400}}, nil},
		{"outside the noise of one comparison, but not of three", 10,
			map[string][3]int{"optimistic": {400, 400, 660}, "for-update": {400, 660, 400}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			crossovers := swept(test.paces, test.noise).Sweep.Crossovers
			if len(crossovers) != len(test.want) {
				t.Fatalf("got %+v, want %d crossovers", crossovers, len(test.want))
			}
			for i, c := range crossovers {
				if !strings.HasPrefix(c.Text, test.want[i]) {
					t.Errorf("got  %s\nwant %s", c.Text, test.want[i])
				}
			}
		})
	}
}

func TestEqualStrategiesSeldomCross(t *testing.T) {
	t.Parallel()
	const sweeps, strategies, noise = 40, 20, 0.1
	random := rand.New(rand.NewPCG(1, 2))
	named := 0
	for range sweeps {
		var r Report
		for strategy := range strategies {
			for _, users := range []int{1, 8, 32, 128} {
				row := &Row{
					Subject: history.Subject{
						Strategy: fmt.Sprint("s", strategy), Replicas: 2, Sweep: "users",
						Workload: history.Workload{Name: "plenty", Users: users},
					},
					Claim: verify.ClaimCorrect,
				}
				row.Result = verify.Correct
				for round := 1; round <= 3; round++ {
					row.Rounds = append(row.Rounds, Cell{Round: round, GoodputPerS: 1000 * math.Exp(noise*random.NormFloat64())})
				}
				r.Rows = append(r.Rows, row)
			}
		}
		if len(r.sweep().Crossovers) > 0 {
			named++
		}
	}
	if limit := int(significance * sweeps); named > limit {
		t.Errorf("%d of %d sweeps of equal strategies have a crossover, want %d at most", named, sweeps, limit)
	}
}

func TestWrongStrategyHasNoCrossovers(t *testing.T) {
	t.Parallel()
	// "none" loses updates (see play), whatever it promises.
	r := swept(map[string][3]int{"none": {100, 200, 800}, "for-update": {200, 400, 400}}, 2)
	if len(r.Sweep.Crossovers) > 0 || r.Err() == nil {
		t.Errorf("crossovers %v, problems %q: want no crossovers and a claim that did not hold",
			r.Sweep.Crossovers, r.Problems)
	}
}

func TestSingleUserProvesNothing(t *testing.T) {
	t.Parallel()
	if r := swept(map[string][3]int{"update": {100, 0, 0}}, 2); r.Err() == nil || r.ClaimsHeld {
		t.Error("a strategy that was never tested is reported as correct")
	}
}

func TestUncontendedValueOfASweepIsUntested(t *testing.T) {
	t.Parallel()
	for rest, held := range map[int]bool{5: true, 300: false} {
		b := NewBuilder(Environment{})
		for goods, contended := range map[int]int{1: rest, 1000: 300} {
			h := play(at("goods", goods, "update", 1), 300, time.Millisecond)
			for id := 2; id <= goods; id++ {
				h.Run.Initial[int64(id)], h.End.Final[int64(id)] = 5, 5
			}
			for i := range h.Ops[:contended] {
				h.Ops[i].ReceivedNS = h.Ops[i].SentNS + 10
			}
			b.Add(h, verify.Judge(h))
		}
		r := b.Report()
		for _, row := range r.Rows {
			if row.Uncontended != (row.Goods == 1000 || !held) || row.Untested != (row.Goods == 1000 && held) {
				t.Errorf("%s: uncontended %v, untested %v", row.Label(), row.Uncontended, row.Untested)
			}
		}
		if r.ClaimsHeld != held {
			t.Errorf("claims held: %v, want %v: %v", r.ClaimsHeld, held, r.Problems)
		}
	}
}

func TestReportWithoutASweepHasNone(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := sample().WriteJSON(&out); err != nil || sample().Sweep != nil ||
		strings.Contains(out.String(), `"sweep"`) {
		t.Errorf("%v, sweep %v", err, sample().Sweep)
	}
}

func TestRowsOfOlderReportsAreStillCompared(t *testing.T) {
	t.Parallel()
	old := *sample()
	text, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	// Older reports do not record the number of items.
	before, err := ReadJSON(strings.NewReader(strings.ReplaceAll(string(text), `"goods":1,`, "")))
	if err != nil {
		t.Fatal(err)
	}
	if c := Compare(before, sample()); len(c.OnlyOld)+len(c.OnlyNew) > 0 || len(c.Figures) == 0 {
		t.Errorf("only in the old: %v, only in the new: %v", c.OnlyOld, c.OnlyNew)
	}
}

func TestSweepOverGoodsKeepsItsRowsApart(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	for _, goods := range []int{1, 10} {
		h := play(at("goods", goods, "update", 1), 300, time.Millisecond)
		for id := 2; id <= goods; id++ {
			h.Run.Initial[int64(id)], h.End.Final[int64(id)] = 5, 5
		}
		b.Add(h, verify.Judge(h))
	}
	r := b.Report()
	if len(r.Rows) != 2 || len(r.Sweep.Curves) != 1 || len(r.Sweep.Curves[0].Points) != 2 {
		t.Fatalf("got %d rows, %+v", len(r.Rows), r.Sweep)
	}
	for i, want := range []string{
		"update, plenty, 2 replicas, mysql, 1 item",
		"update, plenty, 2 replicas, mysql, 10 items",
	} {
		if got := r.Rows[i].Label(); got != want {
			t.Errorf("row %d is %q, want %q", i, got, want)
		}
	}
}
