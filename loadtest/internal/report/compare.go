package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
)

// significance is the probability that two reports without any difference differ in a given figure (see FigureChange).
const significance = 0.05

// Comparison holds the differences between two reports.
type Comparison struct {
	Broken  []BrokenClaim // in either report, or both
	Figures []FigureChange
	OnlyOld []string // labels of rows that only one of the reports has
	OnlyNew []string
	Notes   []string // limits of the comparison
}

// State tells in which of two reports a claim is broken.
type State string

// The states. A claim that only one of the reports has put to the test has none.
const (
	NewlyBroken State = "new"
	Resolved    State = "resolved"
	Ongoing     State = "ongoing"
)

// BrokenClaim is a claim that does not hold.
type BrokenClaim struct {
	State State
	What  string // the row, or the fault scenario and the strategy
	Found string // what the judge found, in the later report in which it is broken
}

// FigureChange compares one figure of one row over the rounds of each report, and the same figure as a multiple of
// noop's in the same round. The multiple is more precise, because a machine that is busy for a moment slows down noop
// as well. But if the machine is busier in one of the reports, the multiple changes where the row and noop need
// different parts of the machine. So a difference counts only if the figure itself has changed in the same direction.
type FigureChange struct {
	Row    string
	Figure string
	Old    Measured
	New    Measured
	// P is the p-value of the multiples (stats.Compare), or 1 if the figure itself does not differ significantly in the
	// same direction. It is adjusted for the number of rows in both reports, for each figure separately
	// (stats.FalseDiscoveryRate). That this is right for rows that share noop's rounds is not proved, but simulations
	// show it (compare_test.go). Holm's method, which bounds the probability of a single false find, would miss more
	// differences.
	P      float64
	Delta  string // "+12.3%", or "~" if the difference may be chance
	OfNoop string // the same for the multiple of noop's; empty if there is none
	Rounds string
}

// Measured is a mean over the rounds, with its interval if there is one.
type Measured struct {
	Mean     float64
	Interval *stats.Interval
}

func measured(values []float64) Measured {
	mean, interval := stats.Mean(values)
	return Measured{Mean: mean, Interval: interval}
}

// spread is half the width of the interval in percent of the mean, if that says anything.
func (m Measured) spread() string { return cmp.Or(spread(m.Mean, m.Interval), "–") }

// Compare compares the rows that two reports have in common, as benchstat compares benchmarks.
func Compare(before, after *Report) *Comparison {
	c := &Comparison{Broken: brokenClaims(before, after)}
	bySubject := map[history.Subject]*Row{}
	for _, row := range after.Rows {
		bySubject[row.Key()] = row
	}
	both := map[history.Subject]bool{}
	for _, was := range before.Rows {
		is := bySubject[was.Key()]
		if is == nil && !was.JudgedOnly {
			c.OnlyOld = append(c.OnlyOld, was.Label())
		}
		if is == nil {
			continue
		}
		both[was.Key()] = true
		c.compareRows(was, is, before.baseline(was), after.baseline(is))
	}
	c.markSignificant()
	for _, row := range after.Rows {
		if !both[row.Key()] && !row.JudgedOnly {
			c.OnlyNew = append(c.OnlyNew, row.Label())
		}
	}
	if was, is := before.Environment.machine(), after.Environment.machine(); was != is {
		c.notef("not the same environment: %s, then %s", was, is)
	}
	return c
}

// HaveCommon reports whether two reports have anything to compare: a row, but for the baseline, or a fault scenario.
func HaveCommon(before, after *Report) bool {
	type fault struct{ scenario, strategy string }
	rows, faults := map[history.Subject]bool{}, map[fault]bool{}
	for _, row := range before.Rows {
		rows[row.Key()] = !row.Baseline
	}
	for _, f := range before.Faults {
		faults[fault{f.Scenario, f.Strategy}] = true
	}
	return slices.ContainsFunc(after.Rows, func(row *Row) bool { return rows[row.Key()] }) ||
		slices.ContainsFunc(after.Faults, func(f Fault) bool { return faults[fault{f.Scenario, f.Strategy}] })
}

