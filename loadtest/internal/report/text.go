package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// Terminal says whether somebody looks at w while it is written.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Colour says whether output to w is to be coloured: on a terminal, unless NO_COLOR is set (no-color.org).
func Colour(w io.Writer) bool { return Terminal(w) && os.Getenv("NO_COLOR") == "" }

// style is an ANSI escape sequence; empty for plain.
type style string

const (
	plain  style = ""
	bold   style = "\x1b[1m"
	faint  style = "\x1b[2m"
	red    style = "\x1b[31m"
	green  style = "\x1b[32m"
	yellow style = "\x1b[33m"
	reset  style = "\x1b[0m"
)

// cell is a piece of a table.
type cell struct {
	text  string
	style style
}

// table aligns cells in columns. text/tabwriter would count the escape sequences as width.
type table struct {
	head []string
	left []bool // columns that are words, not figures
	rows [][]cell
}

func (t *table) write(w *bufio.Writer, colour bool) {
	widths := make([]int, len(t.head))
	for i, text := range t.head {
		widths[i] = utf8.RuneCountInString(text)
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	line := func(cells []cell) {
		end := len(cells)
		for end > 0 && cells[end-1].text == "" {
			end-- // no blanks at the end of a line
		}
		for i, c := range cells[:end] {
			if i > 0 {
				w.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
			if !t.left[i] {
				w.WriteString(pad)
			}
			if colour && c.style != plain {
				w.WriteString(string(c.style) + c.text + string(reset))
			} else {
				w.WriteString(c.text)
			}
			if t.left[i] && i < end-1 {
				w.WriteString(pad)
			}
		}
		w.WriteByte('\n')
	}
	head := make([]cell, len(t.head))
	for i, text := range t.head {
		head[i] = cell{text, faint}
	}
	line(head)
	for _, row := range t.rows {
		line(row)
	}
}

// WriteText writes the comparison for a terminal of 150 columns: a table for each load, what convicted the wrong ones, and
// whether every claim held. The Markdown has the columns that find no room here.
func (r *Report) WriteText(w io.Writer, colour bool) error {
	out := bufio.NewWriter(w)
	paint := func(s style, text string) string {
		if !colour {
			return text
		}
		return string(s) + text + string(reset)
	}
	if r.Sweep != nil {
		r.Sweep.writeText(out, colour, paint) // the wide tables of every value would be too long to be read here
	} else {
		r.writeTables(out, colour, paint)
	}

	heading := false
	for _, row := range r.Rows {
		evidence := row.told()
		if len(evidence) == 0 {
			continue
		}
		if !heading {
			fmt.Fprintf(out, "\n%s\n", paint(bold, "Evidence"))
			heading = true
		}
		const shown = 2
		fmt.Fprintf(out, "  %s\n", row.Label())
		for _, e := range evidence[:min(shown, len(evidence))] {
			fmt.Fprintf(out, "    %s\n", e)
		}
		if more := len(evidence) - shown; more > 0 {
			fmt.Fprintf(out, "    and %d more findings in the JSON\n", more)
		}
	}
	for _, list := range []struct {
		heading string
		of      func(*Row) string
	}{
		{"Bounded", func(row *Row) string { return row.Bounded }},
		{"Open loop", (*Row).late},
	} {
		heading = false
		for _, row := range r.Rows {
			text := list.of(row)
			if text == "" {
				continue
			}
			if !heading {
				fmt.Fprintf(out, "\n%s\n", paint(bold, list.heading))
				heading = true
			}
			fmt.Fprintf(out, "  %s: %s\n", row.Label(), text)
		}
	}

	fmt.Fprintln(out)
	for _, line := range r.Environment.lines() {
		fmt.Fprintf(out, "%s\n", paint(faint, line))
	}
	fmt.Fprintln(out)
	if len(r.Problems) == 0 {
		fmt.Fprintf(out, "%s\n", paint(green, "✓ "+r.success()))
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(out, "%s\n", paint(red, "✗ "+problem))
	}
	return out.Flush()
}

func (r *Report) writeTables(out *bufio.Writer, colour bool, paint func(style, string) string) {
	for i, rows := range r.groups() {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(out, "%s\n", paint(bold, title(rows)))
		t := r.textTable(rows)
		t.write(out, colour)
	}
}

// groups returns the rows of each load.
func (r *Report) groups() [][]*Row {
	var groups [][]*Row
	for i, row := range r.Rows {
		if i == 0 || row.load() != r.Rows[i-1].load() {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], row)
	}
	return groups
}

// title says what the rows of a group have in common.
func title(rows []*Row) string {
	first := rows[0]
	parts := []string{first.Workload.Name}
	// Bounded rows plan less and get less stock: speak of the largest.
	var planned, stock int64
	rounds := 0
	for _, row := range rows {
		for _, round := range row.Rounds {
			planned = max(planned, int64(round.RequestsPlanned))
			stock = max(stock, round.Initial)
		}
		rounds = max(rounds, len(row.Rounds))
	}
	if planned > 0 {
		parts = append(parts, fmt.Sprintf("%s requests on %s units", grouped(float64(planned)), grouped(float64(stock))))
	}
	if first.Users > 0 {
		parts = append(parts, plural(first.Users, "user"))
	}
	if first.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%g requests/s", first.Rate))
	}
	if first.HoldMS > 0 {
		parts = append(parts, fmt.Sprintf("%d ms of work inside the critical section", first.HoldMS))
	}
	if first.Items() > 1 || first.Sweep == axisGoods {
		parts = append(parts, place(axisGoods, int64(first.Items())))
	}
	if first.Skew != "" {
		parts = append(parts, "asked for by "+first.Skew)
	}
	if first.Counts != "" {
		parts = append(parts, first.Counts+" units an order")
	}
	if first.Restock > 0 {
		parts = append(parts, fmt.Sprintf("%s units put back each time", grouped(float64(first.Restock))))
	}
	return strings.Join(append(parts, plural(rounds, "round")), " · ")
}

