package report

import (
	"maps"
	"math"
	"math/bits"
	"slices"
)

// histogram counts values that are not negative, in buckets that are as wide as the values in them are large: the layout of
// HdrHistogram (Tene, hdrhistogram.org) at three significant digits. What it keeps grows with the spread of the values and
// not with their number: from 50 µs to 2 s there are 16 000 buckets.
//
// Mean, least and greatest are exact. A percentile is exact below 2048, and above that at most 0.05 % (1 in 2048) off the
// exact nearest rank. Latencies are in nanoseconds, so that means: off by less than half of the third digit.
type histogram struct {
	counts           map[uint16]int64
	n                int64
	sum              float64
	lowest, greatest int64
}

// linear is the number of bits that a bucket's number keeps of a value.
const linear = 11

// bucket numbers the buckets in ascending order. Values of up to 11 bits have one each; of longer ones, those with the same
// length and the same first 11 bits share one.
func bucket(v int64) uint16 {
	dropped := max(0, bits.Len64(uint64(v))-linear)
	return uint16(dropped<<(linear-1) + int(v>>dropped))
}

// middle is the value in the middle of a bucket.
func middle(bucket uint16) int64 {
	dropped := max(0, int(bucket>>(linear-1))-1)
	first := (int64(bucket) - int64(dropped)<<(linear-1)) << dropped
	return first + (int64(1)<<dropped)/2
}

// add takes a value; one below 0 counts as 0.
func (h *histogram) add(v int64) {
	v = max(0, v)
	h.prepare()
	h.counts[bucket(v)]++
	h.n++
	h.sum += float64(v)
	h.lowest, h.greatest = min(h.lowest, v), max(h.greatest, v)
}

// merge takes all values of another histogram.
func (h *histogram) merge(other histogram) {
	if other.n == 0 {
		return
	}
	h.prepare()
	for bucket, n := range other.counts {
		h.counts[bucket] += n
	}
	h.n += other.n
	h.sum += other.sum
	h.lowest, h.greatest = min(h.lowest, other.lowest), max(h.greatest, other.greatest)
}

func (h *histogram) prepare() {
	if h.n == 0 {
		h.counts, h.lowest = map[uint16]int64{}, math.MaxInt64
	}
}

func (h *histogram) mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// percentiles returns the nearest rank for each of the given parts, which ascend: at least that part of the values is not
// above it. They are 0 of nothing.
func (h *histogram) percentiles(parts ...float64) []int64 {
	values := make([]int64, len(parts))
	var below int64
	i := 0
	for _, bucket := range slices.Sorted(maps.Keys(h.counts)) {
		below += h.counts[bucket]
		// Not quite the product: 0.999 * 1000 is a little more than 999.
		for ; i < len(parts) && float64(below) >= parts[i]*float64(h.n)-1e-9; i++ {
			values[i] = min(max(middle(bucket), h.lowest), h.greatest)
		}
	}
	return values
}
