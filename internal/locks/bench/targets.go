package main

import "fmt"

// A target is a figure that redis-queue should reach.
type target struct {
	Case   string
	Wanted string
	of     metric
	limit  float64
	least  bool  // the limit is the least allowed, not the most
	better *bool // compared with the best library, which has the most (true) or the least (false): the limit is of the ratio
	tie    bool  // also met where the difference may as well be none
}

var most, fewest = true, false

var targets = []target{
	{Case: uncontended, Wanted: "2 round trips", of: trips, limit: 2.05}, // a renewal may come between
	{Case: uncontended, Wanted: "no slower than the fastest library", of: median, limit: 1, better: &fewest, tie: true},
	{Case: crowd, Wanted: "at least 5 × the best library's rate", of: rate, limit: 5, least: true, better: &most},
	{Case: crowdAtWork, Wanted: "at most 0.3 commands a lock", of: commands, limit: 0.3},
	{Case: crowdAtWork, Wanted: "at least the best library's rate", of: rate, limit: 1, least: true, better: &most, tie: true},
	{Case: crowdAtWork, Wanted: "longest wait at most 0.1 × the best library's", of: longest, limit: 0.1, better: &fewest},
	{Case: crowdsAtWork, Wanted: "at most 0.5 commands a lock", of: commands, limit: 0.5},
	{Case: crowdsAtWork, Wanted: "no process below half the mean", of: fairProc, limit: 0.5, least: true},
}

// A verdict says whether a target is met: with the whole interval. "open" is one whose interval has the limit inside.
type verdict struct {
	Case     string `json:"case"`
	Wanted   string `json:"wanted"`
	Measured string `json:"measured"`
	Outcome  string `json:"outcome"` // met, not met, open
}

// idleLimit is the share of a core that 10 000 idle leases may take.
const idleLimit = 0.05

// judge compares a run with the targets, as far as their cases were run.
func judge(s samples, idle *idle) (verdicts []verdict) {
	for _, t := range targets {
		f, ok := s.figure(t.of, t.Case, redisQueue)
		if !ok {
			continue
		}
		measured := f.span()
		if t.better != nil {
			best, ok := s.bestLibrary(t.of, t.Case, *t.better)
			if !ok {
				continue
			}
			f = s.ratio(t.of, t.Case, redisQueue, best)
			measured = fmt.Sprintf("%s × %s", f.span(), best)
		}
		verdicts = append(verdicts, verdict{t.Case, t.Wanted, measured, t.outcome(f)})
	}
	if idle != nil {
		outcome := "met"
		if idle.CPU >= idleLimit {
			outcome = "not met"
		}
		verdicts = append(verdicts, verdict{
			fmt.Sprintf("%d idle leases in one process", idle.Leases), "under 5 % of a core",
			fmt.Sprintf("%.1f %%, and %.1f %% of Redis", 100*idle.CPU, 100*idle.RedisCPU), outcome,
		})
	}
	return verdicts
}

func (t target) outcome(f figure) string {
	low, high := f.Median, f.Median
	if f.Interval != nil {
		low, high = f.Interval[0], f.Interval[1]
	}
	all, some := high <= t.limit, low <= t.limit
	if t.least {
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

// bestLibrary is the library with the most, or the least, by its median.
func (s samples) bestLibrary(of metric, benchCase string, most bool) (best string, ok bool) {
	var bound float64
	for _, subject := range subjects {
		f, ran := s.figure(of, benchCase, subject.Name)
		if subject.Library && ran && (!ok || most && f.Median > bound || !most && f.Median < bound) {
			best, bound, ok = subject.Name, f.Median, true
		}
	}
	return best, ok
}
