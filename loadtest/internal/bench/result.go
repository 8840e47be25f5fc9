package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/perf/benchmath"
)

// Result is all that a run showed.
type Result struct {
	Conditions string // machine and versions, in words
	Users      int
	Time       time.Duration
	Rounds     int
	Seed       uint64

	Rates map[string][]float64 // requests a second by subject, a figure a round
	Notes []string             // what was not measured, or too short for the judge to tell
	Wrong []string             // what the judge found wrong: its figures are worth nothing

	ReplicaPeak                   int64  // bytes that a replica had in memory at most; 0 where nobody tells
	HeapAfterFirst, HeapAfterLast uint64 // bytes that this process kept after a round
	Later                         int    // requests that were judged in all rounds but the first
}

// target is a figure that should be reached.
type target struct {
	what, wanted string
	needs        []string
	of           func(round map[string]float64) float64
	limit        float64
}

func ratio(a, b string) func(map[string]float64) float64 {
	return func(r map[string]float64) float64 { return r[a] / r[b] }
}

// targets lists them in the order in which they are shown.
func targets() []target {
	few, many := at(optimistic, fewOptimists), at(optimistic, manyOptimists)
	return []target{
		{"batch", "0.7 × noop", []string{"batch", "noop"}, ratio("batch", "noop"), 0.7},
		{"batch", "3 × update", []string{"batch", "update"}, ratio("batch", "update"), 3},
		{"batch-ledger", "0.4 × noop", []string{"batch-ledger", "noop"}, ratio("batch-ledger", "noop"), 0.4},
		{"redis-script", "0.7 × noop", []string{"redis-script", "noop"}, ratio("redis-script", "noop"), 0.7},
		{"update", "0.9 × 1/(1/noop + 1/raw)", []string{"update", "noop", Raw}, func(r map[string]float64) float64 {
			return r["update"] * (1/r["noop"] + 1/r[Raw])
		}, 0.9},
		{optimistic, fmt.Sprintf("%d users at least 0.5 × %d users", manyOptimists, fewOptimists), []string{few, many}, ratio(many, few), 0.5},
		{"noop", "0.9 × bare", []string{"noop", Bare}, ratio("noop", Bare), 0.9},
	}
}

// Wanted says what should be reached by this many users, a line each.
func Wanted(users int) string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, v := range (&Result{Users: users}).Verdicts() {
		fmt.Fprintf(out, "  %s\t%s\n", v.What, v.Wanted)
	}
	out.Flush()
	return b.String()
}

// Verdict says whether a target is met: with the whole interval. "open" is one whose interval has the limit inside, or that
// was not measured.
type Verdict struct {
	What, Wanted, Measured, Outcome string
}

const (
	mostReplica = 60_000_000 // bytes
	mostKept    = 16         // bytes a request, of the lab: a history has hundreds while it is judged, and then goes
)

// Verdicts judges every target.
func (r *Result) Verdicts() (verdicts []Verdict) {
	for _, t := range targets() {
		v := Verdict{t.what, t.wanted, "not measured", "open"}
		if !slices.ContainsFunc(t.needs, func(name string) bool { return len(r.Rates[name]) == 0 }) {
			// Ratios within a round: what slows a whole round down says nothing about either.
			var values []float64
			for round := range r.Rates[t.needs[0]] {
				rates := map[string]float64{}
				for _, name := range t.needs {
					rates[name] = r.Rates[name][round]
				}
				values = append(values, t.of(rates))
			}
			f := newFigure(values)
			v.Measured, v.Outcome = f.span(), f.reaches(t.limit)
		}
		verdicts = append(verdicts, v)
	}
	replica := Verdict{"a replica", fmt.Sprintf("under 60 MB resident, %d users", r.Users), "not measured", "open"}
	if r.ReplicaPeak > 0 {
		replica.Measured, replica.Outcome = fmt.Sprintf("%.1f MB at most", float64(r.ReplicaPeak)/1e6), met(r.ReplicaPeak < mostReplica)
	}
	lab := Verdict{"the lab", "does not grow with the requests", "not measured", "open"}
	if r.Later > 0 {
		kept := (float64(r.HeapAfterLast) - float64(r.HeapAfterFirst)) / float64(r.Later)
		lab.Measured = fmt.Sprintf("%.1f MB after the first round, %.1f MB %d requests later", float64(r.HeapAfterFirst)/1e6,
			float64(r.HeapAfterLast)/1e6, r.Later)
		lab.Outcome = met(kept < mostKept)
	}
	return append(verdicts, replica, lab)
}

