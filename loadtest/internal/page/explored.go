package page

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/report"
)

// WriteExplored writes what an exploration found as a page.
func WriteExplored(w io.Writer, results []trace.Result) error {
	view := newExplored(results)
	main, err := render("explored-page", view)
	if err != nil {
		return err
	}
	return Frame{
		Title: "Every interleaving", Lead: "two sessions, every order of their steps", Main: main,
		Scripts: []string{"copy.js", "trace.js"},
	}.Write(w)
}

// exploredView is what an exploration found.
type exploredView struct {
	Class    string
	Heading  string
	Sentence string
	Limits   string
	Subjects []subjectView
}

// subjectView is what was found of one strategy, service or script.
type subjectView struct {
	Name, On    string
	Class, Word string
	Schedules   string
	State       string
	Seconds     string
	Cells       []exploredCell
	Traces      []traceView
}

// exploredCell is what came of the schedules in which a fault strikes.
type exploredCell struct {
	Name           string
	Right          string // what came of the schedules without damage, if others did some
	Class, Found   string
	Claim, Verdict string
}

// traceView is the shortest schedule of a kind of damage.
type traceView struct {
	ID        string
	Title     string
	Kind      string
	Class     string
	About     string // what was asked for
	Evidence  []string
	Actors    []string
	Steps     []stepView
	Terminals string
	Replay    string
}

// stepView is a step, in the column of its actor.
type stepView struct {
	Number int // from 1
	Actor  string
	Column int    // from 1; 0: all of them
	Colour int    // from 0
	Kind   string // of the step
	Class  string // of what a client is told
	Text   string
	Reply  string
}

// newExplored makes the view; nil if nothing was explored.
func newExplored(results []trace.Result) *exploredView {
	if len(results) == 0 {
		return nil
	}
	v := &exploredView{Class: "ok", Sentence: report.ExploredSentence(results), Limits: results[0].Limits()}
	traces := 0
	for _, r := range results {
		switch {
		case !r.Held():
			v.Class = "bad"
		case !r.Judged() && v.Class == "ok":
			v.Class = "open"
		}
		s := newSubject(r)
		for _, c := range r.Cells {
			for _, kind := range c.Damages() {
				traces++
				s.Traces = append(s.Traces, newTrace(r, c, kind, fmt.Sprintf("trace-%d", traces)))
			}
		}
		v.Subjects = append(v.Subjects, s)
	}
	v.Heading = heading(v.Class)
	if results[0].Service() {
		v.Heading = serviceHeading(v.Class, results[0])
	}
	if found := expected(results); v.Class == "ok" && len(found) > 0 {
		v.Class, v.Heading = "base", "As expected: "+strings.Join(found, ", ")+"."
	}
	return v
}

// heading says whether the claims held.
func heading(class string) string {
	switch class {
	case "ok":
		return "Every claim held."
	case "bad":
		return "A claim is refuted."
	}
	return "No claim is refuted, but not all schedules were executed and judged."
}

// serviceHeading says whether a user's service is right. What a late write or a retry does is only reported.
func serviceHeading(class string, r trace.Result) string {
	switch class {
	case "bad":
		return "The service is wrong."
	case "open":
		return "Not all schedules were executed and judged."
	}
	var faults []string
	for _, c := range r.Cells {
		if c.Damaged() > 0 {
			faults = append(faults, c.Fault)
		}
	}
	if len(faults) > 0 {
		return "Damage only after a fault: " + strings.Join(faults, ", ") + "."
	}
	return "No schedule does damage."
}

