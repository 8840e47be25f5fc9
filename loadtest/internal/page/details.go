package page

import (
	"fmt"
	"slices"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/verify"
)

// shownEvidence is how many findings an opened row shows.
const shownEvidence = 12

// FirstEvidence is the evidence that an opened row shows.
func (v *rowView) FirstEvidence() []string {
	evidence := v.ShownEvidence()
	return evidence[:min(len(evidence), shownEvidence)]
}

// MoreEvidence is how many findings are only in the JSON.
func (v *rowView) MoreEvidence() int { return len(v.ShownEvidence()) - len(v.FirstEvidence()) }

// Latencies lists the latencies that are known.
func (v *rowView) Latencies() (facts []fact) {
	l := v.LatencyMS
	for _, part := range []struct {
		name string
		ms   float64
	}{
		{"Shortest", l.Min}, {"Mean", l.Mean}, {"Median", l.P50}, {"90 %", l.P90}, {"99 %", l.P99}, {"99.9 %", l.P999},
		{"Longest", l.Max},
	} {
		if part.ms > 0 {
			facts = append(facts, fact{part.name, milliseconds(part.ms) + " ms"})
		}
	}
	return facts
}

// Answers counts the requests by their outcomes. The baseline confirms requests, but sells nothing.
func (v *rowView) Answers() (facts []fact) {
	for _, outcome := range report.RequestOutcomes {
		word := strings.ReplaceAll(string(outcome), "_", " ")
		if v.Baseline && outcome == history.Sold {
			word = "confirmed"
		}
		if n := v.Outcomes[outcome]; n > 0 {
			facts = append(facts, fact{word, grouped(n)})
		}
	}
	return facts
}

// Sentences say what the row claims, and what the judge found.
func (v *rowView) Sentences() (sentences []string) {
	row := v.Row
	add := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	claim := map[string]string{
		verify.ClaimCorrect: "is correct", verify.ClaimLosesUpdates: "loses updates", verify.ClaimOversells: "oversells",
		verify.ClaimUndersells: "undersells", verify.ClaimSellsNothing: "deducts nothing",
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
			grouped(row.Sold), count(row.Outcomes[history.Sold], "buyer"))
	}
	switch {
	case row.Result == verify.Wrong:
		add("Wrong strategies are not ranked.")
	case row.Short && !row.Baseline:
		add("Its load, or that of noop, was too short to compare its speed with that of other strategies.")
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

// Costs lists what a sale costs, and how long it takes within the service.
func (v *rowView) Costs() (facts []fact) {
	row := v.Row
	add := func(there bool, name, value string) {
		if there {
			facts = append(facts, fact{name, value})
		}
	}
	add(row.MySQLStatementsPerSale > 0, "SQL statements per sale", stats.Format(row.MySQLStatementsPerSale))
	add(row.RedisCommandsPerSale > 0, "Redis commands per sale", stats.Format(row.RedisCommandsPerSale))
	add(row.AttemptsPerSale > 0 && !row.Baseline, "Attempts per sale", stats.Format(row.AttemptsPerSale))
	until := "Until the store's reply"
	if hasSections(row) {
		until = "Until the critical section"
	}
	add(row.WaitedUS.Max > 0, until+", mean", microseconds(row.WaitedUS.Mean))
	add(row.WaitedUS.P99 > 0, until+", 99 %", microseconds(row.WaitedUS.P99))
	add(row.WaitedUS.Max > 0, until+", longest", microseconds(row.WaitedUS.Max))
	add(row.HeldUS.Max > 0, "In the critical section, mean", microseconds(row.HeldUS.Mean))
	for _, part := range []string{"service", "nginx", "MySQL", "Redis"} {
		add(row.CPUUSPerSale[part] > 0, "CPU of "+part+" per sale", microseconds(row.CPUUSPerSale[part]))
	}
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
