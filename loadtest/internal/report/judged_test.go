package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// withJudged reports a measured row, and two that are judged only. none is wrong, as it claims if it is measured.
func withJudged(claimOfNone string) *Report {
	b := NewBuilder(Environment{})
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
		b.Add(h, verify.Judge(h))
	}
	return b.Report()
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
	var text bytes.Buffer
	must.Succeed(t, r.WriteText(&text, false))
	const load = "orders · 600 requests on 600 units · 100 users · up to 5 lines per order · 1 round"
	want := "## Judged, not measured\n\n- " + load + "\n  - wrong: none\n  - correct: update\n"
	if !strings.Contains(text.String(), want) || strings.Count(text.String(), "goodput/s") != 1 ||
		!strings.Contains(text.String(), "units sold but still in stock: 60") {
		t.Errorf("want one table, the evidence, and\n%s\ngot\n%s", want, &text)
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
		var out bytes.Buffer
		must.Succeed(t, r.WriteText(&out, false))
		want := "- retries · 0 rounds\n  - correct: " + test.deductions + "\n" +
			"- retries · up to 3 lines per order · 0 rounds\n  - correct: " + test.orders + "\n"
		if !strings.Contains(out.String(), want) {
			t.Errorf("want\n%s\ngot\n%s", want, &out)
		}
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

func TestAFailedClaimIsToldFromWhatCouldNotBeJudged(t *testing.T) {
	t.Parallel()
	short := play(plenty("update", "correct"), 50, time.Millisecond)
	wrong := play(plenty("none", "correct"), 600, time.Millisecond)
	clean := play(plenty("was-none", "loses-updates"), 600, time.Millisecond)
	clean.Run.Control = true
	healed := play(plenty("was-mutex", "loses-updates"), 600, time.Millisecond)
	for name, c := range map[string]struct {
		histories            []*history.History
		plan                 []history.Cell
		failed, inconclusive bool
	}{
		"wrong":                  {[]*history.History{wrong}, nil, true, false},
		"too little load":        {[]*history.History{short}, nil, false, true},
		"both":                   {[]*history.History{short, wrong}, nil, true, true},
		"a clean control":        {[]*history.History{clean}, nil, false, true},
		"correct unlike claimed": {[]*history.History{healed}, nil, true, false},
		"missing":                {nil, []history.Cell{short.Run.Cell}, false, true},
	} {
		b := NewBuilder(Environment{})
		b.Expect(c.plan)
		for _, h := range c.histories {
			b.Add(h, verify.Judge(h))
		}
		r := b.Report()
		if r.ClaimFailed != c.failed || r.Inconclusive != c.inconclusive || r.ClaimsHeld || r.Err() == nil {
			t.Errorf("%s: failed %v, inconclusive %v, want %v, %v: %q",
				name, r.ClaimFailed, r.Inconclusive, c.failed, c.inconclusive, r.Problems)
		}
	}
}