func (r *Report) textTable(rows []*Row) table {
	t := table{
		head: []string{"strategy", "repl", "verdict", "held", "goodput/s", "±", "×noop", "vs fastest",
			"mean", "p50", "p90", "p95", "p99", "max ms", "found"},
		left: []bool{0: true, 2: true, 14: true},
	}
	stores := map[string]bool{}
	for _, row := range r.Rows {
		if !row.Baseline {
			stores[row.Store] = true
		}
	}
	for _, row := range rows {
		name := row.Strategy
		if len(stores) > 1 && !row.Baseline {
			name += "@" + row.Store
		}
		verdict := cell{row.verdict(), yellow}
		switch {
		case row.Baseline && row.ClaimHeld:
			verdict.style = faint
		case row.Result == verify.Correct:
			verdict.style = green
		case row.Result == verify.Wrong:
			verdict.style = red
		}
		claim := cell{"✓", green}
		if !row.ClaimHeld {
			claim = cell{"✗", red}
		}
		l := row.LatencyMS
		goodput := cell{text: grouped(row.GoodputPerS)}
		if row.Baseline {
			// It sells nothing: its figure is what it answers.
			goodput = cell{grouped(row.ThroughputPerS), faint}
		}
		found := cell{text: row.damage()}
		if found.text == "" {
			switch {
			case row.Baseline && row.ClaimHeld:
				found = cell{"sells nothing", faint}
			case row.Result == verify.Correct && row.Restock > 0:
				found = cell{"unranked: restocked", faint}
			case row.Result == verify.Correct && !row.Ranked():
				found = cell{"unranked: " + row.Claim, faint}
			}
		}
		t.rows = append(t.rows, []cell{
			{text: name}, {text: strconv.Itoa(row.Replicas)}, verdict, claim,
			goodput, {text: row.spread()}, {text: share(row.ShareOfNoop)}, {text: row.Relative.String()},
			{text: figure(l.Mean)}, {text: figure(l.P50)}, {text: figure(l.P90)}, {text: figure(l.P95)},
			{text: figure(l.P99)}, {text: figure(l.Max)}, found,
		})
	}
	t.left = append(t.left, make([]bool, len(t.head)-len(t.left))...)
	return t
}

// verdict is the judge's word in a table. The baseline, while it keeps its promise, is no strategy to be judged.
func (r *Row) verdict() string {
	if r.Baseline && r.ClaimHeld {
		return "baseline"
	}
	return strings.ToUpper(string(r.Result))
}

// told is the evidence that is worth telling people: not that the baseline sells nothing.
func (r *Row) told() []string {
	if r.Baseline && r.ClaimHeld || r.Untested {
		return nil
	}
	return r.Evidence
}

// damage lists what the judge found, in the order of its figures, and which requests went without an answer to the point.
func (r *Row) damage() string {
	var parts []string
	add := func(what string, n int64) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", what, grouped(float64(n))))
		}
	}
	add("lost", r.LostUpdates)
	add("oversold", r.Oversold)
	add("leaked", r.Leaked)
	add("undersold", r.Undersold)
	add("duplicates", r.Duplicates)
	add("not as in the ledger", r.LedgerGaps)
	add("unlike first answers", r.Unlike)
	if len(parts) == 0 {
		add("overlaps", r.Overlaps) // else they are how it came to this
	}
	if len(parts) == 0 && r.Linearizable != nil && !*r.Linearizable {
		parts = append(parts, "not linearizable")
	}
	add("busy", int64(r.Outcomes[history.Busy]))
	add("rejected", int64(r.Outcomes[history.Rejected]))
	add("unknown", int64(r.Outcomes[history.Unknown]))
	return strings.Join(parts, ", ")
}

// late says how well an open loop kept to its times; empty for a closed loop.
func (r *Row) late() string {
	if r.SendLagMS == nil {
		return ""
	}
	return fmt.Sprintf("sent %s ms late on average, %s ms at most; %s dropped", figure(r.SendLagMS.Mean), figure(r.SendLagMS.Max),
		grouped(float64(r.Dropped)))
}

// spread is the interval of the goodput in per cent of it.
func (r *Row) spread() string {
	if r.GoodputInterval == nil || r.GoodputPerS == 0 || r.Baseline {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 100*(r.GoodputInterval.High-r.GoodputInterval.Low)/2/r.GoodputPerS)
}

// String is "fastest", "2.31 ± 0.08×", or "~" where the rounds do not tell the row from the fastest.
func (r *Relative) String() string {
	switch {
	case r == nil:
		return ""
	case r.PlusMinus == nil && r.SlowerThanFastestCorrect == 1:
		return "fastest"
	case r.PlusMinus == nil:
		return fmt.Sprintf("%.2f×", r.SlowerThanFastestCorrect)
	case r.Tied:
		return "~"
	}
	return fmt.Sprintf("%.2f ± %.2f×", r.SlowerThanFastestCorrect, *r.PlusMinus)
}

func share(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.2f", *v)
}

// figure shows three digits that count, in little room.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return grouped(v)
}

// grouped shows a whole number with its thousands set apart.
func grouped(v float64) string {
	digits := strconv.FormatInt(int64(math.Round(math.Abs(v))), 10)
	var b strings.Builder
	if v <= -0.5 {
		b.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(d)
	}
	return b.String()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", grouped(float64(n)), noun)
}
