package report

import (
	"math"
	"slices"
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

// buckets counts latencies in nanoseconds; nil if there are none.
func (s measurements) buckets() *Buckets {
	if len(s) == 0 {
		return nil
	}
	number := func(ns int64) int {
		return int(math.Floor(perDoubling * math.Log2(max(1, float64(ns)/1e3))))
	}
	b := &Buckets{First: number(slices.Min(s))}
	b.Counts = make([]int64, number(slices.Max(s))-b.First+1)
	for _, ns := range s {
		b.Counts[number(ns)-b.First]++
	}
	return b
}