// tested tells what was found about each claim that a report has put to the test; empty if the claim held.
func (r *Report) tested() (names []string, found map[string]string) {
	found = map[string]string{}
	add := func(name string, held bool, what string) {
		if _, known := found[name]; !known {
			names = append(names, name)
			found[name] = ""
		}
		if !held {
			found[name] = what
		}
	}
	for _, row := range r.Rows {
		if !row.Untested {
			add(row.Label(), row.ClaimHeld, row.verdictWithEvidence())
		}
	}
	for _, f := range r.Faults {
		if f.Effect != Skipped {
			add(f.Scenario+", "+f.Strategy, f.ClaimHeld, fmt.Sprintf("claims %q, found %s", f.ClaimWords(), f))
		}
	}
	return names, found
}

// brokenClaims compares the claims that both reports have put to the test.
func brokenClaims(before, after *Report) (broken []BrokenClaim) {
	_, was := before.tested()
	names, is := after.tested()
	for _, name := range names {
		found, tested := was[name]
		switch {
		case !tested:
		case found == "" && is[name] != "":
			broken = append(broken, BrokenClaim{NewlyBroken, name, is[name]})
		case found != "" && is[name] == "":
			broken = append(broken, BrokenClaim{Resolved, name, found})
		case found != "":
			broken = append(broken, BrokenClaim{Ongoing, name, is[name]})
		}
	}
	return broken
}

func (c *Comparison) notef(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, text) {
		c.Notes = append(c.Notes, text)
	}
}

// compareRows compares two rows, each of which may have a baseline.
func (c *Comparison) compareRows(was, is, noopWas, noopIs *Row) {
	if is.JudgedOnly {
		return // it has no speed
	}
	bounded := was.Bounded != "" || is.Bounded != "" // by how fast the row was
	if was.RequestsPlanned*len(is.Rounds) != is.RequestsPlanned*len(was.Rounds) || was.Stock != is.Stock && !bounded {
		c.notef("%s: the reports differ in stock or number of requests", is.Label())
	}
	if min(len(was.Rounds), len(is.Rounds)) == 1 {
		c.notef("a single round tells nothing about chance: at least two in each report are needed to find a difference")
	}
	for _, m := range measures {
		x, y := m.rounds(was), m.rounds(is)
		if len(x) == 0 || len(y) == 0 || slices.Max(x) == 0 && slices.Max(y) == 0 {
			continue // such as the baseline's goodput
		}
		change := compare(x, y, m.multiples(was, noopWas), m.multiples(is, noopIs))
		change.Row, change.Figure, change.Rounds = is.Label(), m.name, fmt.Sprintf("n=%d+%d", len(x), len(y))
		c.Figures = append(c.Figures, change)
	}
}

// rounds returns the figure of each round.
func (m measure) rounds(row *Row) []float64 {
	var values []float64
	for _, round := range row.Rounds {
		if !m.lacks(round) {
			values = append(values, m.round(round))
		}
	}
	return values
}

// multiples returns the figure of each round as a multiple of noop's in the same round.
func (m measure) multiples(row, noop *Row) []float64 {
	if noop == nil || noop == row || row.Restock > 0 {
		return nil
	}
	of := m.round
	if m.ofNoop != nil {
		of = m.ofNoop
	}
	known := *row
	known.Rounds = slices.DeleteFunc(slices.Clone(row.Rounds), m.lacks)
	return stats.Ratios(known.figures(m.round), noop.figures(of))
}

// compare compares a figure, and its multiples of noop's if there are any. P is not adjusted yet.
func compare(was, is, multiplesWas, multiplesIs []float64) FigureChange {
	figure := stats.Compare(is, was)
	change := FigureChange{Old: measured(was), New: measured(is), P: figure.P, Delta: delta(figure)}
	if len(multiplesWas) == 0 || len(multiplesIs) == 0 {
		return change
	}
	multiple := stats.Compare(multiplesIs, multiplesWas)
	change.P, change.OfNoop = multiple.P, delta(multiple)
	if figure.P > significance || (figure.Ratio > 1) != (multiple.Ratio > 1) {
		change.P = 1
	}
	return change
}

