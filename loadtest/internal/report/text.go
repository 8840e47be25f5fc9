package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
)

// WriteText writes the report for a terminal of 150 columns: a table for each load, the evidence, and whether every
// claim held.
func (r *Report) WriteText(w io.Writer, colour bool) error {
	out := newPrinter(w, colour)
	if r.Sweep != nil {
		r.Sweep.writeText(out) // the wide tables of every value would be too long
	} else {
		r.writeTables(out)
	}
	r.writeJudged(out)
	r.writeFaults(out)
	r.writeExplored(out)
	r.writeEvidence(out)
	r.writeBounded(out)
	r.writeList(out, "Open loop", (*Row).Late)

	fmt.Fprintln(out)
	for _, line := range r.Conditions() {
		out.line(faint, line)
	}
	fmt.Fprintln(out)
	if len(r.Problems) == 0 {
		out.line(green, "✓ "+r.Success())
	}
	for _, problem := range r.Problems {
		out.line(red, "✗ "+problem)
	}
	return out.Flush()
}

func (r *Report) writeTables(out printer) {
	for i, rows := range r.groups() {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.line(bold, title(rows))
		t := r.textTable(rows)
		t.write(out)
		if percent, n := precision(rows); n > 1 && !math.IsInf(percent, 1) {
			out.line(faint, fmt.Sprintf("median half-width of × noop of the %d fastest: %.0f %%", n, percent))
		}
	}
}

