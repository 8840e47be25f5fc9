package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
)

// Comparison holds two reports side by side.
type Comparison struct {
	Changed []VerdictChange // rows that are judged otherwise now
	Metrics []MetricChange
	OnlyOld []string // labels of rows that only one of the reports has
	OnlyNew []string
	Notes   []string // what to bear in mind
}

// VerdictChange is a row whose verdict is another one now.
type VerdictChange struct {
	Row string
	Old string
	New string
}

// MetricChange is one metric of one row, over the rounds of each report. With enough rounds it is their medians and the
// Mann-Whitney U test, which assumes nothing about how the figures are distributed. With fewer, where that test cannot
// find anything, it is their geometric means and Welch's t-test over the logarithms: ratios are taken to scatter normally.
type MetricChange struct {
	Row    string
	Metric string
	Old    benchmath.Summary
	New    benchmath.Summary
	P      float64
	Delta  string // "+12.34%", or "~" where the difference may be chance
	Rounds string
}

// metrics are those that Compare looks at.
var metrics = []struct {
	name string
	of   func(Round) float64
}{
	{"goodput/s", func(r Round) float64 { return r.GoodputPerS }},
	{"throughput/s", func(r Round) float64 { return r.ThroughputPerS }},
	{"p50 ms", func(r Round) float64 { return r.LatencyMS.P50 }},
	{"p99 ms", func(r Round) float64 { return r.LatencyMS.P99 }},
}

// enough rounds in each report are needed for the U test to find anything: with three, p is at least 0.1. The t-test needs
// more than one, to know how they scatter.
const enough, enoughForT = 4, 2

// Compare compares the rows that two reports have in common, as benchstat compares benchmarks.
func Compare(before, after *Report) *Comparison {
	c := &Comparison{}
	note := func(text string) {
		if !slices.Contains(c.Notes, text) {
			c.Notes = append(c.Notes, text)
		}
	}
	byKey := map[key]*Row{}
	for _, row := range after.Rows {
		byKey[row.key()] = row
	}
	both := map[key]bool{}
	for _, was := range before.Rows {
		is := byKey[was.key()]
		if is == nil {
			c.OnlyOld = append(c.OnlyOld, was.Label())
			continue
		}
		both[was.key()] = true
		if was.Result != is.Result {
			c.Changed = append(c.Changed, VerdictChange{is.Label(), string(was.Result), string(is.Result)})
		}
		if was.Stock != is.Stock || was.RequestsPlanned*len(is.Rounds) != is.RequestsPlanned*len(was.Rounds) {
			note(fmt.Sprintf("%s: not the same stock or number of requests in both", is.Label()))
		}
		for _, metric := range metrics {
			values := func(row *Row) []float64 {
				var values []float64
				for _, round := range row.Rounds {
					values = append(values, metric.of(round))
				}
				return values
			}
			x, y := values(was), values(is)
			if len(x) == 0 || len(y) == 0 || slices.Max(x) == 0 && slices.Max(y) == 0 {
				continue // the baseline has no goodput
			}
			compare := compareMedians
			if rounds := min(len(x), len(y)); rounds < enough && slices.Min(x) > 0 && slices.Min(y) > 0 {
				compare = compareRatios
				if rounds < enoughForT {
					note("a single round tells nothing about chance: no difference can be found with fewer than two in each report")
				} else {
					note(fmt.Sprintf("fewer than %d rounds in a report: geometric means and Welch's t-test over the logarithms, which takes "+
						"ratios to scatter normally, in place of medians and the U test, which assumes nothing", enough))
				}
			}
			change := compare(x, y)
			change.Row, change.Metric, change.Rounds = is.Label(), metric.name, fmt.Sprintf("n=%d+%d", len(x), len(y))
			c.Metrics = append(c.Metrics, change)
		}
	}
	for _, row := range after.Rows {
		if !both[row.key()] {
			c.OnlyNew = append(c.OnlyNew, row.Label())
		}
	}
	if was, is := before.Environment.machine(), after.Environment.machine(); was != is {
		note(fmt.Sprintf("not the same environment: %s, then %s", was, is))
	}
	return c
}

