package page

import (
	"fmt"
	"io"
	"slices"

	"stock/internal/stats"
	"stock/loadtest/internal/bench"
	"stock/loadtest/internal/report"
)

// WriteBench writes the measurements of the bench as a page.
func WriteBench(w io.Writer, r *bench.Result) error {
	main, err := render("bench", newBench(r))
	if err != nil {
		return err
	}
	f := Frame{Title: "Stock bench", Lead: "the fastest strategies, and what the machine allows", Main: main}
	return f.Write(w)
}

// benchView is what the template of a bench shows.
type benchView struct {
	Verdict  verdictView
	Heading  string
	Problems []string
	Targets  []targetView
	Rates    []rateView
	Parts    []string // whose CPU time was measured
	Notes    []string
	Users    int
}

// targetView is a target, and whether it is met.
type targetView struct {
	bench.Verdict

	Class string
}

// rateView is the rate of a subject.
type rateView struct {
	Name, Share, WithoutKey string

	Bar measuredView
	CPU []string // per request in µs, of each part
}

func newBench(r *bench.Result) benchView {
	v := benchView{
		Heading: r.Heading(), Problems: slices.Concat(r.Wrong, r.Inconclusive), Parts: r.Parts, Notes: r.Notes,
		Users: r.Users,
	}
	outcomes := map[string]int{}
	for _, verdict := range r.Verdicts() {
		class := map[string]string{bench.Met: "ok", bench.NotMet: "bad", bench.Undecided: "open"}[verdict.Outcome]
		v.Targets = append(v.Targets, targetView{verdict, class})
		outcomes[verdict.Outcome]++
	}
	met := outcomes[bench.Met]
	text := fmt.Sprintf("%d of %s %s met.", met, count(len(v.Targets), "target"), are(met))
	v.Verdict = verdictView{Class: "ok", Text: text}
	switch {
	case len(r.Wrong) > 0:
		v.Verdict.Class, v.Verdict.Text = "bad", "The judge found a strategy wrong."
	case met < len(v.Targets):
		v.Verdict.Class = "open"
	}
	if n := outcomes[bench.Undecided]; n > 0 {
		v.Verdict.Details = append(v.Verdict.Details, fmt.Sprintf("%d %s undecided: the interval includes the limit, "+
			"there are fewer than six rounds, or nothing was measured.", n, are(n)))
	}
	most := 0.0
	for _, name := range r.Subjects() {
		most = max(most, end(summary(r.Rates[name])))
	}
	for _, name := range r.Subjects() {
		rate := rateView{
			Name: name, Share: r.Share(name), WithoutKey: r.WithoutKey(name), Bar: newMeasured(summary(r.Rates[name]), most),
		}
		for _, part := range r.Parts {
			rate.CPU = append(rate.CPU, r.CPUOf(name, part))
		}
		v.Rates = append(v.Rates, rate)
	}
	return v
}

// summary is the median over the rounds with its interval.
func summary(rates []float64) report.Measured {
	s := stats.Summarize(rates)
	return report.Measured{Mean: s.Median, Interval: s.Interval}
}
