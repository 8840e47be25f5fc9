package report

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// judgedHeading is the heading of the workloads that are judged only.
const judgedHeading = "Judged, not measured"

// judgedWidth is how many characters of a line of a terminal the strategies take.
const judgedWidth = 140

// judgedGroup is a workload that is judged only.
type judgedGroup struct {
	title string
	found []judgedFound // those with a result, from the best to the worst
}

// judgedFound lists the rows with a result.
type judgedFound struct {
	result verify.Result
	rows   []judgedRow
}

// judgedRow names a row within its workload.
type judgedRow struct {
	strategy string // with its store, if there are several in the report
	on       string // on how many replicas, if others ran on more; begins with a blank
}

// judged returns the workloads that are judged only.
func (r *Report) judged() (groups []judgedGroup) {
	for _, rows := range r.judgedRows() {
		groups = append(groups, r.judgedGroup(rows))
	}
	return groups
}

// judgedRows returns the rows of each workload that is judged only, by the name of the workload. What differs in more
// than the name is several workloads.
func (r *Report) judgedRows() (groups [][]*Row) {
	rows := map[history.Workload][]*Row{}
	var loads []history.Workload
	for _, row := range r.Rows {
		if !row.JudgedOnly {
			continue
		}
		load := row.load()
		if rows[load] == nil {
			loads = append(loads, load)
		}
		rows[load] = append(rows[load], row)
	}
	slices.SortStableFunc(loads, func(a, b history.Workload) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Lines, b.Lines))
	})
	for _, load := range loads {
		groups = append(groups, rows[load])
	}
	return groups
}

// judgedWorkloads returns the names of the workloads that are judged only.
func (r *Report) judgedWorkloads() (names []string) {
	for _, row := range r.Rows {
		if row.JudgedOnly && !slices.Contains(names, row.Workload.Name) {
			names = append(names, row.Workload.Name)
		}
	}
	return names
}

// judgedGroup sorts rows of one workload by their results.
func (r *Report) judgedGroup(rows []*Row) judgedGroup {
	group := judgedGroup{title: title(rows) + sentAgain(rows)}
	for _, result := range []verify.Result{verify.Correct, verify.Inconclusive, verify.Wrong} {
		found := judgedFound{result: result}
		for _, row := range rows {
			if row.Result == result {
				found.rows = append(found.rows, r.judgedRow(row))
			}
		}
		slices.SortFunc(found.rows, func(a, b judgedRow) int {
			return cmp.Or(cmp.Compare(a.strategy, b.strategy), cmp.Compare(a.on, b.on))
		})
		if len(found.rows) > 0 {
			group.found = append(group.found, found)
		}
	}
	return group
}

func (r *Report) judgedRow(row *Row) judgedRow {
	named := judgedRow{strategy: row.Strategy}
	if r.severalStores() {
		named.strategy += "@" + row.Store
	}
	if r.othersHaveMore(row) {
		named.on = " on " + plural(row.Replicas, "replica")
	}
	return named
}

// othersHaveMore reports whether a row of the report has more replicas.
func (r *Report) othersHaveMore(row *Row) bool {
	return slices.ContainsFunc(r.Rows, func(other *Row) bool { return other.Replicas > row.Replicas })
}

// sentAgain says how many requests were sent again when that could do harm; empty: none.
func sentAgain(rows []*Row) string {
	var figures verify.Figures
	for _, row := range rows {
		figures.AgainInStock += row.AgainInStock
		figures.AgainElsewhere += row.AgainElsewhere
	}
	if figures.AgainInStock == 0 {
		return ""
	}
	return fmt.Sprintf(" · sent again: %s while stock was left, %s to another replica than before",
		stats.Grouped(float64(figures.AgainInStock)), stats.Grouped(float64(figures.AgainElsewhere)))
}

// writeJudged writes, for each workload that is judged only, the strategies by verdict. Their evidence follows with
// that of the other rows.
func (r *Report) writeJudged(out printer) {
	groups := r.judged()
	if len(groups) == 0 {
		return
	}
	fmt.Fprintln(out)
	out.line(bold, judgedHeading)
	for _, group := range groups {
		fmt.Fprintf(out, "  %s\n", group.title)
		for _, found := range group.found {
			for _, line := range found.lines(judgedWidth) {
				out.line(resultStyle(found.result), "    "+line)
			}
		}
	}
}

// lines breaks the list of strategies into lines of at most width characters, if the names permit.
func (f judgedFound) lines(width int) (lines []string) {
	line := string(f.result) + ":"
	for i, row := range f.rows {
		name := row.strategy + row.on
		if i < len(f.rows)-1 {
			name += ","
		}
		if len(line)+1+len(name) > width {
			lines = append(lines, line)
			line = " "
		}
		line += " " + name
	}
	return append(lines, line)
}

func (r *Report) writeMarkdownJudged(out *bufio.Writer) {
	groups := r.judged()
	if len(groups) == 0 {
		return
	}
	fmt.Fprintf(out, "\n## %s\n\n", judgedHeading)
	for _, group := range groups {
		fmt.Fprintf(out, "- %s", group.title)
		for _, found := range group.found {
			separator := ": "
			fmt.Fprintf(out, "; **%s**", found.result)
			for _, row := range found.rows {
				fmt.Fprintf(out, "%s`%s`%s", separator, row.strategy, row.on)
				separator = ", "
			}
		}
		fmt.Fprintln(out)
	}
}
