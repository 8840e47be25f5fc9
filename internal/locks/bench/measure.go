package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"stock/internal/servers"
	"stock/internal/stats"
)

// sample is what one cell measured of one lock. It leaves out what its case does not measure.
type sample struct {
	Case  string `json:"case"`
	Lock  string `json:"lock"`
	Round int    `json:"round"`

	Commands float64 `json:"commands_per_lock"` // sent by clients
	Trips    float64 `json:"round_trips_per_lock"`
	Executed float64 `json:"executed_per_lock"` // by Redis, including those of scripts (INFO commandstats)

	// These are set only if the locks took turns.
	Median  float64 `json:"median_us,omitempty"` // one lock and unlock
	P99Took float64 `json:"p99_us,omitempty"`

	// These are set only for contenders.
	Locks    float64 `json:"locks_per_second,omitempty"`
	Longest  float64 `json:"longest_wait_ms,omitempty"` // from the call to Lock to its return
	P99      float64 `json:"p99_wait_ms,omitempty"`     // of all waits in the cell
	Fair     float64 `json:"fewest_to_most,omitempty"`  // locks of the contender with the fewest, divided by the most
	FairProc float64 `json:"fewest_to_mean,omitempty"`  // locks of the process with the fewest, divided by the mean
	CPU      float64 `json:"client_cpu_us,omitempty"`   // per lock, of all client processes
	RedisCPU float64 `json:"redis_cpu_us,omitempty"`    // per lock

	Broken   int    `json:"violations"`        // two contenders held the lock at once
	Unserved int    `json:"unserved"`          // still waiting 2 s after the end of the cell
	Failures int    `json:"failures"`          // locks refused, not released, or lost
	Failure  string `json:"failure,omitempty"` // one of them
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
	s, err := evaluate(outcome, duration)
	if err != nil {
		return nil, err
	}
	s.Lock = lock
	return []*sample{s}, nil
}

// evaluate summarizes a cell of contenders. Rate and fairness count the locks that were released within the duration;
// the cost per lock and the waits include the later ones.
func evaluate(o *outcome, duration time.Duration) (*sample, error) {
	s := &sample{}
	var contenders, processes []int
	var waits []time.Duration
	var late int
	var commands, trips int64
	var used time.Duration
	for _, r := range o.results {
		contenders = append(contenders, r.Grants...)
		processes = append(processes, sum(r.Grants))
		waits = append(waits, r.Waits...)
		late += r.Late
		commands += r.Commands
		trips += r.Trips
		used += r.CPU
		s.Broken += r.Violations
		s.Unserved += r.Unserved
		s.Failures += r.Failures
		if r.Failure != "" {
			s.Failure = r.Failure
		}
	}
	inTime := sum(contenders)
	if inTime+late == 0 {
		return nil, fmt.Errorf("no lock was acquired within %v; failures: %d (%s)",
			duration+patience, s.Failures, s.Failure)
	}
	locks := float64(inTime + late)
	slices.Sort(waits)
	s.Locks = float64(inTime) / duration.Seconds()
	s.Commands = float64(commands) / locks
	s.Trips = float64(trips) / locks
	s.Executed = float64(o.executed) / locks
	s.Longest = milliseconds(waits[len(waits)-1])
	s.P99 = milliseconds(stats.NearestRank(waits, 0.99))
	if inTime > 0 {
		s.Fair = float64(slices.Min(contenders)) / float64(slices.Max(contenders))
		s.FairProc = float64(slices.Min(processes)) / (float64(inTime) / float64(len(processes)))
	}
	s.CPU = float64(used.Microseconds()) / locks
	s.RedisCPU = float64(o.redisCPU.Microseconds()) / locks
	return s, nil
}

func sum(values []int) (total int) {
	for _, v := range values {
		total += v
	}
	return total
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
