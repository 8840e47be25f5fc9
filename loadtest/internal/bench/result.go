package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"stock/internal/stats"
)

// Result holds the measurements of a run.
type Result struct {
	Conditions string // machine and versions
	Users      int
	Time       time.Duration
	Rounds     int
	Seed       uint64

	Rates map[string][]float64 // requests per second of each subject, by round
	Notes []string             // what was not measured
	Wrong []string             // strategies that the judge found wrong: their figures mean nothing

	Inconclusive []string // cells that could not be judged

	Parts []string                        // whose CPU time was measured
	CPU   map[string]map[string][]float64 // CPU time per request in µs, by subject, part and round

	ReplicaPeak                   int64  // peak memory of a replica in bytes; 0 if unknown
	HeapAfterFirst, HeapAfterLast uint64 // heap of this process after the first and the last round, in bytes
	JudgedLater                   int    // requests judged between the two
}

// goal is a ratio of rates that a target asks for.
type goal struct {
	subject string
	wanted  string
	needs   []string // subjects that the ratio is computed from
	ratio   func(rates map[string]float64) float64
	least   float64
}

// times is the goal of being at least `least` times as fast as another subject.
func times(least float64, subject, other string) goal {
	return goal{
		subject: subject, wanted: fmt.Sprintf("%v × %s", least, other), least: least,
		needs: []string{subject, other},
		ratio: func(rates map[string]float64) float64 { return rates[subject] / rates[other] },
	}
}

// goals lists all goals of rates.
func goals() []goal {
	few, many := at(optimistic, fewOptimists), at(optimistic, manyOptimists)
	contention := times(0.5, many, few)
	contention.subject = optimistic
	contention.wanted = fmt.Sprintf("%d users at least 0.5 × %d users", manyOptimists, fewOptimists)
	goals := []goal{
		times(0.72, "batch", noop),
		times(0.8, at("batch", manyUsers), at(noop, manyUsers)),
		times(3, "batch", "update"),
		times(0.75, "escrow", noop),
		times(1.1, "escrow", "batch"),
		times(0.85, at("escrow", manyUsers), at(noop, manyUsers)),
		times(0.25, pairs, noop),
		times(0.85, "redis-script", noop),
		times(0.65, "redis-stream", noop),
		{
			subject: "update", wanted: "0.9 × 1/(1/noop + 1/raw)", least: 0.9,
			needs: []string{"update", noop, Raw},
			ratio: func(rates map[string]float64) float64 { return rates["update"] * (1/rates[noop] + 1/rates[Raw]) },
		},
		contention,
		times(0.9, noop, Bare),
		times(0.85, noop, byWrk(noop)),
	}
	for _, keeper := range keepers {
		goals = append(goals, times(keeper.least, keyed(keeper.name), keeper.name))
	}
	return goals
}

// Wanted lists the targets for a number of users, a line each.
func Wanted(users int) string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, v := range (&Result{Users: users}).Verdicts() {
		fmt.Fprintf(out, "  %s\t%s\n", v.What, v.Wanted)
	}
	out.Flush()
	return b.String()
}

// Verdict states whether a target is met by the whole interval. It is Undecided if the interval includes the limit, or
// if there is none.
type Verdict struct {
	What, Wanted, Measured, Outcome string
}

// The outcomes of a target.
const (
	Met       = "met"
	NotMet    = "not met"
	Undecided = "undecided"
)

const (
	maxReplica = 60_000_000 // bytes
	maxKept    = 16         // bytes of the lab's heap per request: while a history is judged, it takes hundreds
)

// Verdicts judges every target.
func (r *Result) Verdicts() (verdicts []Verdict) {
	for _, g := range goals() {
		verdicts = append(verdicts, r.judge(g))
	}
	replica := unmeasured("a replica", fmt.Sprintf("under 60 MB resident, %d users", r.Users))
	if r.ReplicaPeak > 0 {
		replica.Measured = fmt.Sprintf("%.1f MB at most", float64(r.ReplicaPeak)/1e6)
		replica.Outcome = met(r.ReplicaPeak < maxReplica)
	}
	lab := unmeasured("the lab's memory", "does not grow with the requests")
	if r.JudgedLater > 0 {
		kept := (float64(r.HeapAfterLast) - float64(r.HeapAfterFirst)) / float64(r.JudgedLater)
		lab.Measured = fmt.Sprintf("%.1f MB after the first round, %.1f MB %d requests later",
			float64(r.HeapAfterFirst)/1e6, float64(r.HeapAfterLast)/1e6, r.JudgedLater)
		lab.Outcome = met(kept < maxKept)
	}
	return append(verdicts, replica, lab)
}

func unmeasured(what, wanted string) Verdict {
	return Verdict{What: what, Wanted: wanted, Measured: "not measured", Outcome: Undecided}
}

