package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// withJudged reports a measured row, and two that are judged only. The judge finds none wrong; claimOfNone is what its
// row claims that is judged only.
func withJudged(claimOfNone string) *Report {
	var histories []*history.History
	orders := func(strategy, claim string) history.Run {
		run := plenty(strategy, claim)
		run.Workload.Name, run.Workload.Lines, run.JudgedOnly = "orders", 5, true
		return run
	}
	for _, run := range []history.Run{
		orders("none", claimOfNone), orders("update", "correct"),
		plenty("noop", "sells-nothing"), plenty("update", "correct"),
	} {
		h := play(run, 600, time.Millisecond)
		if run.JudgedOnly {
			for i := range h.Ops {
				asOrder(&h.Ops[i])
			}
		}
		histories = append(histories, h)
	}
	return reported(histories...)
}

// asOrder makes an order of a deduction.
func asOrder(op *history.Op) {
	op.Kind = history.Order
	op.Lines = []history.Line{{GoodsID: op.GoodsID, Count: op.Count, Remaining: op.Remaining}}
	op.GoodsID, op.Count, op.Remaining = 0, 0, 0
}

func TestRowsThatAreJudgedOnlyCountAndAreNotMeasured(t *testing.T) {
	t.Parallel()
	r := withJudged("correct")
	if r.ClaimsHeld || !r.ClaimFailed || r.Err() == nil || !strings.Contains(r.Err().Error(), "none, orders") {
		t.Errorf("claims held %v, problems %q: want that none is wrong", r.ClaimsHeld, r.Problems)
	}
	last := r.Rows[len(r.Rows)-2:]
	for _, row := range last {
		if !row.JudgedOnly || row.Ranked() || row.ShareOfNoop != nil || row.DriverCPUUSPerRequest != 0 ||
			row.Requests != 600 {
			t.Errorf("%s: %+v, want it judged, unranked, without figures of speed, and after the measured rows",
				row.Label(), row)
		}
	}
	got := text(t, r)
	const load = "orders · 600 requests on 600 units · 100 users · up to 5 lines per order · 1 round"
	mustSay(t, got, "## Judged, not measured\n\n- "+load+"\n  - wrong: none\n  - correct: update\n",
		"units sold but still in stock: 60")
	if strings.Count(got, "goodput/s") != 1 {
		t.Errorf("want one table\n%s", got)
	}
}

func TestJudgedRowsAreNamedByTheirStoreAndReplicas(t *testing.T) {
	t.Parallel()
	row := func(strategy, store string, replicas, lines int) *Row {
		return &Row{
			Subject: history.Subject{
				Strategy: strategy, Store: store, Replicas: replicas, Workload: history.Workload{Name: "retries", Lines: lines},
			},
			Verdict: verify.Verdict{Result: verify.Correct}, JudgedOnly: true,
		}
	}
	r := &Report{Rows: []*Row{
		row("update", "mysql", 2, 3), row("mutex", "mysql", 1, 0), row("lock", "mysql", 2, 0), row("lock", "mysql", 1, 0),
		row("update-one", "mysql", 2, 0),
	}}
	for _, test := range []struct{ store, deductions, orders string }{
		{"mysql", "lock, lock on 1 replica, mutex on 1 replica, update-one", "update"},
		{"redis", "lock@mysql, lock@redis on 1 replica, mutex@mysql on 1 replica, update-one@mysql", "update@mysql"},
	} {
		r.Rows[3].Store = test.store
		mustSay(t, text(t, r), "- retries · 0 rounds\n  - correct: "+test.deductions+"\n"+
			"- retries · up to 3 lines per order · 0 rounds\n  - correct: "+test.orders+"\n")
	}
}

func TestJudgedRowsHaveNoSpeedToCompare(t *testing.T) {
	t.Parallel()
	c := Compare(withJudged("correct"), withJudged("correct"))
	for _, change := range c.Figures {
		if strings.Contains(change.Row, "orders") {
			t.Errorf("compared %+v", change)
		}
	}
	if len(c.Figures) == 0 {
		t.Error("nothing is compared, want figures of measured rows")
	}
}

func TestAFailedClaimIsDistinguishedFromWhatCouldNotBeJudged(t *testing.T) {
	t.Parallel()
	short := play(plenty("update", "correct"), 50, time.Millisecond)
	wrong := play(plenty("none", "correct"), 600, time.Millisecond)
	clean := play(plenty("was-none", "loses-updates"), 600, time.Millisecond)
	clean.Run.Control = true
	decrement := func(claim string, stock int64) *history.History {
		run := plenty("decrement", claim)
		run.Workload.Name, run.Control, run.Initial = fmt.Sprint("stock of ", stock), true, map[int64]int64{1: stock}
		h := play(run, 600, time.Millisecond)
		h.Run.Claim = "oversells"
		return h
	}
	unprovoked, caught, refuses := decrement("oversells", 600), decrement("oversells", 100), decrement("correct", 100)
	right := play(plenty("update", "correct"), 600, time.Millisecond)
	second := right.Run.Cell
	second.Round = 2
	healed := play(plenty("was-mutex", "loses-updates"), 600, time.Millisecond)
	for name, c := range map[string]struct {
		histories                  []*history.History
		plan                       []history.Cell
		failed, inconclusive, held bool
		problem                    string
	}{
		"nothing":                {nil, nil, false, true, false, "nothing was run"},
		"wrong":                  {[]*history.History{wrong}, nil, true, false, false, "claim not held: none"},
		"too little load":        {[]*history.History{short}, nil, false, true, false, "inconclusive: update"},
		"both":                   {[]*history.History{short, wrong}, nil, true, true, false, "claim not held: none"},
		"a clean control":        {[]*history.History{clean}, nil, false, true, false, "control was-none came out clean"},
		"correct unlike claimed": {[]*history.History{healed}, nil, true, false, false, "claim not held: was-mutex"},
		"a control without demand": {
			[]*history.History{unprovoked}, nil, false, true, true,
			"control decrement came out clean: demand never exceeded the stock",
		},
		"a control that is caught in one row": {[]*history.History{unprovoked, caught}, nil, false, false, true, ""},
		"a control that refuses": {
			[]*history.History{refuses}, nil, false, true, false, "control decrement came out clean: a run that misses",
		},
		"as planned":                    {[]*history.History{right}, []history.Cell{right.Run.Cell}, false, false, true, ""},
		"in another round than planned": {[]*history.History{right}, []history.Cell{second}, false, false, true, ""},
		"one of two": {
			[]*history.History{right}, []history.Cell{right.Run.Cell, second}, false, true, false,
			"1 of 2 planned runs are missing: the run ended early",
		},
	} {
		b := NewBuilder(Environment{})
		b.Expect(c.plan)
		for _, h := range c.histories {
			b.Add(h, verify.Judge(h))
		}
		r := b.Report()
		if r.ClaimFailed != c.failed || r.Inconclusive != c.inconclusive || r.ClaimsHeld != c.held ||
			(r.Err() == nil) != (c.problem == "") || !strings.Contains(fmt.Sprint(r.Err()), c.problem) {
			t.Errorf("%s: failed %v, inconclusive %v, want %v, %v and %q: %q",
				name, r.ClaimFailed, r.Inconclusive, c.failed, c.inconclusive, c.problem, r.Problems)
		}
	}
}
