package report

import (
	"bufio"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stock/internal/stats"
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

// judgedFound names the strategies with a result.
type judgedFound struct {
	result     verify.Result
	strategies []string
}

// judged returns the workloads that are judged only, by name.
func (r *Report) judged() (groups []judgedGroup) {
	byName := map[string][]*Row{}
	for _, row := range r.Rows {
		if row.JudgedOnly {
			byName[row.Workload.Name] = append(byName[row.Workload.Name], row)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		rows := byName[name]
		group := judgedGroup{title: title(rows) + sentAgain(rows)}
		for _, result := range []verify.Result{verify.Correct, verify.Inconclusive, verify.Wrong} {
			found := judgedFound{result: result}
			for _, row := range rows {
				if row.Result == result {
					found.strategies = append(found.strategies, row.Strategy)
				}
			}
			if slices.Sort(found.strategies); len(found.strategies) > 0 {
				group.found = append(group.found, found)
			}
		}
		groups = append(groups, group)
	}
	return groups
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
	for i, name := range f.strategies {
		if i < len(f.strategies)-1 {
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
			fmt.Fprintf(out, "; **%s**: `%s`", found.result, strings.Join(found.strategies, "`, `"))
		}
		fmt.Fprintln(out)
	}
}
