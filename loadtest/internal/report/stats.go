package report

import (
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
	var logs []float64
	for _, v := range values {
		if v <= 0 {
			return 0, nil
		}
		logs = append(logs, math.Log(v))
	}
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

// percentile returns the nearest rank of sorted values: at least the given part of them is not above it.
func percentile(sorted []int64, part float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	// Not quite the product: 0.999 * 1000 is a little more than 999.
	rank := int(math.Ceil(part*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func mean(values []int64) float64 {
	if len(values) == 0 {
		return 0
	}
	var sum float64
	for _, v := range values {
		sum += float64(v)
	}
	return sum / float64(len(values))
}

// latency sums up sorted nanoseconds.
func latency(sorted []int64) Latency {
	ms := func(part float64) float64 { return round3(float64(percentile(sorted, part)) / 1e6) }
	return Latency{Mean: round3(mean(sorted) / 1e6), P50: ms(0.5), P90: ms(0.9), P95: ms(0.95), P99: ms(0.99), P999: ms(0.999),
		Min: ms(0), Max: ms(1)}
}

// wait sums up microseconds.
func wait(us []int64) Wait {
	sorted := slices.Sorted(slices.Values(us))
	return Wait{Mean: round3(mean(sorted)), P99: float64(percentile(sorted, 0.99)), Max: float64(percentile(sorted, 1))}
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