func met(yes bool) string {
	if yes {
		return "met"
	}
	return "not met"
}

// names lists the subjects, the fastest first.
func (r *Result) names() (names []string) {
	for name := range r.Rates {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return int(newFigure(r.Rates[b]).median - newFigure(r.Rates[a]).median)
	})
	return names
}

func (r *Result) conditions() string {
	return fmt.Sprintf("%s; %d users, %d rounds of %v a cell, interleaved, seed %d", r.Conditions, r.Users, r.Rounds, r.Time, r.Seed)
}

// WriteText writes the figures and the targets for a terminal.
func (r *Result) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s\nmedians over the rounds, and the farther end of their 95 %% interval (there is none for fewer than six rounds)\n\n", r.conditions())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tgoodput/s\t×noop")
	for _, name := range r.names() {
		fmt.Fprintf(table, "%s\t%s\t%s\n", name, newFigure(r.Rates[name]), r.share(name))
	}
	fmt.Fprintf(table, "\n\twanted\tmeasured\t\n")
	for _, v := range r.Verdicts() {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", v.What, v.Wanted, v.Measured, v.Outcome)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nnoop and bare sell nothing: theirs is what they answer. raw: update's statement on %d connections of the lab's own;\n"+
		"bare: a chi handler that decodes and encodes the same JSON, two processes behind the same nginx\n", r.Users)
	for _, note := range r.Notes {
		fmt.Fprintln(w, note)
	}
	for _, wrong := range r.Wrong {
		fmt.Fprintf(w, "✗ %s\n", wrong)
	}
	return nil
}

// WriteMarkdown writes the same as tables.
func (r *Result) WriteMarkdown(w io.Writer) error {
	fmt.Fprintf(w, "%s.\n\n| | goodput/s | × noop |\n| --- | ---: | ---: |\n", r.conditions())
	for _, name := range r.names() {
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, newFigure(r.Rates[name]).span(), r.share(name))
	}
	fmt.Fprintf(w, "\n| | wanted | measured | |\n| --- | --- | --- | --- |\n")
	for _, v := range r.Verdicts() {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", v.What, v.Wanted, v.Measured, v.Outcome)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", note)
	}
	for _, wrong := range r.Wrong {
		fmt.Fprintf(w, "\n**%s**\n", wrong)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// share is the median ratio to noop within a round.
func (r *Result) share(name string) string {
	var values []float64
	for round, rate := range r.Rates[name] {
		if noop := r.Rates["noop"]; round < len(noop) && noop[round] > 0 {
			values = append(values, rate/noop[round])
		}
	}
	if len(values) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", newFigure(values).median)
}

// figure is a median over the rounds with its 95 % interval, which supposes nothing about the distribution (benchmath).
type figure struct {
	median   float64
	interval *[2]float64 // nil for fewer than six rounds
}

func newFigure(values []float64) figure {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), 0.95)
	f := figure{median: s.Center}
	if !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0) {
		f.interval = &[2]float64{s.Lo, s.Hi}
	}
	return f
}

// String is the median and how far, in per cent of it, the farther end of the interval is: "123 ±4%".
func (f figure) String() string {
	if f.interval == nil || f.median == 0 {
		return short(f.median)
	}
	return fmt.Sprintf("%s ±%.0f%%", short(f.median), 100*max(f.interval[1]/f.median-1, 1-f.interval[0]/f.median))
}

// span is the median with both ends of its interval.
func (f figure) span() string {
	if f.interval == nil {
		return short(f.median)
	}
	return fmt.Sprintf("%s (%s to %s)", short(f.median), short(f.interval[0]), short(f.interval[1]))
}

// reaches compares the whole interval with the least that is wanted. A figure without an interval proves nothing.
func (f figure) reaches(least float64) string {
	switch {
	case f.interval == nil, f.interval[0] < least && f.interval[1] >= least:
		return "open"
	}
	return met(f.interval[0] >= least)
}

func short(v float64) string {
	if v >= 99.95 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
