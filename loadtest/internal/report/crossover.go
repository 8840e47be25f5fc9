package report

import (
	"fmt"
	"slices"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// significance is the probability that a sweep without any difference reports a crossover. It applies to all
// comparisons of a sweep together (see stats.Holm): twenty strategies at four values are compared 760 times, and at 5 %
// each, chance alone would produce a crossover in every other sweep. The more is compared, the more rounds it takes. It
// is also the probability that two reports without any difference differ in a given figure (see FigureChange).
const significance = 0.05

// Crossover is a strategy that is faster than another at one value, and slower at a later one.
type Crossover struct {
	Workload string `json:"workload"`
	Replicas int    `json:"replicas,omitempty"`
	Falls    string `json:"falls"`
	Below    string `json:"below"`
	// From is the last value at which it is faster, To the first at which it is slower. Between them, no difference is
	// significant.
	From string `json:"from"`
	To   string `json:"to"`
	// Before and After are the ratios of their speeds at these values.
	Before Ratio  `json:"before"`
	After  Ratio  `json:"after"`
	Text   string `json:"text"`
}

// Ratio is a mean over the rounds (see stats.Mean), with its 95 % interval.
type Ratio struct {
	Mean     float64        `json:"mean"`
	Interval stats.Interval `json:"interval"`
}

// String returns the mean and half the width of its interval.
func (r Ratio) String() string {
	return fmt.Sprintf("%.2f ± %.2f×", r.Mean, (r.Interval.High-r.Interval.Low)/2)
}

// comparable reports whether the point may be compared with other strategies: the speed of a wrong one means nothing.
func (p Point) comparable() bool {
	return p.row.Ranked() || p.Untested && p.row.Claim == verify.ClaimCorrect && p.row.Restock == 0
}

// pair is two curves that have the load in common.
type pair struct {
	a, b        *Curve
	differences []*difference // by place; nil if the two cannot be compared there
}

// difference compares the speeds of a pair at one place.
type difference struct {
	at          int64
	faster      bool // a is faster than b
	p           float64
	significant bool // among all comparisons of the sweep
}

// pairs compares each two curves that have the load in common, at every place.
func (s *Sweep) pairs(places []int64) (pairs []pair) {
	var all []*difference
	for i, a := range s.Curves {
		for _, b := range s.Curves[i+1:] {
			if a.Workload != b.Workload || a.Replicas != b.Replicas {
				continue
			}
			two := pair{a: a, b: b}
			for _, at := range places {
				var d *difference
				value := history.Value(s.Axis, at)
				x, y := a.point(value), b.point(value)
				if x != nil && y != nil && x.comparable() && y.comparable() {
					d = &difference{at: at}
					d.p, d.faster = stats.PValue(stats.Ratios(x.row.rates(), y.row.rates()))
					all = append(all, d)
				}
				two.differences = append(two.differences, d)
			}
			pairs = append(pairs, two)
		}
	}
	var p []float64
	for _, d := range all {
		p = append(p, d.p)
	}
	for i, significant := range stats.Holm(p, significance) {
		all[i].significant = significant
	}
	return pairs
}

// findCrossovers finds the crossovers of each pair of curves.
func (s *Sweep) findCrossovers(places []int64) {
	for _, two := range s.pairs(places) {
		var before *difference
		for i, after := range two.differences {
			if after == nil || !after.significant {
				continue
			}
			if before != nil && before.faster != after.faster {
				// It stays below only if every later place shows that: a tie or a missing point does not.
				stays := !slices.ContainsFunc(two.differences[i+1:], func(later *difference) bool {
					return later == nil || !later.significant || later.faster != after.faster
				})
				s.Crossovers = append(s.Crossovers, s.crossover(two, *before, *after, stays))
			}
			before = after
		}
	}
}

// crossover describes a change of sign between two differences.
func (s *Sweep) crossover(two pair, before, after difference, stays bool) Crossover {
	falls, below := two.a, two.b
	if after.faster {
		falls, below = below, falls
	}
	ratio := func(value string) Ratio {
		r := speedRatio(falls.point(value).row, below.point(value).row)
		return Ratio{Mean: round3(r.mean), Interval: *r.interval} // a significant difference has one
	}
	c := Crossover{
		Workload: falls.Workload, Replicas: falls.Replicas, Falls: s.Label(falls), Below: s.Label(below),
		From: history.Value(s.Axis, before.at), To: history.Value(s.Axis, after.at),
	}
	c.Before, c.After = ratio(c.From), ratio(c.To)
	when := "at " + history.Place(s.Axis, after.at)
	if stays {
		when = fmt.Sprintf("from %s on", history.Place(s.Axis, after.at))
	}
	c.Text = fmt.Sprintf("%s, %s falls below %s: %v as fast at %s, %v at %s", when, c.Falls, c.Below,
		c.Before, history.Place(s.Axis, before.at), c.After, history.Place(s.Axis, after.at))
	return c
}

// Crossed lists the crossovers of a group of curves.
func (s *Sweep) Crossed(group []*Curve) (texts []string) {
	for _, c := range s.Crossovers {
		if c.Workload == group[0].Workload && c.Replicas == group[0].Replicas {
			texts = append(texts, c.Text)
		}
	}
	return texts
}
