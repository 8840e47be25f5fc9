package stock_test

import (
	"fmt"
	"html"
	"strings"
)

const svgBegins = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d"
  role="img" aria-label="Goodput and verdict of every strategy">
<style>
text{font:13px system-ui,sans-serif;fill:#1a202c}
.h{font-size:17px;font-weight:600}.b{font-weight:600}.s{font-size:12px;fill:#4a5568}
.ok{fill:#2f855a}.late{fill:#b7791f}.bad{fill:#c53030}
</style>
<rect width="%[1]d" height="%[2]d" fill="#fff"/>
`

// picture draws the table's two rates as bars.
func (f *figures) picture() []byte {
	const width, left, bar, next, line, small = 1100, 205, 150, 440, 22, 16
	conditions := strings.Split(strings.TrimSpace(wrap(f.Conditions, 170)), "\n")
	rows := f.ranked()
	top := 80 + small*len(conditions)
	height := top + line*len(rows) + 24
	var b strings.Builder
	text := func(x, y int, attributes, s string) {
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, attributes, html.EscapeString(s))
	}
	fmt.Fprintf(&b, svgBegins, width, height)
	text(20, 34, ` class="h"`, "Units sold correctly per second, and what the judge found")
	for i, s := range conditions {
		text(20, 52+small*i, ` class="s"`, s)
	}
	text(left, top-16, ` class="b"`, "plenty: as much stock as demand")
	text(left+next, top-16, ` class="b"`, "flash sale: a sixth of the demand in stock")
	for column, workload := range []string{"plenty", "flash-sale"} {
		x := left + column*next
		most := 1.0
		for _, r := range rows {
			if r := f.row(r.Strategy, r.Replicas, workload); r != nil {
				most = max(most, r.Goodput)
			}
		}
		for i, r := range rows {
			y := top + line*i
			if column == 0 {
				text(left-10, y+12, ` text-anchor="end"`, strings.NewReplacer("`", "", " *", "").Replace(r.label()))
			}
			r := f.row(r.Strategy, r.Replicas, workload)
			if r == nil {
				continue
			}
			class := "bad"
			if r.correct() {
				class = "ok"
				if r.losesLateWrite() {
					class = "late"
				}
			}
			length := max(1, int(bar*r.Goodput/most))
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"15\" class=\"%s\"/>\n", x, y, length, class)
			text(x+length+6, y+12, "", number(r.Goodput))
			text(x+bar+65, y+12, ` class="`+class+`"`, strings.ReplaceAll(r.found(), "*", ""))
		}
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
