package report

import (
	"math"

	"stock/loadtest/internal/history"
)

// Buckets are a coarse histogram of latencies, which a chart is drawn from.
type Buckets struct {
	// First is the number of the first bucket. The bucket of number n has the latencies from 2^(n/4) to 2^((n+1)/4) µs.
	First  int     `json:"first"`
	Counts []int64 `json:"counts"` // requests
}

// perDoubling is how many buckets there are between a latency and its double.
const perDoubling = 4

// Start returns the lowest latency of a bucket in milliseconds. i is 0 for the first one.
func (b *Buckets) Start(i int) float64 {
	return math.Exp2(float64(b.First+i)/perDoubling) / 1e3
}

// buckets coarsens a histogram of nanoseconds; nil if it is empty.
func (h *histogram) buckets() *Buckets {
	if h.n == 0 {
		return nil
	}
	number := func(ns int64) int {
		return int(math.Floor(perDoubling * math.Log2(max(1, float64(ns)/1e3))))
	}
	b := &Buckets{First: number(h.lowest)}
	b.Counts = make([]int64, number(h.greatest)-b.First+1)
	for fine, n := range h.counts {
		ns := min(max(middle(fine), h.lowest), h.greatest)
		b.Counts[number(ns)-b.First] += n
	}
	return b
}

// slicesOfRun is how many equal parts of the time of a run have a rate of their own.
const slicesOfRun = 20

// soldBySlice returns the units that were confirmed per second in each part of a run; nil if its duration is unknown.
func soldBySlice(h *history.History) []float64 {
	started, ended := span(h)
	if ended <= started {
		return nil
	}
	units := make([]int64, slicesOfRun)
	for _, op := range h.Ops {
		if op.Again || !op.Sells() || op.Outcome != history.Sold {
			continue
		}
		units[sliceOf(op.ReceivedNS, started, ended)] += unitsOf(op)
	}
	seconds := float64(ended-started) / 1e9 / slicesOfRun
	rates := make([]float64, slicesOfRun)
	for i, n := range units {
		rates[i] = math.Round(float64(n) / seconds)
	}
	return rates
}

// latencyBySlice returns the latencies of the requests that were answered in each part of a run; nil if its duration is
// unknown.
func latencyBySlice(h *history.History) []MedianAndMax {
	started, ended := span(h)
	if ended <= started {
		return nil
	}
	slices := make([]histogram, slicesOfRun)
	for _, op := range h.Ops {
		if !op.Again && op.Sells() {
			slices[sliceOf(op.ReceivedNS, started, ended)].add(latencyNS(op))
		}
	}
	latencies := make([]MedianAndMax, slicesOfRun)
	for i, slice := range slices {
		if slice.n > 0 {
			median := slice.percentiles(0.5)[0]
			latencies[i] = MedianAndMax{round3(float64(median) / 1e6), round3(float64(slice.greatest) / 1e6)}
		}
	}
	return latencies
}

// sliceOf returns in which part of a run a time is.
func sliceOf(ns, started, ended int64) int64 {
	return min(max((ns-started)*slicesOfRun/(ended-started), 0), slicesOfRun-1)
}

// unitsOf returns how many units a request asks for.
func unitsOf(op history.Op) int64 {
	units := op.Count
	for _, line := range op.Lines {
		units += line.Count
	}
	return units
}
