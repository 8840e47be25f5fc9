package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// Judged is a workload that is judged only, because it is too small to measure anything.
type Judged struct {
	Title string
	Found []JudgedFound // those with a result, from the worst to the best
}

// JudgedFound lists the rows with a result, by name.
type JudgedFound struct {
	Result verify.Result
	Rows   []JudgedRow
}

// JudgedRow names a row within its workload.
type JudgedRow struct {
	*Row

	Name string // the strategy, with its store if there are several in the report
	On   string // on how many replicas, if others ran on more; begins with a blank
}

// Judged returns the workloads that are judged only, by name. What differs in more than the name is several workloads.
func (r *Report) Judged() (all []Judged) {
	rows := map[history.Workload][]*Row{}
	for _, row := range r.Rows {
		if row.JudgedOnly {
			rows[row.load()] = append(rows[row.load()], row)
		}
	}
	for _, load := range slices.SortedFunc(maps.Keys(rows), func(a, b history.Workload) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Lines, b.Lines))
	}) {
		all = append(all, r.newJudged(rows[load]))
	}
	return all
}

// newJudged sorts rows of one workload by their results.
func (r *Report) newJudged(rows []*Row) Judged {
	j := Judged{Title: title(rows)}
	for _, result := range []verify.Result{verify.Wrong, verify.Inconclusive, verify.Correct} {
		found := JudgedFound{Result: result}
		for _, row := range rows {
			if row.Result == result {
				named := JudgedRow{Row: row, Name: r.nameOf(row)}
				if r.othersHaveMore(row) {
					named.On = " on " + plural(row.Replicas, "replica")
				}
				found.Rows = append(found.Rows, named)
			}
		}
		slices.SortFunc(found.Rows, func(a, b JudgedRow) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.On, b.On))
		})
		if len(found.Rows) > 0 {
			j.Found = append(j.Found, found)
		}
	}
	return j
}

// othersHaveMore reports whether a row of the report has more replicas.
func (r *Report) othersHaveMore(row *Row) bool {
	return slices.ContainsFunc(r.Rows, func(other *Row) bool { return other.Replicas > row.Replicas })
}

// writeJudged writes, for each workload that is judged only, the strategies by verdict. Their evidence follows with
// that of the other rows.
func (r *Report) writeJudged(out printer) {
	for i, load := range r.Judged() {
		if i == 0 {
			out.section("Judged, not measured")
		}
		out.item(plain, load.Title)
		for _, found := range load.Found {
			var names []string
			for _, row := range found.Rows {
				names = append(names, row.Name+row.On)
			}
			out.WriteString("  ")
			out.item(resultStyle(found.Result), string(found.Result)+": "+strings.Join(names, ", "))
		}
	}
}
