package report

import "math"

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
