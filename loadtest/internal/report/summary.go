package report

import (
	"iter"
	"math"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
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

// latency summarizes nanoseconds.
func latency(ns histogram) Latency {
	ms := func(v int64) float64 { return round3(float64(v) / 1e6) }
	p := ns.percentiles(0.5, 0.9, 0.95, 0.99, 0.999)
	return Latency{
		Mean: round3(ns.mean() / 1e6),
		P50:  ms(p[0]), P90: ms(p[1]), P95: ms(p[2]), P99: ms(p[3]), P999: ms(p[4]),
		Min: ms(ns.lowest), Max: ms(ns.greatest),
	}
}

// notKnown says why a latency is missing.
const notKnown = `A latency is left out if fewer than ten requests took longer, or if the rounds were not five times as
long on average: requests at the end of a round wait for fewer others.`

// removeUnknown removes the percentiles that are not known from the row and its rounds.
func (r *Row) removeUnknown() {
	for i := range r.Rounds {
		round := &r.Rounds[i]
		round.LatencyMS.removeUnknown(round.Requests, round.ElapsedS*1e3)
	}
	seconds := r.seconds() / float64(max(len(r.Rounds), 1))
	r.LatencyMS.removeUnknown(r.Requests, seconds*1e3)
	removeUnknown(&r.WaitedUS.P99, 0.99, r.Outcomes[history.Sold], seconds*1e6)
	removeUnknown(&r.HeldUS.P99, 0.99, r.Outcomes[history.Sold], seconds*1e6)
}

func (l *Latency) removeUnknown(requests int, roundMS float64) {
	for part, ms := range map[float64]*float64{0.5: &l.P50, 0.9: &l.P90, 0.95: &l.P95, 0.99: &l.P99, 0.999: &l.P999} {
		removeUnknown(ms, part, requests, roundMS)
	}
}

// removeUnknown sets a percentile to 0 unless it is known well enough. It is in the unit of the rounds' mean length.
// Ten requests beyond it bound its error by chance. A request that takes 1/5 of a round is one of the last with a
// probability of 1/5, and then answered sooner, as fewer users compete. If a fifth of the longest latencies became
// short, a 99th percentile would be 5 % too low where latencies are exponentially distributed.
func removeUnknown(percentile *float64, part float64, requests int, round float64) {
	const beyond, inRound = 10, 5
	if (1-part)*float64(requests) < beyond-1e-9 || inRound**percentile > round {
		*percentile = 0
	}
}

// wait summarizes microseconds.
func wait(us histogram) Wait {
	return Wait{Mean: round3(us.mean()), P99: float64(us.percentiles(0.99)[0]), Max: float64(us.greatest)}
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
	all.Mean = round3(all.Mean / float64(requests))
	return &all
}

// rounded3 rounds both ends of an interval.
func rounded3(interval *stats.Interval) *stats.Interval {
	if interval == nil {
		return nil
	}
	return &stats.Interval{Low: round3(interval.Low), High: round3(interval.High)}
}

// significant keeps four significant digits: a share of noop may be far below 1.
func significant(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// significantEnds rounds both ends of an interval.
func significantEnds(interval *stats.Interval) *stats.Interval {
	if interval == nil {
		return nil
	}
	return &stats.Interval{Low: significant(interval.Low), High: significant(interval.High)}
}

// round3 keeps three decimals: more would be noise and hard to read.
func round3(v float64) float64 { return math.Round(v*1000) / 1000 }
