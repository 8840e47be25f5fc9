package report

import (
	"bufio"
	"fmt"
	"strings"

	"stock/internal/stats"
)

const shownCrossovers = 12 // on a terminal

// writeText writes a table of strategies and values for each workload, and lists the crossovers.
func (s *Sweep) writeText(out printer) {
	for i, group := range s.Groups() {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.line(bold, s.Title(group))
		t := s.textTable(group)
		t.write(out)
		texts := s.Crossed(group)
		for _, text := range texts[:min(len(texts), shownCrossovers)] {
			fmt.Fprintf(out, "  %s\n", text)
		}
		if more := len(texts) - shownCrossovers; more > 0 {
			fmt.Fprintf(out, "  and %d more crossovers in the Markdown\n", more)
		}
	}
}

// textTable has these columns for each value: the rate, its interval, the ratio to the first value, and a mark.
func (s *Sweep) textTable(group []*Curve) table {
	t := table{columns: []tableColumn{{head: "strategy", left: true}}}
	for i, value := range s.Values {
		t.columns = append(t.columns, tableColumn{head: value}, tableColumn{head: "±"})
		if i > 0 {
			t.columns = append(t.columns, tableColumn{head: "×" + s.Values[0]})
		}
		t.columns = append(t.columns, tableColumn{left: true})
	}
	for _, c := range group {
		line := []tableCell{{text: s.Label(c)}}
		for i, value := range s.Values {
			var rate, spread, ratio, mark tableCell
			if p := c.point(value); p != nil {
				rate, spread = tableCell{text: stats.Grouped(p.RatePerS)}, tableCell{text: p.spread()}
				ratio = tableCell{text: p.ratio()}
				mark = tableCell{text: p.mark(c.Baseline), style: faint}
				if !p.ClaimHeld && !p.Untested {
					mark.style = red
				}
			}
			line = append(line, rate, spread)
			if i > 0 {
				line = append(line, ratio)
			}
			line = append(line, mark)
		}
		t.rows = append(t.rows, line)
	}
	return t
}

// writeMarkdown writes the same tables.
func (s *Sweep) writeMarkdown(out *bufio.Writer) {
	for _, group := range s.Groups() {
		fmt.Fprintf(out, "\n## %s\n\n| strategy |", s.Title(group))
		for _, value := range s.Values {
			fmt.Fprintf(out, " %s |", value)
		}
		fmt.Fprintf(out, "\n| --- |%s\n", strings.Repeat(" --- |", len(s.Values)))
		for _, c := range group {
			fmt.Fprintf(out, "| `%s` |", s.Label(c))
			for _, value := range s.Values {
				fmt.Fprintf(out, " %s |", c.point(value).markdown(c.Baseline))
			}
			out.WriteByte('\n')
		}
		for i, text := range s.Crossed(group) {
			if i == 0 {
				out.WriteByte('\n')
			}
			fmt.Fprintf(out, "- %s\n", escape(text))
		}
	}
	fmt.Fprint(out, "\nTrimmed means over the rounds with their 95 % intervals, and the ratio to the first value; "+
		"~ if its interval includes 1. A crossover is listed if the differences on both sides of it are significant: "+
		"by chance alone, at most one sweep in twenty would list any (Holm's method, over all comparisons of the sweep). "+
		"untested: too few requests raced with each other.\n")
}

// markdown returns the point's cell of the table; empty for nil.
func (p *Point) markdown(baseline bool) string {
	if p == nil {
		return ""
	}
	var text strings.Builder
	text.WriteString("**" + stats.Grouped(p.RatePerS) + "**")
	if p.Interval != nil {
		fmt.Fprintf(&text, " (%s – %s)", stats.Grouped(p.Interval.Low), stats.Grouped(p.Interval.High))
	}
	for _, more := range []string{p.ratio(), p.mark(baseline)} {
		if more != "" {
			text.WriteString("<br>" + more)
		}
	}
	return text.String()
}
