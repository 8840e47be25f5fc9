package stock_test

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
)

// theme has the colours of a picture: those of GitHub's own pages, so that the picture looks like a part of them.
type theme struct {
	suffix                                 string // of the file
	background, border, text, muted, empty string
	correct, late, wrong                   string
}

var themes = []theme{
	{
		background: "#ffffff", border: "#d1d9e0", text: "#1f2328", muted: "#59636e", empty: "#eff2f5",
		correct: "#1a7f37", late: "#9a6700", wrong: "#cf222e",
	},
	{
		suffix: "-dark", background: "#0d1117", border: "#3d444d", text: "#f0f6fc", muted: "#9198a1", empty: "#151b23",
		correct: "#3fb950", late: "#d29922", wrong: "#f85149",
	},
}

// pictures draws the figures for each theme, by file: every strategy, and those of the README's summary.
func (f *figures) pictures(inREADME []string) map[string][]byte {
	var summary []*measurement
	for _, r := range f.ranked() {
		if r.Replicas == 2 && slices.Contains(inREADME, r.Strategy) {
			summary = append(summary, r)
		}
	}
	files := map[string][]byte{}
	for _, t := range themes {
		files["docs/lab"+t.suffix+".svg"] = f.picture(t, f.ranked())
		files["docs/summary"+t.suffix+".svg"] = f.picture(t, summary)
	}
	return files
}

// A README on GitHub is about as wide as a picture, so its texts are not scaled.
const (
	pictureWidth = 830
	pictureEdge  = 16
	rowHeight    = 23
	headHeight   = 118
	barsLeft     = 196
	barsWidth    = 60
	shareLeft    = 354
	groupGap     = 8 // between correct strategies and the others
)

// faultsLeft is where the columns of the fault scenarios begin.
var faultsLeft = [...]int{446, 584, 722}

const pictureBegins = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d"
  role="img">
