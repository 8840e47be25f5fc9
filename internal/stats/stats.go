// Package stats computes means, intervals and p-values of repeated measurements.
//
// There are two estimators. The benchmark of the locks has six rounds or more of everything, which is enough for a
// median with its interval: Summarize assumes nothing about how the values are distributed. The lab has only three
// rounds of some rows, for which there is no such interval, so it uses Mean, which assumes that the logarithms are
// distributed normally, apart from spoilt rounds.
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

// Ratios divides a by b, round by round: what slows down a whole round affects both alike. Rounds that are missing
// from b, or in which b is not positive, are left out. The sequences yield the number of a round and its value.
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

// Mean returns the trimmed geometric mean and its interval: speeds are compared as ratios, and the error of a ratio
// is symmetric only as a logarithm. If a value is not positive, the mean is the median, without an interval. The
// interval is nil for fewer than two values.
//
// From six values on, the lowest and the highest sixth do not count towards the mean: a machine that does something
// else for a moment spoils single rounds. The interval is that of J. W. Tukey and D. H. McLaughlin (Less Vulnerable
// Confidence and Significance Procedures for Location Based on a Single Sample, 1963). It is Student's as long as
// nothing is trimmed. In simulations with spoilt rounds, it is narrower than Student's and than that of Hodges and
// Lehmann, and covers the truth as often; the bootstrap of the median covers it too seldom.
func Mean(values []float64) (mean float64, interval *Interval) {
	if len(values) == 0 || slices.Min(values) <= 0 {
		return Median(values), nil
	}
	l := locate(logarithms(values))
	return math.Exp(l.mean), l.interval()
}

// location is the trimmed mean of a sample.
type location struct {
	mean     float64
	variance float64 // of the mean: its squared standard error
	freedom  float64 // degrees of freedom; 0 for fewer than two values, whose variance is unknown
}

func locate(values []float64) location {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	cut := n / 6
	kept := sorted[cut : n-cut]
	l := location{mean: moremath.Mean(kept)}
	if n < 2 {
		return l
	}
	// The variance is that of the winsorized sample, in which the nearest values kept replace those cut.
	winsorized := slices.Concat(slices.Repeat(kept[:1], cut), kept, slices.Repeat(kept[len(kept)-1:], cut))
	h := float64(len(kept))
	l.variance = moremath.Variance(winsorized) * float64(n-1) / (h * (h - 1))
	l.freedom = h - 1
	return l
}

// less returns the difference of two locations. Its variance and degrees of freedom are those of K.K. Yuen (The
// Two-Sample Trimmed t for Unequal Population Variances, 1974), which are Welch's as long as nothing is trimmed.
func (l location) less(other location) location {
	d := location{mean: l.mean - other.mean, variance: l.variance + other.variance}
	switch {
	case l.freedom == 0 || other.freedom == 0:
	case d.variance == 0:
		d.freedom = l.freedom + other.freedom
	default:
		d.freedom = d.variance * d.variance /
			(l.variance*l.variance/l.freedom + other.variance*other.variance/other.freedom)
	}
	return d
}

// interval returns the interval of the ratio whose logarithm is l.
func (l location) interval() *Interval {
	if l.freedom == 0 {
		return nil
	}
	half := moremath.InvCDF(moremath.TDist{V: l.freedom})((1+confidence)/2) * math.Sqrt(l.variance)
	return &Interval{Low: math.Exp(l.mean - half), High: math.Exp(l.mean + half)}
}

// p returns the probability that values around 0 have a mean at least as far from 0 as l.
func (l location) p() float64 {
	if l.freedom == 0 || l.mean == 0 {
		return 1
	}
	return 2 * (1 - moremath.TDist{V: l.freedom}.CDF(math.Abs(l.mean)/math.Sqrt(l.variance)))
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

// Difference is how two samples differ.
type Difference struct {
	Ratio    float64   // of their means; 0 if a value is not positive
	Interval *Interval // of the ratio; nil if a sample has fewer than two values
	P        float64   // probability that equal speeds show a ratio at least as far from 1
}

// Compare returns the ratio of the mean of a to that of b. The samples may differ in size.
func Compare(a, b []float64) Difference {
	x, y := logarithms(a), logarithms(b)
	if len(x) == 0 || len(y) == 0 {
		return Difference{P: 1}
	}
	d := locate(x).less(locate(y))
	return Difference{Ratio: math.Exp(d.mean), Interval: d.interval(), P: d.p()}
}

// FalseDiscoveryRate adjusts the p-values of many comparisons, in place: of those with an adjusted p-value of at most
// 0.05, at most 5 % are expected to be chance (Y. Benjamini and Y. Hochberg, Controlling the False Discovery Rate,
// 1995). If nothing differs, the probability of any false positive is at most 5 %.
func FalseDiscoveryRate(p []float64) {
	adjusted := 1.0
	order := ascending(p)
	for k, i := range slices.Backward(order) {
		adjusted = min(adjusted, p[i]*float64(len(p))/float64(k+1))
		p[i] = adjusted
	}
}

// ascending returns the indices of the values in ascending order of the values.
func ascending(values []float64) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(values[i], values[j]) })
	return order
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

// Format writes about three significant digits, at most three decimals, and every digit before the decimal point.
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
func Grouped[Number int | int64 | float64](v Number) string {
	text := fmt.Sprintf("%.0f", float64(v))
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}
