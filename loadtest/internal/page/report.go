package page

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"stock/loadtest/internal/report"
)

// WriteReport writes a report as a page.
func WriteReport(w io.Writer, r *report.Report) error {
	view := newReportView(r)
	main, err := render("report", view)
	if err != nil {
		return err
	}
	f := Frame{Title: "Stock lab", Lead: lead(r), Main: main}
	f.Scripts = []string{"timeline.js", "timelines.js", "report.js"}
	if len(view.Sweeps) > 0 {
		f.Scripts = append(f.Scripts, "sweep.js")
	}
	if view.Matrix != nil || view.Explored != nil {
		f.Scripts = append(f.Scripts, "copy.js")
	}
	if view.Matrix != nil {
		f.Data = append(f.Data, Data{"faults-data", view.Matrix.faults})
		f.Scripts = append(f.Scripts, "faults.js")
	}
	if view.Explored != nil {
		f.Scripts = append(f.Scripts, "trace.js")
	}
	return f.Write(w)
}

// lead says what was done, and when.
func lead(r *report.Report) string {
	var parts []string
	if len(r.Rows) > 0 {
		parts = append(parts, "strategies under load")
	}
	if len(r.Faults) > 0 {
		parts = append(parts, "crashes, pauses and retries")
	}
	if len(r.Explored) > 0 {
		parts = append(parts, "every interleaving of two requests")
	}
	if !r.Environment.StartedAt.IsZero() {
		parts = append(parts, r.Environment.StartedAt.UTC().Format("2 January 2006, 15:04 UTC"))
	}
	return strings.Join(parts, " · ")
}

// reportView is what the template of a report shows.
type reportView struct {
	Verdict    verdictView
	Conditions []string
	Problems   []string
	Table      *tableView     // nil if nothing was measured
	Judged     *judgedSection // nil if nothing was judged only
	Sweeps     []sweepView
	Matrix     *matrixView   // nil if no fault was played
	Explored   *exploredView // nil if nothing was explored
}

// verdictView is what the report says first.
type verdictView struct {
	Class   string // ok, bad or open
	Text    string // one sentence
	Details []string
	Tally   []tally
}

// tally counts the strategies of one kind.
type tally struct {
	Class, Word string
	Count       int
}

// fact is one thing about the run.
type fact struct{ Name, Value string }

func newReportView(r *report.Report) *reportView {
	return &reportView{
		Verdict:    newVerdict(r),
		Conditions: r.Conditions(),
		Problems:   r.Problems,
		Table:      newTable(r),
		Judged:     newJudgedSection(r.Judged()),
		Sweeps:     newSweeps(r.Sweep()),
		Matrix:     newMatrix(r),
		Explored:   newExplored(r.Explored),
	}
}

// newVerdict sums up the report.
func newVerdict(r *report.Report) verdictView {
	v := verdictView{Class: "ok", Text: r.Success()}
	switch {
	case r.ClaimFailed:
		v.Class, v.Text = "bad", "A claim did not hold."
	case len(r.Problems) > 0:
		v.Class, v.Text = "open", "No claim failed, but not everything could be judged."
	}
	v.Tally = tallies(r)
	if text := report.ExploredSentence(r.Explored); text != "" {
		v.Details = append(v.Details, text)
	}
	return v
}

// tallies counts the strategies by their verdicts, on as many replicas as there were. A strategy that is wrong under
// one workload is wrong.
func tallies(r *report.Report) []tally {
	kinds := []tally{
		{Class: "ok", Word: "correct"}, {Class: "late", Word: "correct, but " + report.LateLosesUpdate},
		{Class: "open", Word: "not decided"}, {Class: "bad", Word: "wrong"},
	}
	most := 0
	for _, row := range r.Rows {
		most = max(most, row.Replicas)
	}
	worst := map[string]int{}
	for _, row := range r.Rows {
		if row.Baseline || row.Untested || row.Replicas < most || harmlessControl(row) {
			continue
		}
		kind := slices.IndexFunc(kinds, func(k tally) bool { return k.Class == verdictClass(row) })
		name := row.Strategy + "@" + row.Store
		worst[name] = max(worst[name], kind)
	}
	for _, kind := range worst {
		kinds[kind].Count++
	}
	return slices.DeleteFunc(kinds, func(k tally) bool { return k.Count == 0 })
}

// judgedSection is the workloads that are judged only. It is closed if all claims held: its rows fill many screens.
type judgedSection struct {
	Summary string
	Open    bool
	Loads   []report.Judged
}

func newJudgedSection(all []report.Judged) *judgedSection {
	if len(all) == 0 {
		return nil
	}
	s := &judgedSection{Loads: all}
	rows, broken := 0, 0
	for _, judged := range all {
		for _, found := range judged.Found {
			rows += len(found.Rows)
			for _, row := range found.Rows {
				if !row.ClaimHeld {
					broken++
				}
			}
		}
	}
	s.Open = broken > 0
	s.Summary = fmt.Sprintf("%s, %s: ", count(len(all), "workload"), count(rows, "verdict"))
	if broken == 0 {
		s.Summary += "each is what the strategy claims."
	} else {
		s.Summary += fmt.Sprintf("%d against the claim.", broken)
	}
	return s
}

// count writes a number with its noun: 1 row, 2 rows, 3 strategies.
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y") && !strings.HasSuffix(noun, "ay"):
		noun = strings.TrimSuffix(noun, "y") + "ie"
	}
	return fmt.Sprintf("%s %ss", grouped(n), noun)
}

// safe marks markup that this package made, and in which every text is escaped.
func safe(markup string) template.HTML { return template.HTML(markup) }