// expected lists the damage that scripts or a service are expected to do, and have done.
func expected(results []trace.Result) (kinds []string) {
	for _, r := range results {
		for _, c := range r.Cells {
			if r.Own && c.Held && c.Damaged() > 0 && c.Claim != "" {
				kinds = append(kinds, c.Claim)
			}
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

func newSubject(r trace.Result) subjectView {
	s := subjectView{
		Name: r.Strategy, On: r.Store, Class: "ok", Word: "no damage",
		Schedules: count(r.Tally.Schedules, "schedule"), State: r.State(),
		Seconds: fmt.Sprintf("%.1f\u00a0s", r.Took.Seconds()),
	}
	if r.Own {
		s.On = ""
	}
	for _, c := range r.Cells {
		s.Cells = append(s.Cells, newExploredCell(c))
		switch {
		case c.Damaged() > 0 && c.Fault == "":
			s.Class, s.Word = "bad", strings.Join(c.Damages(), ", ")
		case c.Damaged() > 0 && s.Class == "ok":
			s.Class, s.Word = "late", "only if a fault strikes"
		}
	}
	switch {
	case !r.Held() && r.Service():
		s.Class = "bad"
	case !r.Held():
		s.Class, s.Word = "bad", "a claim is refuted"
	case r.NotJudged() > 0:
		s.Class, s.Word = "open", "not all judged"
	case !r.Exhausted && !r.Random && s.Class == "ok":
		s.Class, s.Word = "open", "not all executed"
	}
	return s
}

func newExploredCell(c trace.Cell) exploredCell {
	v := exploredCell{Name: c.Name(), Found: c.Found(), Class: "ok", Claim: c.Claim, Verdict: "held"}
	switch {
	case c.Kinds[trace.Deadlock] == c.Damaged() && c.Damaged() > 0:
		v.Class = "halt"
	case c.Damaged() > 0:
		v.Class = "bad"
	case c.Kinds[trace.Unjudged] > 0:
		v.Class = "open"
	case c.Waited > 0:
		v.Class = "wait"
	}
	if c.Damaged() > 0 {
		v.Right, v.Found, _ = strings.Cut(v.Found, ", ")
		v.Right += ","
	}
	switch {
	case c.Claim == "" && !c.Held:
		v.Verdict = "wrong"
	case c.Held && !c.Judged():
		v.Verdict = "not judged"
	case c.Claim == "":
		v.Verdict = ""
	case !c.Held:
		v.Verdict = "refuted"
	}
	return v
}

func newTrace(r trace.Result, c trace.Cell, kind, id string) traceView {
	s := c.Shortest[kind]
	o := s.Execution.Readable()
	v := traceView{
		ID: id, Title: c.Name(), Kind: kind, Class: "bad", Evidence: o.Evidence, Terminals: r.Terminals(c, s),
		Replay: r.Replay(s.Token), Actors: trace.Actors(o.Steps),
	}
	switch kind {
	case trace.Deadlock:
		v.Class = "halt"
	case trace.Unjudged:
		v.Class = "open"
	}
	for _, w := range r.Workloads {
		if w.Name == o.Workload {
			v.About = w.Title
		}
	}
	for _, step := range o.Steps {
		if !step.Shown() {
			continue
		}
		view := stepView{
			Number: len(v.Steps) + 1, Actor: step.Actor, Kind: string(step.Kind),
			Text: strings.TrimSpace(step.Text), Reply: step.Reply,
		}
		if step.Actor != "" {
			view.Colour = slices.Index(v.Actors, step.Actor)
			view.Column = view.Colour + 1
		}
		if step.Kind == trace.Answers && step.Actor != "" {
			view.Class = toldClass(step.Text)
		}
		v.Steps = append(v.Steps, view)
	}
	return v
}

// toldClass is the colour of what a client is told.
func toldClass(text string) string {
	told, _, _ := strings.Cut(text, ":")
	switch told {
	case "sold", "held", "confirmed":
		return "ok"
	case "unknown":
		return "open"
	}
	return "base"
}

// Trace returns one trace, as it stands in a page, for a page that shows it later.
func Trace(r trace.Result, c trace.Cell, kind, id string) (template.HTML, error) {
	return render("trace", newTrace(r, c, kind, id))
}