func compareMedians(was, is []float64) MetricChange {
	x, y := benchmath.NewSample(was, &benchmath.DefaultThresholds), benchmath.NewSample(is, &benchmath.DefaultThresholds)
	result := benchmath.AssumeNothing.Compare(x, y)
	change := MetricChange{P: result.P, Old: benchmath.AssumeNothing.Summary(x, 0.95), New: benchmath.AssumeNothing.Summary(y, 0.95)}
	change.Delta = result.FormatDelta(change.Old.Center, change.New.Center)
	return change
}

func compareRatios(was, is []float64) MetricChange {
	logs := func(values []float64) *benchmath.Sample {
		var logs []float64
		for _, v := range values {
			logs = append(logs, math.Log(v))
		}
		return benchmath.NewSample(logs, &benchmath.DefaultThresholds)
	}
	result := benchmath.AssumeNormal.Compare(logs(was), logs(is))
	result.Alpha = benchmath.DefaultThresholds.CompareAlpha // which AssumeNormal leaves out
	summary := func(values []float64) benchmath.Summary {
		center, interval := geometric(values)
		s := benchmath.Summary{Center: center, Lo: math.Inf(-1), Hi: math.Inf(1), Confidence: 0.95}
		if interval != nil {
			s.Lo, s.Hi = interval.Low, interval.High
		}
		return s
	}
	change := MetricChange{P: result.P, Old: summary(was), New: summary(is)}
	change.Delta = result.FormatDelta(change.Old.Center, change.New.Center)
	return change
}

// machine is what has to be the same for two reports to be compared, in words.
func (e Environment) machine() string {
	parts := []string{e.CPU, plural(e.Cores, "core")}
	for _, s := range e.Servers {
		if s.Name != "service" { // what is compared, as a rule
			parts = append(parts, s.String())
		}
	}
	return strings.Join(parts, ", ")
}

// WriteText writes the comparison for a terminal.
func (c *Comparison) WriteText(w io.Writer, colour bool) error {
	out := bufio.NewWriter(w)
	paint := func(s style, text string) string {
		if !colour {
			return text
		}
		return string(s) + text + string(reset)
	}
	for _, change := range c.Changed {
		fmt.Fprintf(out, "%s\n", paint(red+bold, fmt.Sprintf("VERDICT CHANGED: %s: %s -> %s",
			change.Row, strings.ToUpper(change.Old), strings.ToUpper(change.New))))
	}
	if len(c.Metrics) == 0 {
		fmt.Fprintln(out, "Nothing to compare: no row of one report is of the same strategy and load (users, rate, hold, goods, counts, restocks) as one of the other.")
	}
	for i, metric := range metrics {
		t := table{head: []string{metric.name, "old", "±", "new", "±", "delta", "p", "rounds"},
			left: []bool{true, false, false, false, false, false, false, true}}
		for _, m := range c.Metrics {
			if m.Metric != metric.name {
				continue
			}
			delta := cell{text: m.Delta}
			if m.Delta == "~" {
				delta.style = faint
			}
			t.rows = append(t.rows, []cell{{text: m.Row}, {text: figure(m.Old.Center)}, {text: m.Old.PctRangeString()},
				{text: figure(m.New.Center)}, {text: m.New.PctRangeString()}, delta, {text: fmt.Sprintf("%.3f", m.P)}, {text: m.Rounds}})
		}
		if len(t.rows) == 0 {
			continue
		}
		if i > 0 || len(c.Changed) > 0 {
			fmt.Fprintln(out)
		}
		t.write(out, colour)
		if mean, n := c.geomean(metric.name); n > 1 {
			fmt.Fprintf(out, "%s\n", paint(faint, fmt.Sprintf("geometric mean of all %d: %+.2f%%", n, 100*(mean-1))))
		}
	}
	list := func(heading string, labels []string) {
		if len(labels) > 0 {
			fmt.Fprintf(out, "\n%s\n", heading)
		}
		for _, label := range labels {
			fmt.Fprintf(out, "  %s\n", label)
		}
	}
	list("Only in the old report:", c.OnlyOld)
	list("Only in the new report:", c.OnlyNew)
	list("Note:", c.Notes)
	return out.Flush()
}

// geomean is the mean ratio of new to old over the rows.
func (c *Comparison) geomean(metric string) (mean float64, n int) {
	sum := 0.0
	for _, m := range c.Metrics {
		if m.Metric == metric && m.Old.Center > 0 && m.New.Center > 0 {
			sum += math.Log(m.New.Center / m.Old.Center)
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	return math.Exp(sum / float64(n)), n
}
