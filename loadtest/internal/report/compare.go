package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
)

// Comparison holds the differences between two reports.
type Comparison struct {
	Changed []VerdictChange // rows with another verdict
	Figures []FigureChange
	OnlyOld []string // labels of rows that only one of the reports has
	OnlyNew []string
	Notes   []string // limits of the comparison
}

// VerdictChange is a row with another verdict.
type VerdictChange struct {
	Row string
	Old string
	New string
}

// FigureChange compares one figure of one row over the rounds of each report. With enough rounds, it has their medians
// and the p-value of the Mann-Whitney U test, which assumes nothing about the distribution. With fewer, for which that
// test cannot find any difference, it has their geometric means and the p-value of Welch's t-test over the logarithms,
// which assumes that ratios are distributed normally.
type FigureChange struct {
	Row    string
	Figure string
	Old    benchmath.Summary
	New    benchmath.Summary
	P      float64
	Delta  string // "+12.34%", or "~" if the difference may be chance
	Rounds string
}

const (
	// enoughForU rounds in each report let the U test find a difference: with three, p is at least 0.1.
	enoughForU = 4
	// enoughForT rounds let the t-test estimate the variance.
	enoughForT = 2
)

// Compare compares the rows that two reports have in common, as benchstat compares benchmarks.
func Compare(before, after *Report) *Comparison {
	c := &Comparison{}
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
		c.compareRows(was, is)
	}
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

func (c *Comparison) notef(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, text) {
		c.Notes = append(c.Notes, text)
	}
}

func (c *Comparison) compareRows(was, is *Row) {
	if was.Result != is.Result {
		c.Changed = append(c.Changed, VerdictChange{Row: is.Label(), Old: string(was.Result), New: string(is.Result)})
	}
	if is.JudgedOnly {
		return // it has no speed
	}
	if was.Stock != is.Stock || was.RequestsPlanned*len(is.Rounds) != is.RequestsPlanned*len(was.Rounds) {
		c.notef("%s: the reports differ in stock or number of requests", is.Label())
	}
	for _, col := range columns {
		if col.compared == "" {
			continue
		}
		x, y := col.rounds(was), col.rounds(is)
		if len(x) == 0 || len(y) == 0 || slices.Max(x) == 0 && slices.Max(y) == 0 {
			continue // such as the baseline's goodput
		}
		compare := compareMedians
		if rounds := min(len(x), len(y)); rounds < enoughForU && slices.Min(x) > 0 && slices.Min(y) > 0 {
			compare = compareMeans
			if rounds < enoughForT {
				c.notef("a single round tells nothing about chance: at least two in each report are needed to find a difference")
			} else {
				c.notef("fewer than %d rounds in a report: geometric means and Welch's t-test over the logarithms, "+
					"which assumes that ratios are distributed normally, in place of medians and the U test, "+
					"which assumes nothing", enoughForU)
			}
		}
		change := compare(x, y)
		change.Row, change.Figure, change.Rounds = is.Label(), col.compared, fmt.Sprintf("n=%d+%d", len(x), len(y))
		c.Figures = append(c.Figures, change)
	}
}

// rounds returns the figures of each round.
func (c column) rounds(row *Row) []float64 {
	var values []float64
	for _, round := range row.Rounds {
		values = append(values, c.round(round))
	}
	return values
}

func compareMedians(was, is []float64) FigureChange {
	x := benchmath.NewSample(was, &benchmath.DefaultThresholds)
	y := benchmath.NewSample(is, &benchmath.DefaultThresholds)
	result := benchmath.AssumeNothing.Compare(x, y)
	change := FigureChange{
		P:   result.P,
		Old: benchmath.AssumeNothing.Summary(x, 0.95),
		New: benchmath.AssumeNothing.Summary(y, 0.95),
	}
	change.Delta = result.FormatDelta(change.Old.Center, change.New.Center)
	return change
}

func compareMeans(was, is []float64) FigureChange {
	logs := func(values []float64) *benchmath.Sample {
		var logs []float64
		for _, v := range values {
			logs = append(logs, math.Log(v))
		}
		return benchmath.NewSample(logs, &benchmath.DefaultThresholds)
	}
	result := benchmath.AssumeNormal.Compare(logs(was), logs(is))
	result.Alpha = benchmath.DefaultThresholds.CompareAlpha // which AssumeNormal does not set
	summary := func(values []float64) benchmath.Summary {
		center, interval := stats.GeometricMean(values)
		s := benchmath.Summary{Center: center, Lo: math.Inf(-1), Hi: math.Inf(1), Confidence: 0.95}
		if interval != nil {
			s.Lo, s.Hi = interval.Low, interval.High
		}
		return s
	}
	change := FigureChange{P: result.P, Old: summary(was), New: summary(is)}
	change.Delta = result.FormatDelta(change.Old.Center, change.New.Center)
	return change
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

// WriteText writes the comparison for a terminal.
func (c *Comparison) WriteText(w io.Writer, colour bool) error {
	out := newPrinter(w, colour)
	for _, change := range c.Changed {
		out.line(red+bold, fmt.Sprintf("VERDICT CHANGED: %s: %s -> %s",
			change.Row, strings.ToUpper(change.Old), strings.ToUpper(change.New)))
	}
	if len(c.Figures) == 0 {
		fmt.Fprintln(out, "Nothing to compare: the reports have no strategy with the same load in common "+
			"(users, rate, hold, goods, counts, restocks).")
	}
	first := len(c.Changed) == 0
	for _, col := range columns {
		t := c.table(col.compared)
		if len(t.rows) == 0 {
			continue
		}
		if !first {
			fmt.Fprintln(out)
		}
		first = false
		t.write(out)
		if mean, n := c.geomean(col.compared); n > 1 {
			out.line(faint, fmt.Sprintf("geometric mean of all %d: %+.2f%%", n, 100*(mean-1)))
		}
	}
	list := func(heading string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(out, "\n%s\n", heading)
		}
		for _, line := range lines {
			fmt.Fprintf(out, "  %s\n", line)
		}
	}
	list("Only in the old report:", c.OnlyOld)
	list("Only in the new report:", c.OnlyNew)
	list("Note:", c.Notes)
	return out.Flush()
}

// table lists the changes of one figure.
func (c *Comparison) table(figure string) table {
	t := table{columns: []tableColumn{
		{head: figure, left: true}, {head: "old"}, {head: "±"}, {head: "new"}, {head: "±"}, {head: "delta"}, {head: "p"},
		{head: "rounds", left: true},
	}}
	for _, m := range c.Figures {
		if m.Figure != figure {
			continue
		}
		delta := tableCell{text: m.Delta}
		if m.Delta == "~" {
			delta.style = faint
		}
		t.rows = append(t.rows, []tableCell{
			{text: m.Row},
			{text: digits(m.Old.Center)}, {text: m.Old.PctRangeString()},
			{text: digits(m.New.Center)}, {text: m.New.PctRangeString()},
			delta, {text: fmt.Sprintf("%.3f", m.P)}, {text: m.Rounds},
		})
	}
	return t
}

// geomean is the geometric mean of the ratios of new to old, and the number of rows it covers.
func (c *Comparison) geomean(figure string) (mean float64, n int) {
	sum := 0.0
	for _, m := range c.Figures {
		if m.Figure == figure && m.Old.Center > 0 && m.New.Center > 0 {
			sum += math.Log(m.New.Center / m.Old.Center)
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	return math.Exp(sum / float64(n)), n
}
