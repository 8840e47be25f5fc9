package report

import (
	"bytes"
	"strings"
	"testing"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// markdownRows are rows of a workload as a run of the lab leaves them.
func markdownRows() []*Row {
	one, half := 1.0, 0.5
	load := history.Workload{Name: "plenty"}
	subject := func(strategy, store string, replicas int) history.Subject {
		return history.Subject{Strategy: strategy, Store: store, Replicas: replicas, Workload: load}
	}
	return []*Row{
		{
			Subject: subject("late", "mysql", 2), Verdict: verify.Verdict{Result: verify.Correct},
			Claim: verify.ClaimCorrect, ClaimHeld: true, GoodputPerS: 1234.5,
			GoodputInterval: &stats.Interval{Low: 1111, High: 1358}, ShareOfNoop: &half,
			LatencyMS: Latency{P50: 1.5, P99: 123}, MySQLStatementsPerSale: 2, RedisCommandsPerSale: 3.04,
			Faults: map[string]string{"holder-dies": "blocked 2.0 s", "late-write": "unsafe", "client-retries": "unsafe"},
		},
		{
			Subject: subject("claims", "mysql", 2), Verdict: verify.Verdict{Result: verify.Correct},
			Claim: verify.ClaimCorrect, ClaimHeld: true, LosesLateWrite: true, // the scenario was not played
		},
		{
			Subject: subject("fenced", "mysql", 2), Verdict: verify.Verdict{Result: verify.Correct},
			Claim: verify.ClaimCorrect, ClaimHeld: true, LosesLateWrite: true,
			Faults: map[string]string{"late-write": "safe"},
		},
		{
			Subject: subject("mutex", "redis", 1), Claim: verify.ClaimCorrect, MySQLStatementsPerSale: 0.005,
			Verdict: verify.Verdict{Result: verify.Wrong, Figures: verify.Figures{LostUpdates: 7}},
		},
		{
			Subject: subject("control", "mysql", 2), Claim: verify.ClaimLosesUpdates, Control: true,
			Verdict: verify.Verdict{Result: verify.Correct}, Untested: true,
		},
		{
			Subject: subject("noop", "none", 2), Baseline: true, ClaimHeld: true, ThroughputPerS: 9000, ShareOfNoop: &one,
		},
	}
}

func TestTheMarkdownHasTheTenColumnsThatPeopleRead(t *testing.T) {
	t.Parallel()
	r := Report{Rows: markdownRows()}
	var got bytes.Buffer
	if err := r.WriteMarkdown(&got); err != nil {
		t.Fatal(err)
	}
	want := `
| strategy | verdict | goodput/s | × noop | median ms | 99 % ms | commands/sale` +
		` | holder dies | late write | client sends again |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |
| ` + "`late`" + ` | CORRECT, loses a late write | 1 234 ±10% | 0.50 | 1.50 | 123 | 2.00 SQL, 3.04 Redis` +
		` | blocked 2.0 s | **loses a sale** | **deducts twice** |
| ` + "`claims`" + ` | CORRECT, loses a late write (claimed, not played) | 0 |  | 0 | 0 |  |  |  |  |
| ` + "`fenced`" + ` | CORRECT | 0 |  | 0 | 0 |  |  | safe |  |
| ` + "`mutex`, redis, 1 replica" + ` | **WRONG** ✗ (claims correct), lost 7 | 0 |  | 0 | 0 |  |  |  |  |
| ` + "`control` *" + ` | CORRECT (claim not tested), unranked: loses-updates | 0 |  | 0 | 0 |  |  |  |  |
| ` + "`noop`" + ` | baseline, sells nothing | 9 000 | 1.00 | 0 | 0 |  |  |  |  |
`
	if !strings.Contains(got.String(), want) {
		t.Errorf("want\n%s\ngot\n%s", want, &got)
	}
}

func TestTheMarkdownLeavesOutColumnsWithoutText(t *testing.T) {
	t.Parallel()
	rows := markdownRows()
	rows[0].Faults = nil
	var got bytes.Buffer
	if err := (&Report{Rows: rows}).WriteMarkdown(&got); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got.String(), "holder dies") {
		t.Errorf("no fault was played, but the table has a column for it:\n%s", &got)
	}
}

func TestWhatPeopleReadIsInTheCSV(t *testing.T) {
	t.Parallel()
	for _, col := range columns {
		shown := col.markdown.head
		if shown != "" && col.csv == "" && shown != "commands/sale" { // which the CSV has in two columns
			t.Errorf("the CSV lacks what the Markdown shows as %q", shown)
		}
	}
}
