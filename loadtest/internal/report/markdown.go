package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes the wide tables, the evidence and the environment.
func (r *Report) WriteMarkdown(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, "# Strategies compared\n\n")
	if len(r.Problems) == 0 {
		fmt.Fprintf(out, "%s\n", r.success())
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(out, "- **%s**\n", escape(problem))
	}
	if r.Sweep != nil {
		r.Sweep.writeMarkdown(out)
	}
	for _, rows := range r.groups() {
		writeMarkdownTable(out, rows)
	}
	fmt.Fprint(out, "\nCounts are sums over the rounds, rates are trimmed means of the rounds, "+
		"and latencies (in ms) are of all requests together.\n")
	r.writeMarkdownJudged(out)
	r.writeFaultsMarkdown(out)
	r.writeMarkdownEvidence(out)
	fmt.Fprint(out, "\n## Environment\n\n")
	for _, line := range r.conditions() {
		fmt.Fprintf(out, "- %s\n", escape(line))
	}
	return out.Flush()
}

// writeMarkdownTable writes the rows of one load.
func writeMarkdownTable(out *bufio.Writer, rows []*Row) {
	fmt.Fprintf(out, "\n## %s\n\n|", title(rows))
	shown := 0
	for _, col := range columns {
		if col.markdown.head != "" {
			shown++
			fmt.Fprintf(out, " %s |", col.markdown.head)
		}
	}
	fmt.Fprintf(out, "\n|%s\n", strings.Repeat(" --- |", shown))
	for _, row := range rows {
		out.WriteString("|")
		for _, col := range columns {
			if col.markdown.head != "" {
				fmt.Fprintf(out, " %s |", escape(col.text(col.markdown, row)))
			}
		}
		out.WriteString("\n")
	}
}

func (r *Report) writeMarkdownEvidence(out *bufio.Writer) {
	var evidence strings.Builder
	for _, row := range r.Rows {
		if row.Bounded != "" {
			fmt.Fprintf(&evidence, "- %s: bounded, %s\n", row.Label(), escape(row.Bounded))
		}
		if late := row.late(); late != "" {
			fmt.Fprintf(&evidence, "- %s: %s\n", row.Label(), late)
		}
		for _, e := range row.shownEvidence() {
			fmt.Fprintf(&evidence, "- %s: %s\n", row.Label(), escape(e))
		}
	}
	if evidence.Len() > 0 {
		fmt.Fprintf(out, "\n## Evidence\n\n%s", evidence.String())
	}
}

// escape keeps text from ending a cell of a table.
func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
