package main

import (
	"fmt"

	"stock/internal/stats"
)

// target is a value that a metric of redis-queue should reach.
type target struct {
	Case    string
	Wanted  string
	of      metric
	limit   float64
	atLeast bool // the limit is the least allowed, not the most
	rival   rank // not noRival: compared with this library, and the limit is of the ratio
	tie     bool // also met if the interval includes the limit
}

// rank chooses the library that is compared with.
type rank int

const (
	noRival rank = iota
	highest      // the library with the highest median
	lowest       // the library with the lowest median
)

var targets = []target{
	{Case: uncontended, Wanted: "2 round trips", of: trips, limit: 2.05}, // a renewal may add some
	{Case: uncontended, Wanted: "no slower than the fastest library", of: median, limit: 1, rival: lowest, tie: true},
	{Case: crowd, Wanted: "at least 5 × the best library's rate", of: rate, limit: 5, atLeast: true, rival: highest},
	{Case: crowdAtWork, Wanted: "at most 0.3 commands per lock", of: commands, limit: 0.3},
	{
		Case: crowdAtWork, Wanted: "at least the best library's rate",
		of: rate, limit: 1, atLeast: true, rival: highest, tie: true,
	},
	{Case: crowdAtWork, Wanted: "longest wait at most 0.1 × the best library's", of: longest, limit: 0.1, rival: lowest},
	{Case: crowdsAtWork, Wanted: "at most 0.5 commands per lock", of: commands, limit: 0.5},
	{Case: crowdsAtWork, Wanted: "no process below half the mean", of: fairness, limit: 0.5, atLeast: true},
}

// verdict states whether a target is met by the whole interval. It is open if the interval includes the limit.
type verdict struct {
	Case, Wanted, Measured string
	Outcome                string // met, not met, open
}

// idleLimit is the share of a core that 10 000 idle leases may use.
const idleLimit = 0.05

// judge compares a run with the targets of the cases that were run.
func judge(s samples, idle *idle) (verdicts []verdict) {
	for _, t := range targets {
		summary, ok := s.summary(t.of, t.Case, redisQueue)
		if !ok {
			continue
		}
		measured := summary.Span()
		if t.rival != noRival {
			library, ok := s.bestLibrary(t.of, t.Case, t.rival)
			if !ok {
				continue
			}
			summary = s.ratio(t.of, t.Case, redisQueue, library)
			measured = fmt.Sprintf("%s × %s", summary.Span(), library)
		}
		verdicts = append(verdicts, verdict{
			Case: t.Case, Wanted: t.Wanted, Measured: measured, Outcome: t.outcome(summary),
		})
	}
	if idle != nil {
		outcome := "met"
		if idle.CPU >= idleLimit {
			outcome = "not met"
		}
		verdicts = append(verdicts, verdict{
			Case:     fmt.Sprintf("%d idle leases in one process", idle.Leases),
			Wanted:   "under 5 % of a core",
			Measured: fmt.Sprintf("%.1f %%, and %.1f %% of Redis", 100*idle.CPU, 100*idle.RedisCPU),
			Outcome:  outcome,
		})
	}
	return verdicts
}

func (t target) outcome(s stats.Summary) string {
	low, high := s.Median, s.Median
	if s.Interval != nil {
		low, high = s.Interval.Low, s.Interval.High
	}
	all, some := high <= t.limit, low <= t.limit
	if t.atLeast {
		all, some = low >= t.limit, high >= t.limit
	}
	switch {
	case all, some && t.tie:
		return "met"
	case some:
		return "open"
	default:
		return "not met"
	}
}

// bestLibrary finds the library with the highest or lowest median. It returns false if no library was run.
func (s samples) bestLibrary(of metric, benchCase string, by rank) (best string, ok bool) {
	var bound float64
	for _, subject := range subjects {
		summary, ran := s.summary(of, benchCase, subject.Name)
		if !subject.Library || !ran {
			continue
		}
		if !ok || by == highest && summary.Median > bound || by == lowest && summary.Median < bound {
			best, bound, ok = subject.Name, summary.Median, true
		}
	}
	return best, ok
}
