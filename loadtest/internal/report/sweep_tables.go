package report

import (
	"slices"
	"strings"

	"stock/internal/stats"
)

const sweepLegend = `Trimmed means over the rounds ± half the width of their 95 % intervals, and the ratio to the first
value; ~ if its interval includes 1. A crossover is listed if the differences on both sides of it are significant: by
chance alone, at most one sweep in twenty would list any (Holm's method, over all comparisons of the sweep). untested:
too few requests raced with each other.`

// writeText writes a table of strategies and values for each workload, and lists the crossovers.
func (s *Sweep) writeText(out printer) {
	for _, group := range s.Groups() {
		out.section(s.Title(group))
		t := table{columns: []tableColumn{{head: strategyHead}}}
		for _, value := range s.Values {
			t.columns = append(t.columns, tableColumn{head: value})
		}
		for _, c := range group {
			line := []tableCell{{text: s.Label(c)}}
			for _, value := range s.Values {
				line = append(line, c.point(value).cell(c.Baseline))
			}
			t.rows = append(t.rows, line)
		}
		t.write(out)
		for i, text := range s.Crossed(group) {
			if i == 0 {
				out.WriteByte('\n')
			}
			out.item(plain, text)
		}
	}
	out.paragraph(sweepLegend)
}

// cell has the rate with its interval, the ratio to the first value, and a mark; nothing for nil.
func (p *Point) cell(baseline bool) (cell tableCell) {
	if p == nil {
		return cell
	}
	if !p.ClaimHeld && !p.Untested {
		cell.style = red
	}
	parts := []string{plusMinus(stats.Grouped(p.RatePerS), spread(p.RatePerS, p.Interval)), p.ratio(), p.mark(baseline)}
	cell.text = strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
	return cell
}
