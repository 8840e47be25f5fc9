package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"stock/internal/servers"
	"stock/internal/stats"
)

// Uncontended locks differ by a few percent, and the speed of a busy machine by much more from one second to the next.
// So the locks take turns, operation by operation, in one process: a disturbance affects all of them. Their order is
// random, because an operation that follows an expensive one is slower.

// turnLimit bounds a lock and unlock, so that a lock that is never acquired leaves time for the others.
const turnLimit = 500 * time.Millisecond

// turnTaker is what was measured of one of the locks that took turns.
type turnTaker struct {
	Lock     string
	Took     []time.Duration // each lock and unlock
	Commands int64           // sent
	Trips    int64           // round trips
	Failures int
	Failure  string // one of them
}

// measureTurns runs a cell of all locks, which take turns.
func measureTurns(ctx context.Context, server *servers.Redis, c cell, duration time.Duration) ([]*sample, error) {
	j := job{Addr: server.Addr, Key: "bench:lock", Time: duration, Seed: c.seed}
	for _, s := range c.subjects {
		j.Alternate = append(j.Alternate, s.Name)
	}
	outcome, err := runJobs(ctx, server, []job{j})
	if err != nil {
		return nil, err
	}
	var samples []*sample
	for _, t := range outcome.results[0].Turns {
		s, err := t.evaluate()
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}

func (t turnTaker) evaluate() (*sample, error) {
	if len(t.Took) == 0 {
		return nil, fmt.Errorf("%s was never acquired; failures: %d (%s)", t.Lock, t.Failures, t.Failure)
	}
	slices.Sort(t.Took)
	locks := float64(len(t.Took))
	return &sample{
		Lock:     t.Lock,
		Median:   microseconds(stats.NearestRank(t.Took, 0.5)),
		P99:      microseconds(stats.NearestRank(t.Took, 0.99)),
		Commands: float64(t.Commands) / locks,
		Trips:    float64(t.Trips) / locks,
		Failures: t.Failures,
		Failure:  t.Failure,
	}, nil
}

// openTurns is an open lock that takes turns with others, with a client of its own.
type openTurns struct {
	turnTaker
	lock  *opened
	key   string
	count *requests
}

// takeTurns locks and unlocks one key of each lock in turn.
func takeTurns(j job, _ detector, begin func() error) (_ *result, err error) {
	takers := make([]*openTurns, 0, len(j.Alternate))
	defer func() {
		for _, t := range takers {
			err = errors.Join(err, t.lock.close())
		}
	}()
	for _, name := range j.Alternate {
		s, err := subjectNamed(name)
		if err != nil {
			return nil, err
		}
		t := &openTurns{turnTaker: turnTaker{Lock: name}, key: j.Key + ":" + name, count: &requests{}}
		if t.lock, err = s.open(j.Addr, t.count); err != nil {
			return nil, err
		}
		takers = append(takers, t)
		if err := t.lockAndUnlock(10 * time.Second); err != nil { // opens connections and loads scripts
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := begin(); err != nil {
		return nil, err
	}
	for _, t := range takers {
		t.Commands, t.Trips = -t.count.commands.Load(), -t.count.trips.Load()
	}
	random := rand.New(rand.NewPCG(j.Seed, 0))
	for start := time.Now(); time.Since(start) < j.Time; {
		random.Shuffle(len(takers), func(i, k int) { takers[i], takers[k] = takers[k], takers[i] })
		for _, t := range takers {
			asked := time.Now()
			if err := t.lockAndUnlock(turnLimit); err != nil {
				t.Failures++
				t.Failure = err.Error()
				continue
			}
			t.Took = append(t.Took, time.Since(asked))
		}
	}
	r := &result{}
	for _, t := range takers {
		t.Commands += t.count.commands.Load()
		t.Trips += t.count.trips.Load()
		r.Turns = append(r.Turns, t.turnTaker)
	}
	return r, nil
}

func (t *openTurns) lockAndUnlock(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	unlock, err := t.lock.lock(ctx, t.key)
	if err != nil {
		return err
	}
	return unlock()
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
