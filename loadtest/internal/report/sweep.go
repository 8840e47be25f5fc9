package report

import (
	"fmt"
	"slices"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// Sweep shows how the speed of each strategy changes along one axis.
type Sweep struct {
	Axis   string   // users, hold, goods or replicas
	Values []string // ascending, as the user writes them: 8, 2ms
	Charts []*Chart // by workload and replicas
}

// Chart has the curves that can be compared with each other.
type Chart struct {
	Title  string
	Curves []*Curve // by speed at the first value

	of history.Subject // what its curves have in common
}

// Curve is one strategy under one workload.
type Curve struct {
	Label string // the strategy, with its store if there are several
	Rows  []*Row // by value; nil where it was not run
}

// markUntested marks the rows of a sweep in which hardly any requests raced, such as those of a single user. Their
// claim is neither held nor broken, provided that another value put the strategy to the test.
func (r *Report) markUntested() {
	for _, row := range r.Rows {
		row.Untested = row.Sweep != "" && row.Uncontended && slices.ContainsFunc(r.Rows, func(other *Row) bool {
			return other.curve() == row.curve() && !other.Uncontended
		})
	}
}

// curve returns what the rows of a curve have in common.
func (r *Row) curve() history.Subject {
	c := history.Subject{
		Strategy: r.Strategy, Store: r.Store, Replicas: r.Replicas, Workload: history.Workload{Name: r.Workload.Name},
	}
	if r.Sweep == history.AxisReplicas {
		c.Replicas = 0
	}
	return c
}

// Sweep arranges the rows of a sweep in curves; nil if nothing was swept.
func (r *Report) Sweep() *Sweep {
	s := &Sweep{}
	var places []int64
	for _, row := range r.Rows {
		if row.Sweep != "" {
			s.Axis, places = row.Sweep, append(places, row.At())
		}
	}
	if s.Axis == "" {
		return nil
	}
	slices.Sort(places)
	places = slices.Compact(places)
	for _, at := range places {
		s.Values = append(s.Values, history.Value(s.Axis, at))
	}
	curves := map[history.Subject]*Curve{}
	for _, row := range r.Rows { // the first rows are those of the first value, by speed
		if row.Sweep == "" {
			continue
		}
		c := curves[row.curve()]
		if c == nil {
			c = &Curve{Label: r.nameOf(row), Rows: make([]*Row, len(places))}
			curves[row.curve()] = c
			chart := s.chart(row.curve())
			chart.Curves = append(chart.Curves, c)
		}
		c.Rows[slices.Index(places, row.At())] = row
	}
	return s
}

// chart returns the chart of a curve, and adds it if there is none.
func (s *Sweep) chart(of history.Subject) *Chart {
	of.Strategy, of.Store = "", ""
	for _, c := range s.Charts {
		if c.of == of {
			return c
		}
	}
	parts := []string{of.Workload.Name, "goodput/s by " + s.Axis}
	if of.Replicas > 0 {
		parts = append(parts, plural(of.Replicas, "replica"))
	}
	c := &Chart{Title: strings.Join(parts, " · "), of: of}
	s.Charts = append(s.Charts, c)
	return c
}

const sweepLegend = `Trimmed means over the rounds ± half the width of their 95 % intervals, and the ratio to the first
value; ~ if its interval includes 1. untested: too few requests raced with each other.`

// writeText writes a table of strategies and values for each chart.
func (s *Sweep) writeText(out printer) {
	for _, chart := range s.Charts {
		out.section(chart.Title)
		t := table{columns: []tableColumn{{head: strategyHead}}}
		for _, value := range s.Values {
			t.columns = append(t.columns, tableColumn{head: value})
		}
		for _, c := range chart.Curves {
			line := []tableCell{{text: c.Label}}
			for _, row := range c.Rows {
				line = append(line, row.sweepCell(c.Rows[0]))
			}
			t.rows = append(t.rows, line)
		}
		t.write(out)
	}
	out.paragraph(sweepLegend)
}

// sweepCell has the rate with its interval, the ratio to the first value, and a mark; nothing for nil.
func (r *Row) sweepCell(first *Row) (cell tableCell) {
	if r == nil {
		return cell
	}
	if !r.ClaimHeld && !r.Untested {
		cell.style = red
	}
	parts := []string{plusMinus(stats.Grouped(r.RatePerS()), r.spread()), r.ratioTo(first), r.Mark()}
	cell.text = strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
	return cell
}

// ratioTo tells how many times as fast the row is as another one, by the rounds of the same number: "~" if the interval
// includes 1, and nothing if they cannot be compared.
func (r *Row) ratioTo(first *Row) string {
	if first == nil || r == first {
		return ""
	}
	mean, interval := stats.Mean(stats.Ratios(r.rates(), first.rates()))
	switch {
	case mean == 0:
		return ""
	case interval != nil && interval.Low <= 1 && interval.High >= 1:
		return "~"
	}
	return fmt.Sprintf("%.2f×", mean)
}

// Mark is what a reader of a sweep must know about a row besides its speed: that it is not correct, or was not tested.
func (r *Row) Mark() string {
	switch {
	case r.Untested:
		return "untested"
	case r.Baseline && r.ClaimHeld:
		return ""
	case r.Result != verify.Correct:
		return string(r.Result)
	}
	if !r.ClaimHeld {
		return "not held"
	}
	return ""
}