func (r *Report) textTable(rows []*Row) table {
	var t table
	for _, col := range columns {
		if col.terminal.head != "" {
			t.columns = append(t.columns, tableColumn{head: col.terminal.head, left: col.terminal.left})
		}
	}
	severalStores := r.severalStores()
	for _, row := range rows {
		var cells []tableCell
		for _, col := range columns {
			if col.terminal.head == "" {
				continue
			}
			c := tableCell{text: col.text(col.terminal, row)}
			if col.terminal.style != nil {
				c.style = col.terminal.style(row)
			}
			cells = append(cells, c)
		}
		if severalStores && !row.Baseline {
			cells[0].text += "@" + row.Store // there is no column for it
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

// severalStores reports whether the strategies sell from several stores.
func (r *Report) severalStores() bool {
	stores := map[string]bool{}
	for _, row := range r.Rows {
		if !row.Baseline {
			stores[row.Store] = true
		}
	}
	return len(stores) > 1
}

// writeEvidence writes the first findings of each row.
func (r *Report) writeEvidence(out printer) {
	const shown = 2
	heading := false
	for _, row := range r.Rows {
		evidence := row.ShownEvidence()
		if len(evidence) == 0 {
			continue
		}
		if !heading {
			fmt.Fprintln(out)
			out.line(bold, "Evidence")
			heading = true
		}
		fmt.Fprintf(out, "  %s\n", row.Label())
		for _, e := range evidence[:min(shown, len(evidence))] {
			fmt.Fprintf(out, "    %s\n", e)
		}
		if more := len(evidence) - shown; more > 0 {
			fmt.Fprintf(out, "    and %d more findings in report.json\n", more)
		}
	}
}

// writeList writes a text about each row under a heading; nothing if all texts are empty.
func (r *Report) writeList(out printer, heading string, of func(*Row) string) {
	written := false
	for _, row := range r.Rows {
		text := of(row)
		if text == "" {
			continue
		}
		if !written {
			fmt.Fprintln(out)
			out.line(bold, heading)
			written = true
		}
		fmt.Fprintf(out, "  %s: %s\n", row.Label(), text)
	}
}

// writeBounded says how many rows a time limit has made shorter. With a small budget, that is most of them: report.md
// lists each.
func (r *Report) writeBounded(out printer) {
	bounded := 0
	for _, row := range r.Rows {
		if row.Bounded != "" {
			bounded++
		}
	}
	if bounded > 0 {
		fmt.Fprintf(out, "\n%d of %d rows sent fewer requests than planned, because of a time limit: see report.md\n",
			bounded, len(r.Rows))
	}
}

// Load is a workload that is measured, with the rows that can be compared with each other.
type Load struct {
	Title string // describes the workload
	Rows  []*Row // as they are in the report
}

// Loads returns the measured rows by workload. Judged returns the others.
func (r *Report) Loads() (loads []Load) {
	for _, rows := range r.groups() {
		loads = append(loads, Load{Title: title(rows), Rows: rows})
	}
	return loads
}

// groups returns the measured rows of each load.
func (r *Report) groups() [][]*Row {
	var groups [][]*Row
	for i, row := range r.Rows {
		if row.JudgedOnly {
			break // the others are, too
		}
		if i == 0 || row.load() != r.Rows[i-1].load() {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], row)
	}
	return groups
}

// title describes the load that the rows of a group share.
func title(rows []*Row) string {
	first := rows[0]
	parts := []string{first.Workload.Name}
	add := func(there bool, format string, values ...any) {
		if there {
			parts = append(parts, fmt.Sprintf(format, values...))
		}
	}
	line := "request"
	if first.Lines > 0 {
		line = "line"
	}
	// Bounded rows have fewer requests and less stock: the title states the largest.
	var planned, stock int64
	fewest, most := math.MaxInt, 0
	for _, row := range rows {
		for _, round := range row.Rounds {
			planned = max(planned, int64(round.RequestsPlanned))
			stock = max(stock, round.Initial)
		}
		if !row.Baseline || len(rows) == 1 { // noop runs in every round
			fewest, most = min(fewest, len(row.Rounds)), max(most, len(row.Rounds))
		}
	}
	add(planned > 0, "%s requests on %s units", stats.Grouped(float64(planned)), stats.Grouped(float64(stock)))
	add(first.Users > 0, "%s", plural(first.Users, "user"))
	add(first.Rate > 0, "%g requests/s", first.Rate)
	add(first.HoldMS > 0, "%d ms of work inside the critical section", first.HoldMS)
	add(first.Items() > 1 || first.Sweep == history.AxisGoods, "%s", plural(first.Items(), "item"))
	add(first.Skew != "", "requested by %s", first.Skew)
	add(first.Counts != "", "%s units per %s", first.Counts, line)
	add(first.Lines > 0, "up to %s per order", plural(first.Lines, "line"))
	add(first.Buyers > 0, "%s with a limit each", plural(first.Buyers, "buyer"))
	add(first.Restock > 0, "%s units put back each time", stats.Grouped(float64(first.Restock)))
	rounds := plural(most, "round")
	if fewest < most {
		rounds = fmt.Sprintf("%d to %s", fewest, rounds)
	}
	return strings.Join(append(parts, rounds), " · ")
}

// ShownEvidence is the evidence to show: that the baseline sells nothing is not worth mentioning.
func (r *Row) ShownEvidence() []string {
	if r.Baseline && r.ClaimHeld || r.Untested {
		return nil
	}
	return r.Evidence
}

// Late describes how late an open loop sent its requests; empty for a closed loop.
func (r *Row) Late() string {
	if r.SendLagMS == nil {
		return ""
	}
	return fmt.Sprintf("sent %s ms late on average, %s ms at most; %s dropped",
		digits(r.SendLagMS.Mean), digits(r.SendLagMS.Max), stats.Grouped(float64(r.Dropped)))
}

// String returns "fastest", "2.31 ± 0.08×", or "~" if the rounds differ too much to tell by how much the row is slower.
func (r *Relative) String() string {
	switch {
	case r == nil:
		return ""
	case r.PlusMinus == nil && r.SlowerThanFastestCorrect == 1:
		return "fastest"
	case r.PlusMinus == nil:
		return fmt.Sprintf("%.2f×", r.SlowerThanFastestCorrect)
	case r.Tied || *r.PlusMinus > r.SlowerThanFastestCorrect:
		return "~"
	}
	return fmt.Sprintf("%.2f ± %.2f×", r.SlowerThanFastestCorrect, *r.PlusMinus)
}

func share(v *float64) string {
	if v == nil {
		return ""
	}
	return stats.Format(*v)
}

// digits writes three significant digits, and every digit before the decimal point in groups of three.
func digits(v float64) string {
	if v >= 99.95 {
		return stats.Grouped(v)
	}
	return stats.Format(v)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", stats.Grouped(float64(n)), noun)
}
