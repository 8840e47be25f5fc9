package page

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

// sweepView is a chart with a line for each strategy, and the same figures as a table.
type sweepView struct {
	Title    string
	Chart    template.HTML
	Legend   []sweepLine
	Points   []sweepPoint // what the points look like, if some are not as usual
	NotDrawn string       // which strategies are not drawn, and why
	Crossed  []string
	Values   []string
	Table    []sweepRow
}

// sweepLine is a line of the chart.
type sweepLine struct {
	Number, Colour int
	Name           string
}

// sweepPoint explains a kind of points.
type sweepPoint struct {
	Picture template.HTML
	Text    string
}

// sweepRow is a row of the table.
type sweepRow struct {
	Name  string
	Cells []sweepCell
}

// sweepCell is a rate with its interval, and what else a reader must know.
type sweepCell struct{ Rate, Interval, Note string }

// newSweeps draws the curves that can be compared with each other in one chart.
func newSweeps(s *report.Sweep) (views []sweepView) {
	for _, group := range s.Groups() {
		v := sweepView{Title: s.Title(group), Crossed: s.Crossed(group), Values: s.Values}
		var drawn []*report.Curve
		var wrong []string
		for _, c := range group {
			v.Table = append(v.Table, newSweepRow(s, c))
			switch {
			case c.Baseline:
			case slices.ContainsFunc(c.Points, func(p report.Point) bool { return p.Result == verify.Wrong }):
				wrong = append(wrong, s.Label(c))
			default:
				v.Legend = append(v.Legend, sweepLine{len(drawn), len(drawn) % lineColours, s.Label(c)})
				drawn = append(drawn, c)
			}
		}
		if len(wrong) > 0 {
			v.NotDrawn = "Not drawn, because they are wrong: " + strings.Join(wrong, ", ") + "."
		}
		v.Chart = sweepChart(s, drawn)
		v.Points = pointLegend(drawn)
		views = append(views, v)
	}
	return views
}

func newSweepRow(s *report.Sweep, c *report.Curve) sweepRow {
	row := sweepRow{Name: s.Label(c)}
	for _, value := range s.Values {
		i := slices.IndexFunc(c.Points, func(p report.Point) bool { return p.Value == value })
		if i < 0 {
			row.Cells = append(row.Cells, sweepCell{})
			continue
		}
		p := c.Points[i]
		found := sweepCell{Rate: grouped(p.RatePerS)}
		if p.Interval != nil {
			found.Interval = grouped(p.Interval.Low) + "–" + grouped(p.Interval.High)
		}
		switch {
		case p.Untested:
			found.Note = "untested"
		case p.Result != verify.Correct:
			found.Note = string(p.Result)
		}
		row.Cells = append(row.Cells, found)
	}
	return row
}

// label is a text at the end of a line of a chart.
type label struct {
	y     float64
	text  string
	class string
}

// sweepChart draws the curves with their 95 % intervals as bands. The values have equal distances, because users give
// them in steps such as 1, 8, 32, 128.
func sweepChart(s *report.Sweep, curves []*report.Curve) template.HTML {
	if len(curves) == 0 {
		return ""
	}
	most := 0.0
	for _, c := range curves {
		for _, p := range c.Points {
			most = max(most, p.RatePerS)
			if p.Interval != nil {
				most = max(most, min(p.Interval.High, 2*p.RatePerS))
			}
		}
	}
	c := newChart(960, 400)
	c.right, c.bottom = 190, 40
	end := c.yAxis(most)
	at := func(value string) float64 {
		return c.x(float64(slices.Index(s.Values, value)) / math.Max(1, float64(len(s.Values)-1)))
	}
	for _, value := range s.Values {
		c.text(at(value), c.height-20, "tick middle", value)
	}
	c.text(c.x(.5), c.height-4, "tick middle", s.Axis)
	var labels []label
	for i, curve := range curves {
		fmt.Fprintf(c, `<g class="curve line-%d" data-curve="%d">`, i%lineColours, i)
		c.curve(curve, at, end)
		c.WriteString("</g>")
		last := curve.Points[len(curve.Points)-1]
		labels = append(labels, label{c.y(last.RatePerS / end), s.Label(curve), fmt.Sprintf("label line-%d", i%lineColours)})
	}
	c.labels(labels)
	return c.finish(fmt.Sprintf("Goodput per second of %s by %s. The table below has the figures.",
		count(len(curves), "strategy"), s.Axis))
}

