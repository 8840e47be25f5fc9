package page

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// chart collects the elements of an SVG of a fixed size, which the style sheet scales.
type chart struct {
	strings.Builder
	width, height            float64
	left, right, top, bottom float64 // margins around the plot
}

func newChart(width, height float64) *chart {
	return &chart{width: width, height: height, left: 46, right: 10, top: 14, bottom: 26}
}

// x and y place a part of the plot, from 0 to 1, on the picture.
func (c *chart) x(part float64) float64 { return c.left + part*(c.width-c.left-c.right) }
func (c *chart) y(part float64) float64 { return c.height - c.bottom - part*(c.height-c.top-c.bottom) }

func (c *chart) text(x, y float64, class, text string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(text))
}

func (c *chart) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// path draws a line through points; nothing if there are none.
func (c *chart) path(class string, points [][2]float64) {
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(c, `<path class="%s" d="`, class)
	for i, p := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(c, "%s%.0f %.1f", command, p[0], p[1])
	}
	c.WriteString(`"/>`)
}

// finish returns the picture. The label replaces it for those who cannot see it.
func (c *chart) finish(label string) template.HTML {
	return safe(fmt.Sprintf(`<svg class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s">%s</svg>`,
		c.width, c.height, html.EscapeString(label), c.String()))
}

// yAxis draws horizontal lines from 0 to most, and returns the end of the axis.
func (c *chart) yAxis(most float64) float64 {
	step := niceStep(most / 3)
	end := step * math.Ceil(most/step)
	for v := 0.0; v <= end*1.001; v += step {
		y := c.y(v / end)
		c.line(c.x(0), y, c.x(1), y, "grid")
		c.text(c.left-6, y+4, "tick end", short(v))
	}
	return end
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= v {
			return n * power
		}
	}
	return 10 * power
}

// short writes a number for an axis.
func short(v float64) string {
	switch {
	case v >= 1e4:
		return fmt.Sprintf("%gk", math.Round(v/100)/10)
	case v >= 1:
		return grouped(v)
	case v == 0:
		return "0"
	}
	return fmt.Sprintf("%g", v)
}

// logScale is a logarithmic scale of whole powers of ten.
type logScale struct {
	first, last float64 // the exponents of its ends
}

// newLogScale returns the shortest scale that has both values.
func newLogScale(least, most float64) logScale {
	if most <= 0 {
		return logScale{0, 1}
	}
	first := math.Floor(math.Log10(least))
	return logScale{first, max(math.Ceil(math.Log10(most)), first+1)}
}

// place returns where a value is, in percent of the scale's length. What lies beyond an end is at the end.
func (s logScale) place(v float64) float64 {
	part := (math.Log10(max(v, math.SmallestNonzeroFloat64)) - s.first) / (s.last - s.first)
	return 100 * min(max(part, 0), 1)
}

// Decades is how many powers of ten the scale has.
func (s logScale) Decades() int { return int(s.last - s.first) }

// Ticks are the powers of ten of the scale.
func (s logScale) Ticks() []tick {
	var ticks []tick
	for e := s.first; e <= s.last; e++ {
		v := math.Pow(10, e)
		ticks = append(ticks, tick{Text: short(v), At: s.place(v)})
	}
	return ticks
}

// tick is a labelled place on a scale, in percent of its length.
type tick struct {
	Text string
	At   float64
}
