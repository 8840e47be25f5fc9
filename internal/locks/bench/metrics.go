package main

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// figure is a median over the rounds with its 95 % interval, which supposes nothing about the distribution
// (golang.org/x/perf/benchmath, as benchstat has it). There is none for fewer than six rounds.
type figure struct {
	Median   float64     `json:"median"`
	Interval *[2]float64 `json:"interval,omitempty"`
}

func newFigure(values []float64) figure {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), 0.95)
	f := figure{Median: s.Center}
	if !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0) {
		f.Interval = &[2]float64{s.Lo, s.Hi}
	}
	return f
}

// String is the median and how far, in per cent of it, the farther end of the interval is: "123 ±4%".
func (f figure) String() string {
	if f.Interval == nil || f.Median == 0 {
		return short(f.Median)
	}
	return fmt.Sprintf("%s ±%.0f%%", short(f.Median), 100*max(f.Interval[1]/f.Median-1, 1-f.Interval[0]/f.Median))
}

// span is the median with both ends of its interval: "123 (120 to 125)".
func (f figure) span() string {
	if f.Interval == nil {
		return short(f.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", short(f.Median), short(f.Interval[0]), short(f.Interval[1]))
}

// short writes three significant digits, and all those before the decimal point.
func short(v float64) string {
	switch {
	case v >= 99.95 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.0995:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// metric is one column.
type metric struct {
	Name string
	of   func(*sample) float64
}

var (
	median    = metric{"median µs", func(s *sample) float64 { return s.Median }}
	p99Took   = metric{"99 % µs", func(s *sample) float64 { return s.P99Took }}
	rate      = metric{"locks/s", func(s *sample) float64 { return s.Locks }}
	commands  = metric{"commands", func(s *sample) float64 { return s.Commands }}
	trips     = metric{"trips", func(s *sample) float64 { return s.Trips }}
	executed  = metric{"executed", func(s *sample) float64 { return s.Executed }}
	longest   = metric{"longest ms", func(s *sample) float64 { return s.Longest }}
	p99       = metric{"99 % ms", func(s *sample) float64 { return s.P99 }}
	fair      = metric{"fewest/most", func(s *sample) float64 { return s.Fair }}
	fairProc  = metric{"process", func(s *sample) float64 { return s.FairProc }}
	clients   = metric{"client µs", func(s *sample) float64 { return s.CPU }}
	redisTime = metric{"redis µs", func(s *sample) float64 { return s.RedisCPU }}
)

// metrics are the columns of a case.
func (c benchCase) metrics() []metric {
	if c.turns {
		return []metric{median, p99Took, commands, trips, executed}
	}
	return []metric{rate, commands, trips, executed, longest, p99, fair, fairProc, clients, redisTime}
}

// samples are those of a run.
type samples []*sample

// figure sums up a metric of a lock in a case over the rounds; false where it was not run.
func (s samples) figure(of metric, benchCase, lock string) (figure, bool) {
	var values []float64
	for _, sample := range s {
		if sample.Case == benchCase && sample.Lock == lock {
			values = append(values, of.of(sample))
		}
	}
	if len(values) == 0 {
		return figure{}, false
	}
	return newFigure(values), true
}

// ratio sums up how many times as much a has as b, round by round: what slows a whole round down says nothing about either.
func (s samples) ratio(of metric, benchCase, a, b string) figure {
	var values []float64
	for _, x := range s {
		for _, y := range s {
			if x.Case == benchCase && y.Case == benchCase && x.Round == y.Round && x.Lock == a && y.Lock == b {
				values = append(values, of.of(x)/of.of(y))
			}
		}
	}
	return newFigure(values)
}