// delta formats a change in percent.
func delta(d stats.Difference) string { return fmt.Sprintf("%+.1f%%", 100*(d.Ratio-1)) }

// markSignificant adjusts the p-values of each figure, and hides the differences that may be chance.
func (c *Comparison) markSignificant() {
	of := map[string][]*FigureChange{}
	for i := range c.Figures {
		change := &c.Figures[i]
		of[change.Figure] = append(of[change.Figure], change)
	}
	for _, changes := range of {
		p := make([]float64, len(changes))
		for i, change := range changes {
			p[i] = change.P
		}
		stats.FalseDiscoveryRate(p)
		for i, change := range changes {
			if change.P = p[i]; change.P > significance {
				change.Delta = "~"
				if change.OfNoop != "" {
					change.OfNoop = "~"
				}
			}
		}
	}
}

// machine describes what must be the same in two reports for a comparison.
func (e Environment) machine() string {
	parts := []string{e.CPU, plural(e.Cores, "core")}
	for _, s := range e.Servers {
		if s.Name != "service" { // usually, this is what is compared
			parts = append(parts, s.String())
		}
	}
	return strings.Join(parts, ", ")
}

// comparisonNote explains the tables.
const comparisonNote = "A delta is shown if the figure as a multiple of noop's in the same round (× noop) differs, " +
	"and the figure itself in the same direction.\n" +
	"For each figure, p is adjusted for the number of rows: " +
	"of the deltas shown, at most one in twenty is expected to be chance.\n" +
	"– stands for an interval that is wider than the figure: more rounds make it narrower."

// WriteText writes the comparison as Markdown that is also meant for a terminal.
func (c *Comparison) WriteText(w io.Writer, colour bool) error {
	out := newPrinter(w, colour)
	out.title("Before and after")
	if len(c.Broken) > 0 {
		out.section("Claims")
	}
	for _, claim := range c.Broken {
		style := red
		if claim.State == Resolved {
			style = green
		}
		state := strings.ToUpper(string(claim.State))
		out.item(style, fmt.Sprintf("%s: claim not held: %s: %s", state, claim.What, claim.Found))
	}
	if len(c.Figures) == 0 {
		out.paragraph("Nothing to compare: the reports have no strategy with the same load in common " +
			"(users, rate, hold, goods, counts, restocks).")
	}
	for _, m := range measures {
		if t := c.table(m.name); len(t.rows) > 0 {
			out.section(m.name)
			t.write(out)
		}
	}
	if len(c.Figures) > 0 {
		out.paragraph(comparisonNote)
	}
	list := func(heading string, lines []string) {
		if len(lines) > 0 {
			out.section(heading)
		}
		for _, line := range lines {
			out.item(plain, line)
		}
	}
	list("Only in the old report", c.OnlyOld)
	list("Only in the new report", c.OnlyNew)
	list("Notes", c.Notes)
	return out.Flush()
}

// table lists the changes of one figure.
func (c *Comparison) table(figure string) table {
	t := table{columns: []tableColumn{
		{head: strategyHead}, {head: "old", number: true}, {head: "±", number: true}, {head: "new", number: true},
		{head: "±", number: true}, {head: "delta", number: true}, {head: "× noop", number: true},
		{head: "p", number: true}, {head: "rounds"},
	}}
	for _, m := range c.Figures {
		if m.Figure != figure {
			continue
		}
		style := plain
		if m.Delta == "~" {
			style = faint
		}
		t.rows = append(t.rows, []tableCell{
			{text: m.Row},
			{text: digits(m.Old.Mean)}, {text: m.Old.spread()},
			{text: digits(m.New.Mean)}, {text: m.New.spread()},
			{text: m.Delta, style: style}, {text: m.OfNoop, style: style},
			{text: fmt.Sprintf("%.3f", m.P)}, {text: m.Rounds},
		})
	}
	return t
}
