package report

import (
	"maps"
	"math"
	"math/bits"
	"slices"
)

// histogram counts values in buckets whose width is proportional to the values: the layout of HdrHistogram (Tene,
// hdrhistogram.org) at three significant digits. Its size grows with the range of the values, not with their number:
// there are 16 000 buckets between 50 µs and 2 s.
//
// The mean, the lowest and the greatest value are exact. Percentiles are exact below 2048, and above that they are
// within 0.05 % (1 in 2048) of the exact nearest rank.
type histogram struct {
	counts           map[uint16]int64
	n                int64
	sum              float64
	lowest, greatest int64
}

// linear is the number of leading bits of a value that determine its bucket.
const linear = 11

// bucket returns the number of a value's bucket, in ascending order. Values of up to 11 bits have one each; longer
// values share one with those of the same length and the same first 11 bits.
func bucket(v int64) uint16 {
	dropped := max(0, bits.Len64(uint64(v))-linear)
	return uint16(dropped<<(linear-1) + int(v>>dropped))
}

// middle returns the value in the middle of a bucket.
func middle(bucket uint16) int64 {
	dropped := max(0, int(bucket>>(linear-1))-1)
	first := (int64(bucket) - int64(dropped)<<(linear-1)) << dropped
	return first + (int64(1)<<dropped)/2
}

// add counts a value; negative values count as 0.
func (h *histogram) add(v int64) {
	v = max(0, v)
	h.prepare()
	h.counts[bucket(v)]++
	h.n++
	h.sum += float64(v)
	h.lowest, h.greatest = min(h.lowest, v), max(h.greatest, v)
}

// merge adds all values of another histogram.
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

// known returns percentiles, and 0 for those that are not known well enough from rounds of this length on average. Ten
// values beyond a percentile bound its error by chance. A request that takes 1/5 of a round is one of the last with a
// probability of 1/5, and then answered sooner, as fewer users compete. If a fifth of the longest latencies became
// short, a 99th percentile would be 5 % too low where latencies are exponentially distributed.
func (h *histogram) known(round float64, parts ...float64) []int64 {
	const beyond, inRound = 10, 5
	values := h.percentiles(parts...)
	for i, v := range values {
		if (1-parts[i])*float64(h.n) < beyond-1e-9 || inRound*float64(v) > round {
			values[i] = 0
		}
	}
	return values
}

// percentiles returns the nearest rank for each of the given parts, which must ascend: the smallest value that at least
// this part of the values does not exceed. Without values, they are 0.
func (h *histogram) percentiles(parts ...float64) []int64 {
	values := make([]int64, len(parts))
	var below int64
	i := 0
	for _, bucket := range slices.Sorted(maps.Keys(h.counts)) {
		below += h.counts[bucket]
		// The product may exceed a whole number by a rounding error: 0.999 * 1000 is a little more than 999.
		for ; i < len(parts) && float64(below) >= parts[i]*float64(h.n)-1e-9; i++ {
			values[i] = min(max(middle(bucket), h.lowest), h.greatest)
		}
	}
	return values
}
