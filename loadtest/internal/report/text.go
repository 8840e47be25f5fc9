package report

import (
	"fmt"
	"io"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
)

const legend = `A control (*) is wrong on purpose. Strategies sell from MySQL, unless another store is named.

Goodput is units sold correctly per second, ± half the width of its 95 % interval; of the baseline, it is requests
answered per second. Rates are trimmed means of the rounds, latencies are of all requests together, and counts are sums
over the rounds. Commands per sale are what the servers of MySQL and Redis counted. report.json has every figure.`

// WriteText writes the report as Markdown that is also meant for a terminal: a table for each load, the evidence, and
// whether every claim held.
func (r *Report) WriteText(w io.Writer, colour bool) error {
	out := newPrinter(w, colour)
	out.title("Strategies compared")
	if s := r.Sweep(); s != nil {
		s.writeText(out) // the tables of every value would be too long
	} else {
		r.writeTables(out)
	}
	r.writeJudged(out)
	r.writeContract(out)
	r.writeFaults(out)
	r.writeExplored(out)
	r.writeEvidence(out)
	out.section("Environment")
	for _, line := range r.Conditions() {
		out.item(faint, line)
	}
	out.section("Conclusion")
	if len(r.Problems) == 0 {
		out.item(green, "✓ "+r.Success())
	}
	for _, problem := range r.Problems {
		out.item(red, "✗ "+problem)
	}
	return out.Flush()
}

func (r *Report) writeTables(out printer) {
	for _, load := range r.Loads() {
		out.section(load.Title)
		t := r.textTable(load.Rows)
		t.write(out)
	}
	if len(r.Rows) > 0 {
		out.paragraph(legend)
	}
	for _, why := range r.LeftOut() {
		out.paragraph(why)
	}
}

// textTable shows the rows of one load. It leaves out a column in which no row has a text.
func (r *Report) textTable(rows []*Row) table {
	t := table{rows: make([][]tableCell, len(rows))}
	for _, col := range columns {
		cells := make([]tableCell, len(rows))
		empty := true
		for i, row := range rows {
			cells[i].text = col.show(row)
			empty = empty && cells[i].text == ""
			if col.style != nil {
				cells[i].style = col.style(row)
			}
			if col.head == strategyHead {
				if row.Control {
					cells[i].text += " *"
				}
				cells[i].text = strings.Join(append([]string{cells[i].text}, r.Where(row)...), ", ")
			}
		}
		if empty {
			continue
		}
		t.columns = append(t.columns, tableColumn{head: col.head, number: col.number})
		for i, cell := range cells {
			t.rows[i] = append(t.rows[i], cell)
		}
	}
	return t
}

// usualStore is where strategies sell from if nothing else is said.
const usualStore = "mysql"

// Where tells what a reader could not know of a row's name: the store if it is not the usual one, and the replicas if
// other rows have more.
func (r *Report) Where(row *Row) (parts []string) {
	if row.Store != usualStore && !row.Baseline {
		parts = append(parts, row.Store)
	}
	if r.othersHaveMore(row) {
		parts = append(parts, plural(row.Replicas, "replica"))
	}
	return parts
}

// nameOf is the strategy of a row, with its store if there are several in the report.
func (r *Report) nameOf(row *Row) string {
	if r.severalStores() {
		return row.Strategy + "@" + row.Store
	}
	return row.Strategy
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

// writeEvidence writes the first findings of each row, and how late an open loop was.
func (r *Report) writeEvidence(out printer) {
	const shown = 2
	var lines []string
	for _, row := range r.Rows {
		evidence := row.ShownEvidence()
		for _, e := range evidence[:min(shown, len(evidence))] {
			lines = append(lines, row.Label()+": "+e)
		}
		if more := len(evidence) - shown; more > 0 {
			lines = append(lines, fmt.Sprintf("%s: and %s in report.json", row.Label(), plural(more, "more finding")))
		}
		if late := row.Late(); late != "" {
			lines = append(lines, row.Label()+": "+late)
		}
	}
	if len(lines) > 0 {
		out.section("Evidence")
	}
	for _, line := range lines {
		out.item(plain, line)
	}
}

// LeftOut says why measured rows have no latencies or no rank, if some have none.
func (r *Report) LeftOut() (why []string) {
	short, unknown := false, false
	for _, row := range r.Rows {
		short = short || row.Short && !row.JudgedOnly
		unknown = unknown || !row.JudgedOnly && min(row.LatencyMS.P50, row.LatencyMS.P99) == 0
	}
	if short {
		why = append(why, notRanked)
	}
	if unknown {
		why = append(why, notKnown)
	}
	return why
}

// Load is a workload that is measured, with the rows that can be compared with each other.
type Load struct {
	Title string // describes the workload
	Rows  []*Row // as they are in the report
}

// Loads returns the measured rows by workload. Judged returns the others.
func (r *Report) Loads() (loads []Load) {
	for i, row := range r.Rows {
		if row.JudgedOnly {
			break // the others are, too
		}
		if i == 0 || row.load() != r.Rows[i-1].load() {
			loads = append(loads, Load{})
		}
		last := &loads[len(loads)-1]
		last.Rows = append(last.Rows, row)
	}
	for i := range loads {
		loads[i].Title = title(loads[i].Rows)
	}
	return loads
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
	rounds := 0
	for _, row := range rows {
		for _, round := range row.Rounds {
			planned = max(planned, int64(round.RequestsPlanned))
			stock = max(stock, round.Initial)
		}
		rounds = max(rounds, len(row.Rounds))
	}
	add(planned > 0, "%s requests on %s units", stats.Grouped(planned), stats.Grouped(stock))
	add(first.Users > 0, "%s", plural(first.Users, "user"))
	add(first.Rate > 0, "%g requests/s", first.Rate)
	add(first.HoldMS > 0, "%d ms of work inside the critical section", first.HoldMS)
	add(first.Items() > 1 || first.Sweep == history.AxisGoods, "%s", plural(first.Items(), "item"))
	add(first.Skew != "", "requested by %s", first.Skew)
	add(first.Counts != "", "%s units per %s", first.Counts, line)
	add(first.Lines > 0, "up to %s per order", plural(first.Lines, "line"))
	add(first.Restock > 0, "%s units put back each time", stats.Grouped(first.Restock))
	return strings.Join(append(parts, plural(rounds, "round")), " · ")
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
		digits(r.SendLagMS.Mean), digits(r.SendLagMS.Max), stats.Grouped(r.Dropped))
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
	return fmt.Sprintf("%s %ss", stats.Grouped(n), noun)
}
