package report

import (
	"iter"
	"math"

	"stock/internal/stats"
)

// rates yields the speed of each round: the goodput, or the throughput of the baseline, which sells nothing.
func (r *Row) rates() iter.Seq2[int, float64] {
	if r.Baseline {
		return r.figures(func(round Cell) float64 { return round.ThroughputPerS })
	}
	return r.figures(func(round Cell) float64 { return round.GoodputPerS })
}

// figures yields a figure of each round.
func (r *Row) figures(of func(Cell) float64) iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for _, round := range r.Rounds {
			if !yield(round.Round, of(round)) {
				return
			}
		}
	}
}

// latency summarizes nanoseconds of rounds of so many seconds on average.
func latency(ns measurements, seconds float64) Latency {
	ns = ns.sorted()
	ms := func(v int64) float64 { return rounded(float64(v) / 1e6) }
	p := func(part float64) float64 { return ms(ns.known(1e9*seconds, part)) }
	return Latency{
		Mean: rounded(ns.mean() / 1e6),
		P50:  p(0.5), P90: p(0.9), P95: p(0.95), P99: p(0.99), P999: p(0.999),
		Min: ms(ns.percentile(0)), Max: ms(ns.greatest()),
	}
}

// notKnown says why a latency is missing.
const notKnown = `A latency is left out if fewer than ten requests took longer, or if the rounds were not five times as
long on average: requests at the end of a round wait for fewer others.`

// wait summarizes microseconds of rounds of so many seconds on average.
func wait(us measurements, seconds float64) Wait {
	us = us.sorted()
	return Wait{Mean: rounded(us.mean()), P99: float64(us.known(1e6*seconds, 0.99)), Max: float64(us.greatest())}
}

// lag summarizes how late the requests of the rounds were sent; nil for a closed loop.
func lag(rounds []Cell) *Lag {
	var all Lag
	requests := 0
	for _, round := range rounds {
		if round.SendLagMS != nil {
			all.Mean += round.SendLagMS.Mean * float64(round.Requests)
			all.Max = max(all.Max, round.SendLagMS.Max)
			requests += round.Requests
		}
	}
	if requests == 0 {
		return nil
	}
	all.Mean = rounded(all.Mean / float64(requests))
	return &all
}

// rounded keeps six significant digits: more would be noise and hard to read.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// roundedEnds rounds both ends of an interval.
func roundedEnds(interval *stats.Interval) *stats.Interval {
	if interval == nil {
		return nil
	}
	return &stats.Interval{Low: rounded(interval.Low), High: rounded(interval.High)}
}