<title>Goodput of each strategy, its verdict, and what faults do to it</title>
<style>
text{font:13px -apple-system,BlinkMacSystemFont,"Segoe UI","Noto Sans",Helvetica,Arial,sans-serif;fill:%[3]s}
.h{font-size:17px;font-weight:600}.b{font-weight:600}.s{font-size:12px;fill:%[4]s}
.ok{fill:%[5]s}.late{fill:%[6]s}.bad{fill:%[7]s}.empty{fill:%[8]s}
.whisker{stroke:%[3]s;stroke-width:1.5}
use{stroke-width:2;stroke-linecap:round;stroke-linejoin:round}
use.ok{fill:none;stroke:%[5]s}use.wait,use.only{fill:none;stroke:%[6]s}use.bad{fill:none;stroke:%[7]s}
</style>
<defs>
<path id="ok" d="M1 6.5 4.5 10 11 2.5"/>
<path id="wait" d="M6 1a5 5 0 1 0 .01 0M6 3.5V6.3L8 7.5" stroke-width="1.5"/>
<path id="only" d="M6 1V7M6 10.9V11"/>
<path id="bad" d="M2 2 10 10M10 2 2 10"/>
</defs>
<rect x=".5" y=".5" width="%[9]d" height="%[10]d" rx="6" fill="%[11]s" stroke="%[12]s"/>
`

// drawing is a picture that is being drawn.
type drawing struct{ strings.Builder }

func (d *drawing) text(x, y int, class, s string) {
	fmt.Fprintf(d, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, html.EscapeString(s))
}

// bar draws a rectangle. Class is its colour.
func (d *drawing) bar(x, y, width, height int, class string) {
	fmt.Fprintf(d, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\" class=\"%s\"/>\n",
		x, y, width, height, class)
}

// sign draws a symbol and a text beside it.
func (d *drawing) sign(x, y int, symbol, s string) {
	fmt.Fprintf(d, "<use href=\"#%s\" x=\"%d\" y=\"%d\" class=\"%[1]s\"/>\n", symbol, x, y-11)
	d.text(x+18, y, "", s)
}

// picture draws a bar with its interval for each strategy, and what came of the faults.
func (f *figures) picture(t theme, rows []*measurement) []byte {
	var d drawing
	height := headHeight + rowHeight*len(rows) + groupGap + 40
	fmt.Fprintf(&d, pictureBegins, pictureWidth, height, t.text, t.muted, t.correct, t.late, t.wrong, t.empty,
		pictureWidth-1, height-1, t.background, t.border)
	d.head(f.Conditions)
	most := 1.0
	for _, r := range rows {
		most = max(most, r.Goodput)
		if r.Interval != nil {
			most = max(most, r.Interval[1])
		}
	}
	y := headHeight
	for i, r := range rows {
		if i > 0 && rows[i-1].correct() && !r.correct() {
			y += groupGap
		}
		if i%2 == 0 {
			fmt.Fprintf(&d, "<rect x=\"1\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"empty\"/>\n",
				y, pictureWidth-2, rowHeight)
		}
		d.row(r, y, most)
		y += rowHeight
	}
	d.legend(y + 25)
	d.WriteString("</svg>\n")
	return []byte(d.String())
}

// inBrackets is what has no room in a picture, such as the name of a processor.
var inBrackets = regexp.MustCompile(` \([^)]*\)`)

// head names the columns. Of the conditions, it shows those that matter most.
func (d *drawing) head(conditions string) {
	measured, _, _ := strings.Cut(inBrackets.ReplaceAllString(conditions, ""), ";")
	d.text(pictureEdge, 32, "h", "How fast is each strategy, and does it stay correct?")
	d.text(pictureEdge, 52, "s", measured+". Whiskers: 95 % intervals.")
	d.text(barsLeft, 86, "b", "goodput")
	d.text(barsLeft, 103, "s", "correct units per second")
	d.text(shareLeft, 86, "b", "× noop")
	d.text(shareLeft, 103, "s", "same rounds")
	for i, lines := range [...][2]string{
		{"holder dies", "killed in its section"}, {"write comes late", "after the next sale"},
		{"client retries", "it got no answer"},
	} {
		d.text(faultsLeft[i], 86, "b", lines[0])
		d.text(faultsLeft[i], 103, "s", lines[1])
	}
}

// row draws what is known about a strategy.
func (d *drawing) row(r *measurement, y int, most float64) {
	baseline, class := y+16, r.colour()
	plain := strings.NewReplacer("`", "", "*", "", "blocked until the holder", "until it", "blocked until", "until")
	d.text(pictureEdge, baseline, "", strings.ReplaceAll(r.label(), "`", ""))
	scale := func(v float64) int { return max(1, int(barsWidth*v/most)) }
	end := scale(r.Goodput)
	d.bar(barsLeft, y+5, end, rowHeight-10, class)
	if whisker := r.Interval; whisker != nil && scale(whisker[1])-scale(whisker[0]) > 2 {
		from, to := scale(whisker[0]), scale(whisker[1])
		end = max(end, to)
		middle := y + rowHeight/2
		fmt.Fprintf(d, "<path d=\"M%d %dH%dM%[1]d %[4]dv6M%[3]d %[4]dv6\" class=\"whisker\"/>\n",
			barsLeft+from, middle, barsLeft+to, middle-3)
	}
	d.text(barsLeft+end+8, baseline, "", r.rate())
	if r.Noop != nil {
		d.text(shareLeft, baseline, "", r.share())
	}
	switch {
	case !r.correct():
		symbol := "bad"
		if r.Verdict == "correct" {
			symbol = "only"
		}
		d.sign(faultsLeft[0], baseline, symbol, plain.Replace(r.found()))
	case r.Replicas == 1:
		d.text(faultsLeft[0]+18, baseline, "s", "faults are played on two replicas")
	default:
		for i, outcome := range r.faults(*strategy(r.Strategy)) {
			if strings.HasSuffix(outcome, notMeasured) {
				d.text(faultsLeft[i]+18, baseline, "s", "not measured")
				continue
			}
			outcome, _, _ = strings.Cut(outcome, " (") // there is no room for its time
			d.sign(faultsLeft[i], baseline, symbol(outcome), plain.Replace(outcome))
		}
	}
}

// colour returns the class of the bar.
func (r *measurement) colour() string {
	switch {
	case !r.correct() && r.Verdict == "correct":
		return "late"
	case !r.correct():
		return "bad"
	case r.lateLoss() != "":
		return "late"
	}
	return "ok"
}

// symbol returns the symbol of what came of a fault, in the words of the documents.
func symbol(outcome string) string {
	switch {
	case outcome == "safe":
		return "ok"
	case strings.HasPrefix(outcome, "**"):
		return "bad"
	case strings.HasPrefix(outcome, "blocked"), strings.HasPrefix(outcome, "unavailable"):
		return "wait"
	}
	return "only" // skipped or inconclusive
}

// legend explains the colours of the bars.
func (d *drawing) legend(y int) {
	x := pictureEdge
	for _, entry := range []struct {
		class, text string
		width       int
	}{
		{"ok", "correct", 90},
		{"late", "correct, but not if a write comes late, or * a control", 355},
		{"bad", "wrong: sales are lost without any fault", 0},
	} {
		d.bar(x, y-10, 12, 12, entry.class)
		d.text(x+20, y, "s", entry.text)
		x += entry.width
	}
}
