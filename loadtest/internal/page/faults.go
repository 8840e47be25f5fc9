package page

import (
	"fmt"
	"slices"
	"strings"

	"stock/loadtest/internal/report"
)

// matrixView is the table of strategies and fault scenarios.
type matrixView struct {
	Scenarios  []scenarioView
	Strategies []string
	Legend     []faultWord

	faults []faultData
}

// scenarioView is a row of the matrix.
type scenarioView struct {
	Name, Title string
	Cells       []*matrixCell // by strategy; nil where it was not played
}

// matrixCell is what came of a scenario for a strategy.
type matrixCell struct {
	Fault  int // its place in the faults
	Class  string
	Text   string // shown in the cell; empty: the symbol of its class
	Label  string // the whole outcome, in words
	Broken bool   // the claim did not hold
}

// faultData is a fault, as the script of the page reads it. Repeats that ended in the same way are one fault.
type faultData struct {
	report.Fault

	Class   string `json:"class"`
	Found   string `json:"found"`             // the outcome in words
	Repeats string `json:"repeats,omitempty"` // how often it was played, and with which outcomes
	Claims  string `json:"claims"`            // in words
	Held    bool   `json:"held"`              // in all repeats
}

// cellKey identifies a cell of the matrix.
type cellKey struct{ scenario, strategy string }

// newMatrix makes the matrix; nil if no fault was played.
func newMatrix(r *report.Report) *matrixView {
	if len(r.Faults) == 0 {
		return nil
	}
	m := &matrixView{}
	played := map[cellKey][]report.Fault{}
	for _, f := range r.Faults {
		key := cellKey{f.Scenario, f.Strategy}
		played[key] = append(played[key], f)
		if !slices.Contains(m.Strategies, f.Strategy) {
			m.Strategies = append(m.Strategies, f.Strategy)
		}
	}
	for _, scenario := range r.Scenarios() {
		m.addScenario(scenario, played)
	}
	m.Legend = legend(r)
	return m
}

// addScenario adds the row of a scenario.
func (m *matrixView) addScenario(scenario string, played map[cellKey][]report.Fault) {
	row := scenarioView{Name: scenario}
	for _, name := range m.Strategies {
		faults := played[cellKey{scenario, name}]
		if len(faults) > 0 {
			row.Title = faults[0].Title
		}
		row.Cells = append(row.Cells, m.newCell(faults))
	}
	m.Scenarios = append(m.Scenarios, row)
}

// newCell adds the fault of the worst repeat; nil if there is none.
func (m *matrixView) newCell(repeats []report.Fault) *matrixCell {
	if len(repeats) == 0 {
		return nil
	}
	worst := slices.MaxFunc(repeats, func(a, b report.Fault) int { return a.Severity() - b.Severity() })
	held := !slices.ContainsFunc(repeats, func(f report.Fault) bool {
		return !f.ClaimHeld && f.Effect != report.Skipped && f.Effect != report.Inconclusive
	})
	class, _ := outcomeClass(worst.Effect)
	c := &matrixCell{Fault: len(m.faults), Class: class, Broken: !held}
	switch {
	case worst.Until != "": // how long that took says nothing
	case worst.Seconds >= 9.95:
		c.Text = fmt.Sprintf("%.0f", worst.Seconds)
	case worst.Seconds > 0:
		c.Text = fmt.Sprintf("%.1f", worst.Seconds)
	}
	c.Label = fmt.Sprintf("%s, %s: %s", worst.Scenario, worst.Strategy, worst)
	if !held {
		c.Label += ", the claim did not hold"
	}
	m.faults = append(m.faults, faultData{
		Fault: worst, Class: class, Found: worst.String(), Repeats: repeated(repeats), Claims: worst.ClaimWords(), Held: held,
	})
	return c
}

// repeated counts the outcomes of the repeats; empty if there is only one.
func repeated(repeats []report.Fault) string {
	if len(repeats) == 1 {
		return ""
	}
	counts := map[report.Effect]int{}
	var outcomes []report.Effect
	for _, f := range repeats {
		if counts[f.Effect]++; counts[f.Effect] == 1 {
			outcomes = append(outcomes, f.Effect)
		}
	}
	var parts []string
	for _, outcome := range outcomes {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[outcome], outcome))
	}
	return fmt.Sprintf("Played %d times: %s.", len(repeats), strings.Join(parts, ", "))
}

// legend counts and explains the outcomes.
func legend(r *report.Report) (words []faultWord) {
	for _, l := range []struct {
		outcome report.Effect
		text    string
	}{
		{report.Safe, "safe"},
		{report.Blocked, "blocked: nobody could buy the item for so many seconds or, without a number, " +
			"for a time that the lab sets"},
		{report.Unavailable, "unavailable: nobody could buy it until the scenario ended"},
		{report.Unsafe, "unsafe: a sale was lost or made twice, more was sold than there was, or a sale was " +
			"refused without reason"},
		{report.Inconclusive, "inconclusive: the fault did not strike as it should"},
		{report.Skipped, "skipped: something that it needs is missing"},
	} {
		n := 0
		for _, f := range r.Faults {
			if f.Effect == l.outcome {
				n++
			}
		}
		if n > 0 {
			class, _ := outcomeClass(l.outcome)
			words = append(words, faultWord{Class: class, Word: fmt.Sprintf("%d %s", n, l.text)})
		}
	}
	return words
}
