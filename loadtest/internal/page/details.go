package page

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/verify"
)

// detailsView is what an opened row shows.
type detailsView struct {
	Row       rowView
	Baseline  bool   // nothing is sold
	Summary   string // how the strategy works
	Sentences []string
	Evidence  []string
	More      int // findings that are only in the JSON
	Latency   template.HTML
	OverTime  template.HTML
	Sales     template.HTML
	SalesNote string
	Shares    []shareView
	Costs     []fact
	Outcomes  []fact
	Faults    bool // some were played, and a script lists them
	Windows   []timeline.Window
	Sends     []statement // for a sale
}

// shareView is the part of the sales that a replica made.
type shareView struct {
	Replica string
	Percent string
	Width   float64 // percent
}

// shownEvidence is how many findings an opened row shows.
const shownEvidence = 12

func (t *tableView) details(r *report.Report, row *report.Row, view rowView) (template.HTML, error) {
	v := detailsView{
		Row: view, Baseline: row.Baseline, Summary: r.Summaries[row.Strategy], Sentences: sentences(row),
		Evidence: row.ShownEvidence(), Windows: row.Windows,
	}
	if more := len(v.Evidence) - shownEvidence; more > 0 {
		v.Evidence, v.More = v.Evidence[:shownEvidence], more
	}
	v.Latency = latencyChart(row)
	v.OverTime = latencyOverTimeChart(row)
	v.Sales = salesChart(row)
	v.SalesNote = salesNote(len(row.Rounds))
	for _, replica := range slices.Sorted(maps.Keys(row.ReplicaShares)) {
		part := row.ReplicaShares[replica]
		name := replica
		if name == "" {
			name = "unknown"
		}
		v.Shares = append(v.Shares, shareView{name, percent(part), 100 * part})
	}
	v.Costs = costs(row)
	for _, outcome := range []history.Outcome{
		history.Sold, history.SoldOut, history.BuyerLimit, history.Busy, history.Rejected, history.Unknown,
	} {
		if n := row.Outcomes[outcome]; n > 0 {
			v.Outcomes = append(v.Outcomes, fact{outcomeWord(row, outcome), grouped(float64(n))})
		}
	}
	v.Faults = len(row.Faults) > 0
	sends, err := readStatements()
	if err != nil {
		return "", err
	}
	if !row.Own { // a service of the user's may have the name of a strategy
		v.Sends = sends[row.Strategy]
	}
	return render("details", v)
}

// outcomeWord names an outcome of the row. The baseline confirms requests, but sells nothing.
func outcomeWord(row *report.Row, outcome history.Outcome) string {
	if row.Baseline && outcome == history.Sold {
		return "confirmed"
	}
	return strings.ReplaceAll(string(outcome), "_", " ")
}

// salesNote says what the chart of the sales shows.
func salesNote(rounds int) string {
	note := "Units confirmed per second, from the start of a round to its end"
	switch {
	case rounds > shownRounds:
		note += fmt.Sprintf("; the first %d rounds, round 1 in bold", shownRounds)
	case rounds > 1:
		note += "; a line for each round, round 1 in bold"
	}
	return note
}

// sentences says what the row claims, what the judge found, and how fast it is.
func sentences(row *report.Row) (sentences []string) {
	add := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	claim := map[string]string{
		verify.ClaimCorrect: "is correct", verify.ClaimLosesUpdates: "loses updates", verify.ClaimOversells: "oversells",
		verify.ClaimUndersells: "undersells", verify.ClaimSellsNothing: "deducts nothing",
		verify.ClaimExceedsLimits: "exceeds the limits of buyers",
	}[row.Claim]
	claim += " on " + count(row.Replicas, "replica")
	if row.Exclusive && hasSections(row) {
		claim += ", and that its critical sections never overlap"
	}
	who := "It claims"
	if row.Own {
		who = "The judge expects"
	}
	add("%s that it %s. %s", who, claim, held(row))
	if row.Exclusive && !hasSections(row) {
		add("It also claims that its critical sections never overlap, but none are on record.")
	}
	if row.Result == verify.Correct && !row.Baseline {
		add("%s units were sold to %s, and each was deducted once.",
			grouped(float64(row.Sold)), count(row.Outcomes[history.Sold], "buyer"))
	}
	if text := speed(row); text != "" {
		add("%s", text)
	}
	if i := row.GoodputInterval; i != nil && row.Ranked() {
		add("It sells %s units per second correctly; with 95 %% confidence, between %s and %s (%s).",
			grouped(row.GoodputPerS), grouped(i.Low), grouped(i.High), count(len(row.Rounds), "round"))
	}
	if row.Bounded != "" {
		add("It got %s.", row.Bounded)
	}
	if late := row.Late(); late != "" {
		add("Open loop: %s.", late)
	}
	return sentences
}