// lineColours is how many colours the style sheet has for lines.
const lineColours = 8

// curve draws the line and the points of a curve, and bands between points with intervals.
func (c *chart) curve(curve *report.Curve, at func(string) float64, end float64) {
	var line, above, below [][2]float64
	band := func() {
		slices.Reverse(below)
		c.path("band", append(above, below...))
		above, below = nil, nil
	}
	for _, p := range curve.Points {
		x := at(p.Value)
		line = append(line, [2]float64{x, c.y(p.RatePerS / end)})
		if p.Interval == nil {
			band()
			continue
		}
		above = append(above, [2]float64{x, c.y(min(p.Interval.High, end) / end)})
		below = append(below, [2]float64{x, c.y(p.Interval.Low / end)})
	}
	band()
	c.path("line", line)
	for i, p := range curve.Points {
		c.WriteString(pointMark(kindOf(p), line[i][0], line[i][1]))
	}
}

// pointKind is how a point of a curve looks.
type pointKind struct{ decided, interval bool }

func kindOf(p report.Point) pointKind {
	return pointKind{decided: p.Result == verify.Correct, interval: p.Interval != nil}
}

// pointMark is a circle, or a diamond without an interval. It is hollow if the verdict is not known.
func pointMark(kind pointKind, x, y float64) string {
	class := "hollow"
	if kind.decided {
		class = "solid"
	}
	if kind.interval {
		return fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="3" class="%s"/>`, x, y, class)
	}
	return fmt.Sprintf(`<path d="M%.1f %.1fl4.5 4.5 -4.5 4.5 -4.5 -4.5z" class="%s"/>`, x, y-4.5, class)
}

// pointLegend explains the kinds of points that there are; nil if all have an interval and a verdict.
func pointLegend(curves []*report.Curve) (legend []sweepPoint) {
	usual := pointKind{decided: true, interval: true}
	there := map[pointKind]bool{}
	for _, c := range curves {
		for _, p := range c.Points {
			there[kindOf(p)] = true
		}
	}
	for _, kind := range []struct {
		pointKind

		text string
	}{
		{usual, "correct, with an interval"},
		{pointKind{decided: true}, "correct, but without an interval, which needs two rounds"},
		{pointKind{interval: true}, "inconclusive: too little was tested to decide"},
		{pointKind{}, "inconclusive, and without an interval"},
	} {
		if there[kind.pointKind] {
			picture := `<svg width="14" height="14" aria-hidden="true">` + pointMark(kind.pointKind, 7, 7) + `</svg>`
			legend = append(legend, sweepPoint{safe(picture), kind.text})
		}
	}
	if len(there) == 1 && there[usual] {
		return nil
	}
	return legend
}

// labels writes the names at the ends of the lines, none upon another.
func (c *chart) labels(labels []label) {
	const height = 13.0
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	room := c.height - c.bottom - c.top + height
	if float64(len(labels))*height > room {
		return // the legend has all names
	}
	for i := range labels {
		if i > 0 {
			labels[i].y = max(labels[i].y, labels[i-1].y+height)
		}
	}
	lowest := c.height - c.bottom + height/2
	for i := len(labels) - 1; i >= 0; i-- {
		labels[i].y = min(labels[i].y, lowest)
		lowest = labels[i].y - height
	}
	for _, l := range labels {
		c.text(c.x(1)+10, l.y+4, l.class, l.text)
	}
}