// judge compares the ratios of each round with the target: because what slows down a
// whole round slows down all subjects.
func (r *Result) judge(g goal) Verdict {
	v := unmeasured(g.subject, g.wanted)
	if slices.ContainsFunc(g.needs, func(name string) bool { return len(r.Rates[name]) == 0 }) {
		return v
	}
	var ratios []float64
	for round := range r.Rates[g.needs[0]] {
		rates := map[string]float64{}
		for _, name := range g.needs {
			rates[name] = r.Rates[name][round]
		}
		ratios = append(ratios, g.ratio(rates))
	}
	summary := stats.Summarize(ratios)
	v.Measured, v.Outcome = summary.Span(), reaches(summary, g.least)
	return v
}

// reaches compares the whole interval with a lower limit. A median without an interval proves nothing.
func reaches(s stats.Summary, least float64) string {
	if s.Interval == nil || s.Interval.Low < least && s.Interval.High >= least {
		return Undecided
	}
	return met(s.Interval.Low >= least)
}

func met(yes bool) string {
	if yes {
		return Met
	}
	return NotMet
}

// Subjects lists what was measured, the fastest first.
func (r *Result) Subjects() (names []string) {
	for name := range r.Rates {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(stats.Median(r.Rates[b]), stats.Median(r.Rates[a])), cmp.Compare(a, b))
	})
	return names
}

// Heading says on what, and how, everything was measured.
func (r *Result) Heading() string {
	return fmt.Sprintf("%s; %d users, %d rounds of %v per cell, interleaved, seed %d",
		r.Conditions, r.Users, r.Rounds, r.Time, r.Seed)
}

// WriteText writes the tables for a terminal, and what their words mean.
func (r *Result) WriteText(w io.Writer) error {
	aligned := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	r.write(aligned, "\t| ")
	if err := aligned.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
Medians over the rounds, and their 95 %% intervals, which need at least six rounds
× noop: as a share of noop by the same load driver and as many users
× without key: of a strategy whose requests have an idempotency key, as a share of the same without one
µs: CPU time per request, of the load and of the processes that serve it
noop and bare sell nothing: their rate is of answered requests, as are all rates by wrk
reserve, pairs: a unit is held and confirmed, in two requests
raw: the statement of update on %d connections, straight to MySQL
bare: a handler that only decodes and encodes the same JSON, in two processes behind the same nginx
`, r.Users)
	return err
}

// WriteMarkdown writes the tables in Markdown.
func (r *Result) WriteMarkdown(w io.Writer) error {
	var text strings.Builder
	r.write(&text, " | ")
	_, err := fmt.Fprintln(w, text.String())
	return err
}

// write writes the rates and the targets as tables, with a separator between the cells of a row.
func (r *Result) write(w io.Writer, separator string) {
	line := func(cells ...string) {
		fmt.Fprintf(w, "| %s%s\n", strings.Join(cells, separator), strings.TrimRight(separator, " "))
	}
	fmt.Fprintf(w, "%s.\n\n", r.Heading())
	head, rule := []string{"", "rate/s", "× noop", "× without key"}, []string{"---", "---:", "---:", "---:"}
	for _, part := range r.Parts {
		head, rule = append(head, part+" µs"), append(rule, "---:")
	}
	line(head...)
	line(rule...)
	for _, name := range r.Subjects() {
		cells := []string{name, stats.Summarize(r.Rates[name]).Span(), r.Share(name), r.WithoutKey(name)}
		for _, part := range r.Parts {
			cells = append(cells, r.CPUOf(name, part))
		}
		line(cells...)
	}
	fmt.Fprintln(w)
	line("", "wanted", "measured", "")
	line("---", "---", "---", "---")
	for _, v := range r.Verdicts() {
		line(v.What, v.Wanted, v.Measured, v.Outcome)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", note)
	}
	for _, problem := range slices.Concat(r.Wrong, r.Inconclusive) {
		fmt.Fprintf(w, "\n**%s**\n", problem)
	}
}

// CPUOf is the median CPU time per request of a part in µs; empty if it was not measured.
func (r *Result) CPUOf(subject, part string) string {
	rounds := r.CPU[subject][part]
	if len(rounds) == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", stats.Median(rounds))
}

// Share is the median ratio within a round to noop by the same load driver and as many users.
func (r *Result) Share(name string) string {
	base := noop
	switch {
	case slices.ContainsFunc(wrkMeasured, func(strategy string) bool { return name == byWrk(strategy) }):
		base = byWrk(noop)
	case strings.HasSuffix(name, at("", manyUsers)):
		base = at(noop, manyUsers)
	}
	ratios := stats.Ratios(slices.All(r.Rates[name]), slices.All(r.Rates[base]))
	if len(ratios) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", stats.Median(ratios))
}

// WithoutKey is the ratio within a round of a strategy with keys to the same without, with its interval. It is empty
// for other subjects.
func (r *Result) WithoutKey(name string) string {
	without, ok := strings.CutSuffix(name, keyed(""))
	ratios := stats.Ratios(slices.All(r.Rates[name]), slices.All(r.Rates[without]))
	if !ok || len(ratios) == 0 {
		return ""
	}
	return stats.Summarize(ratios).Span()
}
