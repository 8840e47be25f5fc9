package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

// newRow returns a row on two replicas.
func newRow(strategy string, result verify.Result) *report.Row {
	claims := map[verify.Result]string{verify.Correct: verify.ClaimCorrect, verify.Wrong: verify.ClaimLosesUpdates}
	row := &report.Row{
		Subject: history.Subject{
			Strategy: strategy, Store: "mysql", Replicas: 2, Workload: history.Workload{Name: "plenty", Users: 100},
		},
		Claim: claims[result], ClaimHeld: true, GoodputPerS: 1000, LatencyMS: report.Latency{P50: 12.5, P99: 80},
		GoodputInterval: &stats.Interval{Low: 900, High: 1100},
	}
	row.Result = result
	for i := range 3 {
		row.Rounds = append(row.Rounds, report.Cell{Round: 1 + i, ElapsedS: 1.5})
	}
	return row
}

// written returns the page of a report.
func written(t *testing.T, r *report.Report) string {
	t.Helper()
	var b strings.Builder
	must.Succeed(t, WriteReport(&b, r))
	return b.String()
}

func TestTheTallyCountsStrategiesOnAllReplicas(t *testing.T) {
	t.Parallel()
	late, one := newRow("lock-redis-lua", verify.Correct), newRow("mutex", verify.Wrong)
	late.Faults, one.Replicas = map[string]string{"late-write": "unsafe"}, 1
	a, b, c := newRow("a", verify.Correct), newRow("b", verify.Correct), newRow("c", verify.Wrong)
	again := newRow("b", verify.Wrong) // a strategy that is wrong under one workload is wrong
	got := fmt.Sprint(newVerdict(&report.Report{Rows: []*report.Row{a, late, b, c, one, again}}).Tally)
	if want := "[{ok correct 1} {late correct, but a late write loses an update 1} {bad wrong 2}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAStrategyThatLosesALateWriteIsNotSimplyCorrect(t *testing.T) {
	t.Parallel()
	row := newRow("lock-redis-lua", verify.Correct)
	row.Faults = map[string]string{"late-write": "unsafe", "holder-dies": "blocked 2.0 s", "client-retries": "unsafe"}
	mustSay(t, written(t, &report.Report{Rows: []*report.Row{row}}), []string{
		`<span class="word late">` + report.LateLosesUpdate + `</span>`, `<span class="word bad">loses an update</span>`,
		`<span class="word wait">blocked 2.0 s</span>`, `<span class="word bad">deducts twice</span>`,
	}, []string{`<span class="word ok">correct</span>`})
}

func TestThePageSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	row := newRow("update", verify.Correct)
	row.Requests, row.LatencyMS.P99, row.Short = 1234, 0, true
	r := &report.Report{Rows: []*report.Row{row}}
	mustSay(t, written(t, r), append(r.LeftOut(), `data-sort="1234" class="number">1 234</td>`,
		`data-label="99 % ms" data-sort="0" class="number"></td>`, "too short to compare its speed"), nil)
}

func TestAControlIsNotRecommended(t *testing.T) {
	t.Parallel()
	undersells, oversells := newRow("redis-prededuct", verify.Correct), newRow("decrement", verify.Correct)
	undersells.Control, oversells.Control = true, true
	undersells.Claim, oversells.Claim = verify.ClaimUndersells, verify.ClaimOversells
	update := newRow("update", verify.Correct)
	r := &report.Report{Rows: []*report.Row{undersells, oversells, update}}
	text := written(t, r)
	for want, n := range map[string]int{
		`<span class="word base">control</span>`: 2, "correct under this load only": 1, "correct while stock lasts": 1,
		`<span class="word ok">correct</span>`: 1,
	} {
		if got := strings.Count(text, want); got != n {
			t.Errorf("the page has %s %d times, want %d", want, got, n)
		}
	}
	if got := newVerdict(r).Tally; len(got) != 1 || got[0].Count != 1 {
		t.Errorf("the tally is %v, want that it counts no control", got)
	}
}

func TestAWrongStrategyHasNoBar(t *testing.T) {
	t.Parallel()
	wrong := newRow("none", verify.Wrong)
	wrong.LostUpdates, wrong.Oversold, wrong.Sold = 1321, 500, 1344
	mustSay(t, written(t, &report.Report{Rows: []*report.Row{wrong}}),
		[]string{`"damage">lost 1 321, oversold 500<`}, []string{`<span class="bar"`, "data-ranked>"})
}

