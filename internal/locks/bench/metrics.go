package main

import (
	"iter"

	"stock/internal/stats"
)

// metric is one column of the report.
type metric struct {
	Name string
	of   func(*sample) float64
}

var (
	median   = metric{Name: "median µs", of: func(s *sample) float64 { return s.Median }}
	p99      = metric{Name: "99 % µs", of: func(s *sample) float64 { return s.P99 }}
	rate     = metric{Name: "locks/s", of: func(s *sample) float64 { return s.Locks }}
	commands = metric{Name: "commands", of: func(s *sample) float64 { return s.Commands }}
	trips    = metric{Name: "trips", of: func(s *sample) float64 { return s.Trips }}
	longest  = metric{Name: "longest ms", of: func(s *sample) float64 { return s.Longest }}
	fairness = metric{Name: "fewest/mean", of: func(s *sample) float64 { return s.Fairness }}
)

// metrics are the columns of a case.
func (c benchCase) metrics() []metric {
	if c.alternate {
		return []metric{median, p99, commands, trips}
	}
	return []metric{rate, commands, trips, longest, fairness}
}

// samples are the samples of all cells of a run.
type samples []*sample

// series yields a metric of one lock in one case by round.
func (s samples) series(of metric, benchCase, lock string) iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for _, sample := range s {
			if sample.Case == benchCase && sample.Lock == lock && !yield(sample.Round, of.of(sample)) {
				return
			}
		}
	}
}

// summary summarizes a metric of one lock in one case over the rounds. It returns false if the lock was not run there.
func (s samples) summary(of metric, benchCase, lock string) (stats.Summary, bool) {
	var values []float64
	for _, value := range s.series(of, benchCase, lock) {
		values = append(values, value)
	}
	if len(values) == 0 {
		return stats.Summary{}, false
	}
	return stats.Summarize(values), true
}

// ratio summarizes lock a's metric divided by lock b's, round by round.
func (s samples) ratio(of metric, benchCase, a, b string) stats.Summary {
	return stats.Summarize(stats.Ratios(s.series(of, benchCase, a), s.series(of, benchCase, b)))
}
