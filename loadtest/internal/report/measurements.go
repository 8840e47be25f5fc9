package report

import (
	"math"
	"slices"
)

// measurements are measured values.
type measurements []int64

func (s measurements) mean() float64 {
	sum := 0.0
	for _, v := range s {
		sum += float64(v)
	}
	return sum / max(1, float64(len(s)))
}

func (s measurements) sorted() measurements { return slices.Sorted(slices.Values(s)) }

// greatest returns the last of sorted values, or 0 for none.
func (s measurements) greatest() int64 { return s.percentile(1) }

// percentile returns the nearest rank of sorted values: the smallest one that at least this part of the values does not
// exceed. It returns 0 for no values.
func (s measurements) percentile(part float64) int64 {
	if len(s) == 0 {
		return 0
	}
	// The product may exceed a whole number by a rounding error: 0.999 * 1000 is a little more than 999.
	return s[max(1, int(math.Ceil(part*float64(len(s))-1e-9)))-1]
}

// known returns a percentile of sorted values, and 0 if it is not known well enough from rounds of this length on
// average. Ten values beyond a percentile bound its error by chance. A request that takes 1/5 of a round is one of the
// last with a probability of 1/5, and then answered sooner, as fewer users compete. If a fifth of the longest latencies
// became short, a 99th percentile would be 5 % too low where latencies are exponentially distributed.
func (s measurements) known(round, part float64) int64 {
	const beyond, inRound = 10, 5
	v := s.percentile(part)
	if (1-part)*float64(len(s)) < beyond-1e-9 || inRound*float64(v) > round {
		return 0
	}
	return v
}