// mustSay fails the test unless a text has all of some parts, and none of others.
func mustSay(t *testing.T, text string, all, none []string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range none {
		if strings.Contains(text, not) {
			t.Errorf("the page says %q", not)
		}
	}
}

func TestNamesAreEscaped(t *testing.T) {
	t.Parallel()
	row := newRow(`<img src=x>`, verify.Wrong)
	row.Evidence = []string{`</script><img src=y>`}
	r := &report.Report{
		Rows: []*report.Row{row}, Problems: []string{"<img src=z>"},
		Faults: []report.Fault{{Scenario: "late-write", Strategy: "</script><img>", Effect: report.Unsafe}},
	}
	if _, after, found := strings.Cut(written(t, r), "<img"); found {
		t.Errorf("the page has an image: <img%.80s", after)
	}
}

func TestEveryReportHasAPage(t *testing.T) {
	t.Parallel()
	bare := newRow("update", verify.Correct) // as in reports of older versions
	bare.LatencyMS, bare.GoodputInterval = report.Latency{}, nil
	bare.Rounds = nil
	for name, r := range map[string]*report.Report{
		"empty":          {},
		"older":          {Rows: []*report.Row{bare}},
		"a single value": {Rows: swept(8)},
		"nothing drawn":  {Rows: swept(8)[2:]},
		"skipped":        {Faults: []report.Fault{{Scenario: "a", Strategy: "b", Effect: report.Skipped}}},
	} {
		if text := written(t, r); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s: the page has figures that are no numbers", name)
		}
	}
}

// swept returns the rows of a sweep of two strategies, and of a wrong one.
func swept(users ...int) (rows []*report.Row) {
	for i, n := range users {
		for name, result := range map[string]verify.Result{
			"update": verify.Correct, "for-update": verify.Correct, "none": verify.Wrong,
		} {
			row := newRow(name, result)
			row.Users, row.Sweep, row.GoodputPerS = n, history.AxisUsers, float64(100*(1+i))
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *report.Row) int { return cmp.Or(a.Users-b.Users, cmp.Compare(a.Result, b.Result)) })
	return rows
}

func TestASweepDrawsNoWrongStrategy(t *testing.T) {
	t.Parallel()
	rows := swept(1, 8, 32)
	rows[0].Result = verify.Inconclusive
	rows[1].GoodputInterval = nil
	v := newSweeps((&report.Report{Rows: rows}).Sweep())
	if len(v) != 1 || len(v[0].Legend) != 2 || len(v[0].Curves) != 3 {
		t.Fatalf("got %+v, want one chart of two lines, and a table of three rows", v)
	}
	if want := "Not drawn, because they are wrong: none."; v[0].NotDrawn != want {
		t.Errorf("got %q, want %q", v[0].NotDrawn, want)
	}
	picture := string(v[0].Picture)
	if solid, hollow := strings.Count(picture, `"solid"`), strings.Count(picture, `"hollow"`); solid != 5 ||
		hollow != 1 {
		t.Errorf("%d points are correct and %d are not judged, want 5 and 1", solid, hollow)
	}
}

func TestRepeatsAreOneCell(t *testing.T) {
	t.Parallel()
	var faults []report.Fault
	for i, outcome := range []report.Effect{report.Safe, report.Unsafe, report.Safe} {
		faults = append(faults, report.Fault{
			Scenario: "late-write", Strategy: "update", Effect: outcome, Repeat: 1 + i, ClaimHeld: outcome == report.Safe,
			Steps: []report.FaultStep{{After: 1500 * time.Microsecond, Text: "it struck", Kind: report.Proof}},
		})
	}
	m := newMatrix(&report.Report{Faults: faults})
	const repeats = "Played 3 times: 2 × safe, 1 × unsafe."
	if len(m.faults) != 1 || m.faults[0].Repeats != repeats || m.faults[0].Class != "bad" {
		t.Fatalf("got %+v, want the worst as one fault", m.faults)
	}
	if cell := m.Scenarios[0].Cells[0]; !cell.Broken || !strings.HasSuffix(cell.Label, "the claim did not hold") {
		t.Errorf("got the cell %+v, want a broken claim", cell)
	}
}