// hasSections reports whether critical sections are on record. The times in µs of very short ones are 0.
func hasSections(row *report.Row) bool {
	return row.HeldUS.Max > 0 ||
		slices.ContainsFunc(row.Windows, func(w timeline.Window) bool { return !w.Requests })
}

// speed compares the row with the fastest correct strategy on as many replicas. It is empty if there is nothing to say.
func speed(row *report.Row) string {
	onReplicas := ""
	if row.Replicas == 1 {
		onReplicas = " on 1 replica"
	}
	switch rel := row.Relative; {
	case rel == nil && row.Result == verify.Wrong:
		return "Wrong strategies are not ranked."
	case row.Short && !row.Baseline:
		return "Its load, or that of noop, was too short to compare its speed with that of other strategies."
	case rel == nil:
		return ""
	case rel.PlusMinus == nil && (rel.SlowerThanFastestCorrect != 1 || row.GoodputInterval == nil):
		return "There are too few rounds to compare its speed with that of other strategies."
	case rel.PlusMinus == nil:
		return "No correct strategy is faster under this workload" + onReplicas + "."
	case rel.Tied:
		return "The rounds cannot tell it from the fastest correct strategy."
	}
	return fmt.Sprintf("The fastest correct strategy%s sells %s times as much.", onReplicas,
		stats.Format(row.Relative.SlowerThanFastestCorrect))
}

// held says whether the claim held.
func held(row *report.Row) string {
	switch {
	case row.ClaimHeld:
		return "That held."
	case row.Untested:
		return "Too few requests raced to test that."
	case row.Result == verify.Inconclusive:
		return "That could not be judged."
	}
	return "That did not hold."
}

// costs lists what a sale costs, and how long it takes within the service.
func costs(row *report.Row) (facts []fact) {
	add := func(there bool, name, value string) {
		if there {
			facts = append(facts, fact{name, value})
		}
	}
	trips := row.MySQLStatementsPerSale + row.RedisCommandsPerSale
	add(row.MySQLStatementsPerSale > 0, "SQL statements per sale", stats.Format(row.MySQLStatementsPerSale))
	add(row.RedisCommandsPerSale > 0, "Redis commands per sale", stats.Format(row.RedisCommandsPerSale))
	add(trips > 0 && row.MySQLStatementsPerSale > 0 && row.RedisCommandsPerSale > 0, "Together", stats.Format(trips))
	add(row.AttemptsPerSale > 0 && !row.Baseline, "Attempts per sale", stats.Format(row.AttemptsPerSale))
	until := "Until the store's reply"
	if hasSections(row) {
		until = "Until the critical section"
	}
	add(row.WaitedUS.Max > 0, until+", mean", microseconds(row.WaitedUS.Mean))
	add(row.WaitedUS.P99 > 0, until+", 99 %", microseconds(row.WaitedUS.P99))
	add(row.WaitedUS.Max > 0, until+", longest", microseconds(row.WaitedUS.Max))
	add(row.HeldUS.Max > 0, "In the critical section, mean", microseconds(row.HeldUS.Mean))
	add(row.DriverCPUUSPerRequest > 0, "CPU of the load driver per request", microseconds(row.DriverCPUUSPerRequest))
	return facts
}

// microseconds writes a duration in µs or ms.
func microseconds(us float64) string {
	switch {
	case us >= 1e6:
		return stats.Format(us/1e6) + " s"
	case us >= 1e3:
		return stats.Format(us/1e3) + " ms"
	}
	return stats.Format(us) + " µs"
}
