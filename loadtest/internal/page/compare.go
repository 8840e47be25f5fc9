package page

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"stock/loadtest/internal/report"
)

// WriteComparison writes the comparison of two reports as a page.
func WriteComparison(w io.Writer, c *report.Comparison) error {
	main, err := render("comparison", newComparison(c))
	if err != nil {
		return err
	}
	return Frame{Title: "Stock lab: before and after", Lead: compared(c), Main: main}.Write(w)
}

// compared names the two runs.
func compared(c *report.Comparison) string {
	run := func(e report.Environment) string {
		parts := []string{}
		if e.Revision != "" {
			parts = append(parts, "revision "+e.Revision)
		}
		if !e.StartedAt.IsZero() {
			parts = append(parts, e.StartedAt.UTC().Format("2 January 2006, 15:04 UTC"))
		}
		return strings.Join(parts, " of ")
	}
	return run(c.Before) + ", then " + run(c.After)
}

// comparisonView is what the template of a comparison shows.
type comparisonView struct {
	Verdict  verdictView
	Broken   []brokenView
	Changed  []report.VerdictChange
	Figures  []figureView
	OnlyOld  []string
	OnlyNew  []string
	Notes    []string
	Compared bool
}

// brokenView is a claim that is broken in one of the reports.
type brokenView struct{ Class, State, What, Found string }

// figureView compares one figure of all rows.
type figureView struct {
	Name    string
	Better  string // which direction is better
	Changes []changeView
}

// changeView is a figure of a row in both reports.
type changeView struct {
	Row               string
	Old, New          measuredView
	Class, Delta      string
	OfNoop, P, Rounds string
}

// measuredView is a figure with its bar. All lengths are percent of the longest bar of the figure.
type measuredView struct {
	Text             string
	Width, Low, Wide float64
	Interval         bool
}

func newComparison(c *report.Comparison) comparisonView {
	v := comparisonView{
		Changed: c.Changed, OnlyOld: c.OnlyOld, OnlyNew: c.OnlyNew, Notes: c.Notes, Compared: len(c.Figures) > 0,
	}
	classes := map[report.State]string{report.NewlyBroken: "bad", report.Ongoing: "late", report.Resolved: "ok"}
	for _, state := range []report.State{report.NewlyBroken, report.Ongoing, report.Resolved} {
		for _, claim := range c.Broken {
			if claim.State == state {
				v.Broken = append(v.Broken, brokenView{classes[state], string(state), claim.What, claim.Found})
			}
		}
	}
	var names []string
	for _, change := range c.Figures {
		if !slices.Contains(names, change.Figure) {
			names = append(names, change.Figure)
		}
	}
	for _, name := range names {
		v.Figures = append(v.Figures, newFigure(name, c.Figures))
	}
	v.Verdict = comparisonVerdict(v)
	return v
}

func newFigure(name string, changes []report.FigureChange) figureView {
	f := figureView{Name: name, Better: "more is better"}
	lower := strings.HasSuffix(name, " ms")
	if lower {
		f.Better = "less is better"
	}
	most := 0.0
	for _, c := range changes {
		if c.Figure == name {
			most = max(most, end(c.Old), end(c.New))
		}
	}
	for _, c := range changes {
		if c.Figure != name {
			continue
		}
		class := "base"
		if c.Delta != "~" {
			class = "bad"
			if (c.New.Mean > c.Old.Mean) != lower {
				class = "ok"
			}
		}
		f.Changes = append(f.Changes, changeView{
			Row: c.Row, Old: newMeasured(c.Old, most), New: newMeasured(c.New, most), Class: class,
			Delta: strings.ReplaceAll(c.Delta, "-", "−"), OfNoop: strings.ReplaceAll(c.OfNoop, "-", "−"),
			P: fmt.Sprintf("%.3f", c.P), Rounds: c.Rounds,
		})
	}
	return f
}

// end is where the bar of a figure ends. An interval that is very wide does not make the others short.
func end(m report.Measured) float64 {
	if m.Interval == nil {
		return m.Mean
	}
	return min(m.Interval.High, 1.5*m.Mean)
}

func newMeasured(m report.Measured, most float64) measuredView {
	v := measuredView{Text: milliseconds(m.Mean)}
	if most == 0 {
		return v
	}
	v.Width = 100 * m.Mean / most
	if m.Interval != nil {
		v.Interval, v.Low = true, 100*m.Interval.Low/most
		v.Wide = min(100*m.Interval.High/most, 100) - v.Low
	}
	return v
}

// comparisonVerdict sums up what has changed.
func comparisonVerdict(v comparisonView) verdictView {
	states := map[string]int{}
	for _, claim := range v.Broken {
		states[claim.State]++
	}
	better, worse := 0, 0
	for _, f := range v.Figures {
		for _, change := range f.Changes {
			switch change.Class {
			case "ok":
				better++
			case "bad":
				worse++
			}
		}
	}
	verdict := verdictView{Class: "ok", Text: "No claim that held is broken now."}
	if n := states[string(report.NewlyBroken)]; n > 0 {
		verdict.Class = "bad"
		verdict.Text = fmt.Sprintf("%s that held %s broken now.", count(n, "claim"), are(n))
	}
	if !v.Compared && verdict.Class != "bad" {
		verdict.Class, verdict.Text = "open", "The two reports have no strategy with the same load in common."
		return verdict
	}
	text := "No figure has changed by more than chance."
	switch {
	case better > 0 && worse > 0:
		text = fmt.Sprintf("%s better than before, and %d worse.", count(better, "figure")+" "+are(better), worse)
	case better > 0:
		text = fmt.Sprintf("%s %s better than before.", count(better, "figure"), are(better))
	case worse > 0:
		text = fmt.Sprintf("%s %s worse than before.", count(worse, "figure"), are(worse))
	}
	verdict.Details = []string{text}
	if n := states[string(report.Resolved)]; n > 0 {
		verdict.Details = append(verdict.Details, fmt.Sprintf("%s resolved.", count(n, "broken claim")))
	}
	if n := states[string(report.Ongoing)]; n > 0 {
		verdict.Details = append(verdict.Details, fmt.Sprintf("%s in both.", count(n, "broken claim")))
	}
	return verdict
}
