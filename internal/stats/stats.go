// Package stats holds the statistics of repeated measurements: what a round's measurements have in common, and how much
// of a difference may be chance.
package stats

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"
)

const confidence = 0.95

// Median returns the middle value, or 0 for no values.
func Median(values []float64) float64 {
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

// NearestRank returns the smallest of the sorted values that at least the given part of them does not exceed.
func NearestRank[T any](sorted []T, part float64) T {
	// The product may exceed a whole number by a rounding error.
	rank := int(math.Ceil(part*float64(len(sorted)) - 1e-9))
	return sorted[max(rank, 1)-1]
}

// Ratios divides a by b, round by round: what slows down a whole round affects both alike. Rounds that are missing from
// b, or in which b is not positive, are left out. The sequences yield the number of a round and its value.
func Ratios(a, b iter.Seq2[int, float64]) []float64 {
	divisors := maps.Collect(b)
	var ratios []float64
	for round, value := range a {
		if divisor := divisors[round]; divisor > 0 {
			ratios = append(ratios, value/divisor)
		}
	}
	return ratios
}

// Interval is a 95 % confidence interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// GeometricMean returns the geometric mean and its interval by Student's t-distribution over the logarithms: speeds are
// compared as ratios, and the error of a ratio is symmetric only as a logarithm. The mean is 0 if there are no values
// or one is not positive. The interval is nil for fewer than two values.
func GeometricMean(values []float64) (mean float64, interval *Interval) {
	logs := logarithms(values)
	if len(logs) == 0 {
		return 0, nil
	}
	center := moremath.Mean(logs)
	if len(logs) < 2 {
		return math.Exp(center), nil
	}
	t := moremath.InvCDF(moremath.TDist{V: float64(len(logs) - 1)})((1 + confidence) / 2)
	half := t * moremath.StdDev(logs) / math.Sqrt(float64(len(logs)))
	return math.Exp(center), &Interval{Low: math.Exp(center - half), High: math.Exp(center + half)}
}

// logarithms returns nil if a value is not positive.
func logarithms(values []float64) (logs []float64) {
	for _, v := range values {
		if v <= 0 {
			return nil
		}
		logs = append(logs, math.Log(v))
	}
	return logs
}

// PValue returns the probability that equal speeds show ratios at least as far from 1 as these, by the two-sided t-test
// over their logarithms, and whether their mean is above 1. It is 1 for fewer than two ratios, or if one is not
// positive.
func PValue(ratios []float64) (p float64, above bool) {
	logs := logarithms(ratios)
	if len(logs) < 2 {
		return 1, false
	}
	center := moremath.Mean(logs)
	if center == 0 {
		return 1, false
	}
	t := math.Abs(center) / (moremath.StdDev(logs) / math.Sqrt(float64(len(logs))))
	return 2 * (1 - moremath.TDist{V: float64(len(logs) - 1)}.CDF(t)), center > 0
}

// Holm reports which of many comparisons are significant by their p-values, so that the probability of any false
// positive among them is at most alpha (S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979). The
// comparisons need not be independent.
func Holm(p []float64, alpha float64) []bool {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	significant := make([]bool, len(p))
	for k, i := range order {
		if p[i] > alpha/float64(len(p)-k) {
			break
		}
		significant[i] = true
	}
	return significant
}

// Summary is the median of a measurement over the rounds. Its 95 % interval assumes nothing about the distribution
// (golang.org/x/perf/benchmath, as benchstat uses it); it is nil for fewer than six rounds.
type Summary struct {
	Median   float64   `json:"median"`
	Interval *Interval `json:"interval,omitempty"`
}

// Summarize summarizes the values of all rounds.
func Summarize(values []float64) Summary {
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	result := benchmath.AssumeNothing.Summary(sample, confidence)
	s := Summary{Median: result.Center}
	if !math.IsInf(result.Lo, 0) && !math.IsInf(result.Hi, 0) {
		s.Interval = &Interval{Low: result.Lo, High: result.Hi}
	}
	return s
}

// String returns the median and the distance to the farther end of the interval in percent, such as "123 ±4%".
func (s Summary) String() string {
	if s.Interval == nil || s.Median == 0 {
		return Format(s.Median)
	}
	farther := max(s.Interval.High/s.Median-1, 1-s.Interval.Low/s.Median)
	return fmt.Sprintf("%s ±%.0f%%", Format(s.Median), 100*farther)
}

// Span returns the median and both ends of the interval, such as "123 (120 to 125)".
func (s Summary) Span() string {
	if s.Interval == nil {
		return Format(s.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", Format(s.Median), Format(s.Interval.Low), Format(s.Interval.High))
}

// Format writes three significant digits, and every digit before the decimal point.
func Format(v float64) string {
	switch {
	case v >= 99.95 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.0995:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// Grouped writes a whole number with spaces between the thousands.
func Grouped(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}
