package page

import (
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
	*report.Chart

	Values   []string
	Picture  template.HTML
	Legend   []sweepLine
	NotDrawn string // which strategies are not drawn, and why
}

// sweepLine is a line of the chart.
type sweepLine struct {
	Number, Colour int
	Label          string
}

// newSweeps draws the curves that can be compared with each other in one chart.
func newSweeps(s *report.Sweep) (views []sweepView) {
	if s == nil {
		return nil
	}
	for _, chart := range s.Charts {
		v := sweepView{Chart: chart, Values: s.Values}
		var drawn []*report.Curve
		var wrong []string
		for _, c := range chart.Curves {
			there := slices.DeleteFunc(slices.Clone(c.Rows), func(row *report.Row) bool { return row == nil })
			switch {
			case there[0].Baseline:
			case slices.ContainsFunc(there, func(row *report.Row) bool { return row.Result == verify.Wrong }):
				wrong = append(wrong, c.Label)
			default:
				v.Legend = append(v.Legend, sweepLine{len(drawn), len(drawn) % lineColours, c.Label})
				drawn = append(drawn, c)
			}
		}
		if len(wrong) > 0 {
			v.NotDrawn = "Not drawn, because they are wrong: " + strings.Join(wrong, ", ") + "."
		}
		v.Picture = sweepChart(s, drawn)
		views = append(views, v)
	}
	return views
}

// lineColours is how many colours the style sheet has for lines.
const lineColours = 8

// sweepChart draws the curves with their 95 % intervals as bands. The values have equal distances, because users give
// them in steps such as 1, 8, 32, 128.
func sweepChart(s *report.Sweep, curves []*report.Curve) template.HTML {
	if len(curves) == 0 {
		return ""
	}
	most := 0.0
	for _, c := range curves {
		for _, row := range c.Rows {
			if row == nil {
				continue
			}
			most = max(most, row.RatePerS())
			if i := row.GoodputInterval; i != nil {
				most = max(most, min(i.High, 2*row.RatePerS()))
			}
		}
	}
	c := newChart(960, 400)
	c.bottom = 40
	end := c.yAxis(most)
	at := func(i int) float64 { return c.x(float64(i) / math.Max(1, float64(len(s.Values)-1))) }
	for i, value := range s.Values {
		c.text(at(i), c.height-20, "tick middle", value)
	}
	c.text(c.x(.5), c.height-4, "tick middle", s.Axis)
	for i, curve := range curves {
		fmt.Fprintf(c, `<g class="curve line-%d" data-curve="%d">`, i%lineColours, i)
		c.curve(curve, at, end)
		c.WriteString("</g>")
	}
	return c.finish(fmt.Sprintf("Goodput per second of %s by %s. The table below has the figures.",
		count(len(curves), "strategy"), s.Axis))
}

// curve draws the line and the points of a curve, and bands between points with intervals. A point is hollow if the
// verdict is not known.
func (c *chart) curve(curve *report.Curve, at func(int) float64, end float64) {
	var line, above, below [][2]float64
	band := func() {
		slices.Reverse(below)
		c.path("band", append(above, below...))
		above, below = nil, nil
	}
	var points strings.Builder
	for i, row := range curve.Rows {
		if row == nil {
			continue
		}
		x, y := at(i), c.y(row.RatePerS()/end)
		line = append(line, [2]float64{x, y})
		class := "hollow"
		if row.Result == verify.Correct {
			class = "solid"
		}
		fmt.Fprintf(&points, `<circle cx="%.1f" cy="%.1f" r="3" class="%s"/>`, x, y, class)
		if row.GoodputInterval == nil {
			band()
			continue
		}
		above = append(above, [2]float64{x, c.y(min(row.GoodputInterval.High, end) / end)})
		below = append(below, [2]float64{x, c.y(row.GoodputInterval.Low / end)})
	}
	band()
	c.path("line", line)
	c.WriteString(points.String())
}
