package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
)

// The uncontended locks differ by a few per cent, and a busy machine by much more from one second to the next. So they are
// not measured one after the other but by turns, op by op, in one process: what slows one down slows all down. The order
// is another each time, since an op that comes after a costly one is slower itself.

// turnLimit bounds a lock and unlock, so that one that is never granted leaves time for the others.
const turnLimit = 500 * time.Millisecond

// A turnTaker is what one of the locks that took turns shows.
type turnTaker struct {
	Lock     string
	Took     []time.Duration // of each lock and unlock
	Commands int64           // sent meanwhile
	Trips    int64           // round trips
	Executed float64         // commands that Redis carried out for a lock and unlock; counted apart, as it cannot tell whose they are
	Failures int
	Failure  string // one of them
}

// measureTurns runs a cell of all locks.
func measureTurns(ctx context.Context, server *servers.Redis, c cell, duration time.Duration) ([]*sample, error) {
	j := job{Addr: server.Addr, Key: "bench:lock", Time: duration, Seed: c.seed}
	for _, s := range c.subjects {
		j.Turns = append(j.Turns, s.Name)
	}
	ran, err := runJobs(ctx, server, []job{j})
	if err != nil {
		return nil, err
	}
	var samples []*sample
	for _, t := range ran.results[0].Turns {
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
		return nil, fmt.Errorf("%s was not granted once; failures: %d (%s)", t.Lock, t.Failures, t.Failure)
	}
	slices.Sort(t.Took)
	locks := float64(len(t.Took))
	return &sample{
		Lock:     t.Lock,
		Median:   microseconds(percentile(t.Took, 0.5)),
		P99Took:  microseconds(percentile(t.Took, 0.99)),
		Commands: float64(t.Commands) / locks,
		Trips:    float64(t.Trips) / locks,
		Executed: t.Executed,
		Failures: t.Failures,
		Failure:  t.Failure,
	}, nil
}

// openTurns are the locks that take turns, each with a client of its own.
type openTurns struct {
	turnTaker
	lock  *opened
	key   string
	count *requests
}

// takeTurns locks and unlocks one key of each lock, by turns.
func takeTurns(j job, _ room, begin func() error) (_ *result, err error) {
	server := newClient(j.Addr, &requests{})
	defer server.Close()
	takers := make([]*openTurns, len(j.Turns))
	for i, name := range j.Turns {
		s, err := subjectNamed(name)
		if err != nil {
			return nil, err
		}
		t := &openTurns{turnTaker: turnTaker{Lock: name}, key: j.Key + ":" + name, count: &requests{}}
		if t.lock, err = s.open(j.Addr, t.count); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, t.lock.close()) }()
		if err := t.warmUp(server); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		takers[i] = t
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
			t.take()
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

// warmUp opens connections and loads scripts, and then counts what Redis carries out.
func (t *openTurns) warmUp(server *redis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := t.lockAndUnlock(ctx); err != nil {
		return err
	}
	before, err := server.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return err
	}
	const times = 100
	for range times {
		if err := t.lockAndUnlock(ctx); err != nil {
			return err
		}
	}
	after, err := server.InfoMap(ctx, "commandstats").Result()
	t.Executed = float64(calls(after)-calls(before)) / times
	return err
}

// take is one turn.
func (t *openTurns) take() {
	ctx, cancel := context.WithTimeout(context.Background(), turnLimit)
	defer cancel()
	asked := time.Now()
	err := t.lockAndUnlock(ctx)
	took := time.Since(asked)
	if err != nil {
		t.Failures++
		t.Failure = err.Error()
		return
	}
	t.Took = append(t.Took, took)
}

func (t *openTurns) lockAndUnlock(ctx context.Context) error {
	unlock, err := t.lock.lock(ctx, t.key)
	if err != nil {
		return err
	}
	return unlock()
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
