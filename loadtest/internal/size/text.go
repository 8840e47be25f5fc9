package size

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"stock/internal/stats"
)

// distrusted says why a strategy is not predicted; empty: it is.
func (r *Record) distrusted(strategy string) string {
	e, tested := ErrorsOf(r.Tests, strategy)
	switch {
	case !tested:
		return "its predictions have not been tested"
	case e.Worst > Trusted:
		return fmt.Sprintf("in a test (%v), the prediction was %+.0f %% off", e.WorstTest.Setting, 100*e.WorstTest.Error())
	}
	return ""
}

// WriteAnswer says what a strategy needs for a goodput, and returns whether it is known to reach it.
func (r *Record) WriteAnswer(w io.Writer, strategy string, q Question) (reaches bool) {
	if why := r.distrusted(strategy); why != "" {
		fmt.Fprintf(w, "%s: not predicted: %s.\n", strategy, why)
		return false
	}
	a := r.Profile(strategy).Answer(q)
	e, _ := ErrorsOf(r.Tests, strategy)
	limit := fmt.Sprintf("%s/s (±%.0f %%)", stats.Grouped(round2(a.Limit)), 100*e.Worst)
	if !a.Possible() && a.Limit >= q.Sales {
		fmt.Fprintf(w, "%s: %s sales per second are too close to the limit of %s, set by %s.\n",
			strategy, stats.Grouped(q.Sales), limit, a.LimitedBy)
		return false
	}
	if !a.Possible() {
		fmt.Fprintf(w, "%s: %s sales per second are not possible: the limit is %s, set by %s.\n",
			strategy, stats.Grouped(q.Sales), limit, a.LimitedBy)
		return false
	}
	fmt.Fprintf(w, "%s: for %s sales per second, %s must buy at the same time; a sale takes %v on average.\n",
		strategy, stats.Grouped(q.Sales), users(a.Users), time.Duration(a.Latency*1e9).Round(100*time.Microsecond))
	var cores []string
	for _, station := range Stations {
		if need := a.Cores[station]; need > 0 {
			cores = append(cores, fmt.Sprintf("%s %.1f", station, need))
		}
	}
	fmt.Fprintf(w, "  cores, at most %.0f %% busy: %s\n", 100*busy, strings.Join(cores, ", "))
	fmt.Fprintf(w, "  limit with more cores and users: %s, set by %s\n", limit, a.LimitedBy)
	return true
}

func users(n int) string {
	if n == 1 {
		return "one user"
	}
	return fmt.Sprintf("%d users", n)
}

// WriteAble lists the strategies that reach a goodput, with their limits, the highest first.
func (r *Record) WriteAble(w io.Writer, q Question) {
	var able []Answer
	for _, p := range r.Profiles {
		if r.distrusted(p.Strategy) == "" {
			if a := p.Answer(q); a.Possible() {
				able = append(able, a)
			}
		}
	}
	slices.SortFunc(able, func(a, b Answer) int { return cmp.Compare(b.Limit, a.Limit) })
	if !slices.ContainsFunc(r.Profiles, func(p *Profile) bool { return r.distrusted(p.Strategy) == "" }) {
		fmt.Fprintln(w, "The record predicts no strategy, so none is known to reach it.")
		return
	}
	if len(able) == 0 {
		fmt.Fprintf(w, "No strategy that is predicted reaches %s sales per second.\n", stats.Grouped(q.Sales))
		return
	}
	var names []string
	for _, a := range able {
		names = append(names, fmt.Sprintf("%s (%s/s)", a.Strategy, stats.Grouped(round2(a.Limit))))
	}
	fmt.Fprintf(w, "These reach %s sales per second: %s.\n", stats.Grouped(q.Sales), strings.Join(names, ", "))
}

// round2 keeps two significant digits: more would be a false precision.
func round2(v float64) float64 {
	if v <= 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/unit) * unit
}

// WriteErrors writes how far the predictions were from the measurements, a strategy a line.
func (r *Record) WriteErrors(w io.Writer) error {
	table := newTable(w, "strategy", "tests", "median error", "worst error", "where", "predicted")
	for _, p := range r.Profiles {
		e, ok := ErrorsOf(r.Tests, p.Strategy)
		if !ok {
			continue
		}
		predicted := "yes"
		if e.Worst > Trusted {
			predicted = "no"
		}
		table.row("`"+p.Strategy+"`", fmt.Sprint(e.Tests), fmt.Sprintf("%.0f %%", 100*e.Median),
			fmt.Sprintf("%+.0f %%", 100*e.WorstTest.Error()), e.WorstTest.Setting.String(), predicted)
	}
	return table.Flush()
}

// WriteCurves writes the limits over numbers of items and of replicas, for a target with these round trips and commits.
func (r *Record) WriteCurves(w io.Writer, rtt, commit time.Duration) error {
	if !slices.ContainsFunc(r.Profiles, func(p *Profile) bool { return r.distrusted(p.Strategy) == "" }) {
		_, err := fmt.Fprintln(w, "No strategy is predicted.")
		return err
	}
	items, replicas := []int{1, 10, 100, 1000, 10_000}, []int{1, 2, 4, 16, 64}
	head := []string{"strategy"}
	for _, n := range items {
		head = append(head, fmt.Sprintf("items %d", n))
	}
	for _, n := range replicas {
		head = append(head, fmt.Sprintf("replicas %d", n))
	}
	table := newTable(w, head...)
	for _, p := range r.Profiles {
		if r.distrusted(p.Strategy) != "" {
			continue
		}
		cells := []string{"`" + p.Strategy + "`"}
		for _, n := range items {
			limit, _ := p.onTarget().limit(r.Target(n, rtt, commit))
			cells = append(cells, stats.Grouped(round2(limit)))
		}
		for _, n := range replicas {
			s := r.Target(100, rtt, commit)
			s.Replicas, s.Cores = n, map[Station]float64{Service: coresPerReplica * float64(n)}
			limit, _ := p.onTarget().limit(s)
			cells = append(cells, stats.Grouped(round2(limit)))
		}
		table.row(cells...)
	}
	return table.Flush()
}

// coresPerReplica is what a replica has in WriteCurves.
const coresPerReplica = 2

// WriteTests writes all predictions beside the measurements.
func WriteTests(w io.Writer, tests []Test) error {
	table := newTable(w, "strategy", "setting", "predicted/s", "measured/s", "error", "bottleneck")
	for _, t := range tests {
		measured, off := "", ""
		if t.Measured > 0 {
			measured, off = fmt.Sprintf("%.0f", t.Measured), fmt.Sprintf("%+.0f %%", 100*t.Error())
		}
		table.row("`"+t.Strategy+"`", t.Setting.String(), fmt.Sprintf("%.0f", t.Predicted), measured, off, t.Bottleneck)
	}
	return table.Flush()
}

// table is a table in Markdown, aligned for the terminal.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)}
	t.row(head...)
	t.row(strings.Fields(strings.Repeat("--- ", len(head)))...)
	return t
}

func (t table) row(cells ...string) { fmt.Fprintf(t, "| %s |\n", strings.Join(cells, "\t| ")) }
