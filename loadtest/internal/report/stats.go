package report

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// median returns the middle of the values, 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// geometric returns the geometric mean and its 95 % interval: Student's t over the logarithms. Speeds are compared as
// ratios, and the error of a ratio is about as large either way only as a logarithm. The interval is nil for fewer than
// two values, or where one is not positive.
func geometric(values []float64) (mean float64, interval *Interval) {
	logs := logarithms(values)
	if len(logs) == 0 {
		return 0, nil
	}
	center := stats.Mean(logs)
	if len(logs) < 2 {
		return math.Exp(center), nil
	}
	t := stats.InvCDF(stats.TDist{V: float64(len(logs) - 1)})(0.975)
	half := t * stats.StdDev(logs) / math.Sqrt(float64(len(logs)))
	return math.Exp(center), &Interval{math.Exp(center - half), math.Exp(center + half)}
}

// logarithms returns them for values that are all positive, and else nil.
func logarithms(values []float64) (logs []float64) {
	for _, v := range values {
		if v <= 0 {
			return nil
		}
		logs = append(logs, math.Log(v))
	}
	return logs
}

// chance is the probability that equal speeds show ratios as far from 1 as these, or farther: Student's t over their
// logarithms, both sides. It is 1 for fewer than two ratios, or where one is not positive. above says on which side they are.
func chance(ratios []float64) (p float64, above bool) {
	logs := logarithms(ratios)
	if len(logs) < 2 {
		return 1, false
	}
	center := stats.Mean(logs)
	if center == 0 {
		return 1, false
	}
	t := math.Abs(center) / (stats.StdDev(logs) / math.Sqrt(float64(len(logs))))
	return 2 * (1 - stats.TDist{V: float64(len(logs) - 1)}.CDF(t)), center > 0
}

// holm says which of many comparisons tell something, by the probabilities of their being chance, so that the probability
// of a single false one among all of them is at most alpha (S. Holm, A Simple Sequentially Rejective Multiple Test
// Procedure, 1979). It needs no independence.
func holm(p []float64, alpha float64) []bool {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	tells := make([]bool, len(p))
	for k, i := range order {
		if p[i] > alpha/float64(len(p)-k) {
			break
		}
		tells[i] = true
	}
	return tells
}

// pairs yields the rounds of two rows that have the same number.
func pairs(a, b *Row) iter.Seq2[Round, Round] {
	return func(yield func(Round, Round) bool) {
		for _, x := range a.Rounds {
			i := slices.IndexFunc(b.Rounds, func(y Round) bool { return y.Round == x.Round })
			if i >= 0 && !yield(x, b.Rounds[i]) {
				return
			}
		}
	}
}

// latency sums up nanoseconds.
func latency(ns histogram) Latency {
	ms := func(v int64) float64 { return round3(float64(v) / 1e6) }
	p := ns.percentiles(0.5, 0.9, 0.95, 0.99, 0.999)
	return Latency{Mean: round3(ns.mean() / 1e6), P50: ms(p[0]), P90: ms(p[1]), P95: ms(p[2]), P99: ms(p[3]), P999: ms(p[4]),
		Min: ms(ns.lowest), Max: ms(ns.greatest)}
}

// wait sums up microseconds.
func wait(us histogram) Wait {
	return Wait{Mean: round3(us.mean()), P99: float64(us.percentiles(0.99)[0]), Max: float64(us.greatest)}
}

// lag sums up how late the requests of the rounds were sent; nil where none of them was an open loop.
func lag(rounds []Round) *Lag {
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

// round3 keeps three decimals: what is beyond is noise, and makes reports hard to read.
func round3(v float64) float64 { return math.Round(v*1000) / 1000 }
