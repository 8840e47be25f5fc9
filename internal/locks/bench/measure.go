package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"stock/internal/servers"
)

// sample is what one cell measured of one lock. It leaves out what its case does not measure.
type sample struct {
	Case  string
	Lock  string
	Round int

	Commands float64 // sent by clients, per lock
	Trips    float64 // round trips per lock

	// These are set only if the locks took turns.
	Median, P99 float64 // of one lock and unlock, in µs

	// These are set only for contenders.
	Locks    float64 // per second
	Longest  float64 // from the call to Lock to its return, in ms
	Fairness float64 // locks of the process with the fewest, divided by the mean of the processes

	Broken   int    // two contenders held the lock at once
	Unserved int    // still waiting 2 s after the end of the cell
	Failures int    // locks refused, not released, or lost
	Failure  string // one of them
}

// measure runs one cell and returns a sample for each of its locks.
func measure(ctx context.Context, server *servers.Redis, c cell, unit time.Duration) (samples []*sample, err error) {
	duration := time.Duration(c.times * float64(unit))
	if c.alternate {
		samples, err = measureTurns(ctx, server, c, duration)
	} else {
		samples, err = measureContenders(ctx, server, c, duration)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	for _, s := range samples {
		s.Case, s.Round = c.Name, c.Round
	}
	return samples, nil
}

// measureContenders runs a cell of one lock.
func measureContenders(ctx context.Context, server *servers.Redis, c cell, duration time.Duration) ([]*sample, error) {
	lock := c.subjects[0].Name
	jobs := make([]job, c.Processes)
	each := c.Contenders / c.Processes
	for i := range jobs {
		jobs[i] = job{
			Lock: lock, Addr: server.Addr, Key: "bench:lock",
			First: uint64(1 + i*each), Contenders: each, Hold: c.Hold, Time: duration,
		}
	}
	outcome, err := runJobs(ctx, server, jobs)
	if err != nil {
		return nil, err
	}
	s, err := evaluate(outcome.results, duration)
	if err != nil {
		return nil, err
	}
	s.Lock = lock
	return []*sample{s}, nil
}

// evaluate summarizes a cell of contenders. Rate and fairness count the locks that were released within the duration;
// the cost per lock and the waits include the later ones.
func evaluate(results []result, duration time.Duration) (*sample, error) {
	s := &sample{}
	var longest time.Duration
	var inTime, late int
	var commands, trips int64
	fewest := math.MaxInt
	for _, r := range results {
		inTime += r.Grants
		fewest = min(fewest, r.Grants)
		longest = max(longest, r.Longest)
		late += r.Late
		commands += r.Commands
		trips += r.Trips
		s.Broken += r.Violations
		s.Unserved += r.Unserved
		s.Failures += r.Failures
		if r.Failure != "" {
			s.Failure = r.Failure
		}
	}
	if inTime+late == 0 {
		return nil, fmt.Errorf("no lock was acquired within %v; failures: %d (%s)",
			duration+patience, s.Failures, s.Failure)
	}
	locks := float64(inTime + late)
	s.Locks = float64(inTime) / duration.Seconds()
	s.Commands = float64(commands) / locks
	s.Trips = float64(trips) / locks
	s.Longest = float64(longest.Microseconds()) / 1000
	if inTime > 0 {
		s.Fairness = float64(fewest) / (float64(inTime) / float64(len(results)))
	}
	return s, nil
}
