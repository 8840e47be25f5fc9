package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"stock/loadtest/internal/verify"
)

const markdownLegend = `
\* A control is wrong on purpose. Strategies sell from MySQL, unless another store is named.

Goodput is units sold correctly per second, ± half the width of its 95 % interval; of the baseline, it is requests
answered per second. Rates are trimmed means of the rounds, latencies are of all requests together, and counts are sums
over the rounds. Commands per sale are what the servers of MySQL and Redis counted. report.csv and report.json have
every figure.
`

// WriteMarkdown writes the columns that people read, the evidence and the environment.
func (r *Report) WriteMarkdown(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, "# Strategies compared\n\n")
	if len(r.Problems) == 0 {
		fmt.Fprintf(out, "%s\n", r.Success())
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(out, "- **%s**\n", escape(problem))
	}
	if r.Sweep != nil {
		r.Sweep.writeMarkdown(out)
	}
	for _, rows := range r.groups() {
		r.writeMarkdownTable(out, rows)
	}
	if len(r.Rows) > 0 {
		fmt.Fprint(out, markdownLegend)
	}
	r.writeMarkdownJudged(out)
	r.writeFaultsMarkdown(out)
	r.writeMarkdownExplored(out)
	r.writeMarkdownEvidence(out)
	fmt.Fprint(out, "\n## Environment\n\n")
	for _, line := range r.Conditions() {
		fmt.Fprintf(out, "- %s\n", escape(line))
	}
	return out.Flush()
}

// writeMarkdownTable writes the rows of one load. It leaves out a column in which no row has a text.
func (r *Report) writeMarkdownTable(out *bufio.Writer, rows []*Row) {
	lines := make([]string, 2+len(rows)) // the heads, the rule below them, and the rows
	add := func(head, rule string, texts []string) {
		for i, text := range slices.Concat([]string{head, rule}, texts) {
			lines[i] += " " + escape(text) + " |"
		}
	}
	for _, col := range columns {
		shown := col.markdown
		if shown.head == "" {
			continue
		}
		var texts []string
		for _, row := range rows {
			texts = append(texts, col.text(shown, row))
		}
		switch {
		case shown.head == strategyHead:
			for i, row := range rows {
				texts[i] += r.distinction(row)
			}
			add(shown.head, "---", texts)
		case shown.number:
			add(shown.head, "---:", texts)
		case strings.Join(texts, "") != "":
			add(shown.head, "---", texts)
		}
	}
	fmt.Fprintf(out, "\n## %s\n\n", title(rows))
	for _, line := range lines {
		fmt.Fprintf(out, "|%s\n", line)
	}
}

// usualStore is where strategies sell from if nothing else is said.
const usualStore = "mysql"

// distinction is what the row's name needs, because the table has no column for it: a mark for a control, the store if
// it is not the usual one, and the replicas if other rows have more.
func (r *Report) distinction(row *Row) string {
	text := ""
	if row.Control {
		text = " *"
	}
	if row.Store != usualStore && !row.Baseline {
		text += ", " + row.Store
	}
	if r.othersHaveMore(row) {
		text += ", " + plural(row.Replicas, "replica")
	}
	return text
}

// markdownVerdict is the verdict, the claim if it did not hold, and what was found.
func (r *Row) markdownVerdict() string {
	text := r.verdict()
	if r.Result == verify.Wrong {
		text = "**" + text + "**"
	}
	switch {
	case r.Untested:
		text += " (claim not tested)"
	case !r.ClaimHeld:
		text += " ✗ (claims " + r.Claim + ")"
	}
	if remark := r.remark(); remark != "" {
		text += ", " + remark
	}
	return text
}

// commandsPerSale is what the servers of the stores and of most locks did for a sale. Empty: nothing.
func (r *Row) commandsPerSale() string {
	const few = 0.05 // the servers also count what others send, such as pings
	var parts []string
	if r.MySQLStatementsPerSale > few {
		parts = append(parts, digits(r.MySQLStatementsPerSale)+" SQL")
	}
	if r.RedisCommandsPerSale > few {
		parts = append(parts, digits(r.RedisCommandsPerSale)+" Redis")
	}
	return strings.Join(parts, ", ")
}

// plusMinus appends half the width of the interval, if there is one.
func plusMinus(center, spread string) string {
	if spread == "" {
		return center
	}
	return center + " ±" + spread
}

// writeMarkdownEvidence writes why rows have fewer requests than others, and the first findings of each row.
func (r *Report) writeMarkdownEvidence(out *bufio.Writer) {
	const shown = 3
	var evidence strings.Builder
	for _, row := range r.Rows {
		if row.Bounded != "" {
			fmt.Fprintf(&evidence, "- %s: bounded, %s\n", row.Label(), escape(row.Bounded))
		}
		if late := row.Late(); late != "" {
			fmt.Fprintf(&evidence, "- %s: %s\n", row.Label(), late)
		}
		found := row.ShownEvidence()
		for _, e := range found[:min(len(found), shown)] {
			fmt.Fprintf(&evidence, "- %s: %s\n", row.Label(), escape(e))
		}
		if more := len(found) - shown; more > 0 {
			fmt.Fprintf(&evidence, "- %s: and %s in report.json\n", row.Label(), plural(more, "more finding"))
		}
	}
	if evidence.Len() > 0 {
		fmt.Fprintf(out, "\n## Evidence\n\n%s", evidence.String())
	}
}

// escape keeps text from ending a cell of a table.
func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
