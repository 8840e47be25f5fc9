package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// benchCase is a number of contenders for one key, spread evenly over the clients of a lock.
type benchCase struct {
	name       string
	clients    int
	contenders int           // of all clients together
	hold       time.Duration // time in the critical section
	times      float64       // duration of a cell, as a multiple of -time
}

// The cases. A wait can only be measured up to the cell's duration plus patience, so the longest waits are comparable
// only between cells of equal duration.
var cases = []benchCase{
	{"1 contender, 0 ms", 1, 1, 0, 1},
	{"1 contender, 2 ms", 1, 1, 2 * time.Millisecond, 0.5},
	{"8 contenders, 0 ms", 1, 8, 0, 0.75},
	{"8 contenders, 2 ms", 1, 8, 2 * time.Millisecond, 0.75},
	{"64 contenders, 0 ms", 1, 64, 0, 1},
	{"64 contenders, 2 ms", 1, 64, 2 * time.Millisecond, 4.5},
	{"8 contenders of 8 clients, 0 ms", 8, 8, 0, 0.75},
	{"8 contenders of 8 clients, 2 ms", 8, 8, 2 * time.Millisecond, 0.75},
	{"64 contenders of 8 clients, 0 ms", 8, 64, 0, 1.5},
	{"64 contenders of 8 clients, 2 ms", 8, 64, 2 * time.Millisecond, 2.5},
}

// patience is how long contenders may keep waiting after the end of a cell. One that still waits then gives up, and
// counts only in `longest`.
const patience = 2 * time.Second

const key = "bench:lock"

// sample is what a cell measured.
type sample struct {
	rate     float64       // locks released in time, per second
	commands float64       // sent per lock, including those released later
	longest  time.Duration // from the call to Lock to its return

	violations int   // two contenders held the lock at once
	failures   int   // locks refused, not released, or lost
	failure    error // one of them
}

// measure runs a case with one lock on an empty Redis.
func measure(ctx context.Context, addr string, c benchCase, s subject, duration time.Duration) (_ sample, err error) {
	count := &requests{}
	flush := newClient(addr, count)
	defer flush.Close()
	if err := flush.FlushAll(ctx).Err(); err != nil {
		return sample{}, err
	}
	var inside atomic.Int64
	contenders := make([]contender, c.contenders)
	var locks []*opened
	defer func() {
		for _, lock := range locks {
			err = errors.Join(err, lock.close())
		}
	}()
	for i := range c.clients {
		lock, err := s.open(addr, count)
		if err != nil {
			return sample{}, err
		}
		locks = append(locks, lock)
		for j := i; j < len(contenders); j += c.clients {
			contenders[j] = contender{lock: lock, hold: c.hold, inside: &inside}
		}
	}
	if err := warmUp(ctx, contenders); err != nil {
		return sample{}, err
	}
	before, end := count.commands.Load(), time.Now().Add(duration)
	waits, cancel := context.WithDeadline(ctx, end.Add(patience))
	defer cancel()
	each(contenders, func(_ int, c *contender) { c.run(waits, end) })
	if ctx.Err() != nil {
		return sample{}, ctx.Err()
	}
	return evaluate(contenders, count.commands.Load()-before, duration)
}

// warmUp opens connections and loads scripts: each contender locks a key of its own.
func warmUp(ctx context.Context, contenders []contender) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	errs := make([]error, len(contenders))
	each(contenders, func(i int, c *contender) {
		unlock, err := c.lock.lock(ctx, fmt.Sprint(key, i))
		if err == nil {
			err = unlock()
		}
		errs[i] = err
	})
	return errors.Join(errs...)
}

// each calls do for all contenders at once.
func each(contenders []contender, do func(int, *contender)) {
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() { do(i, &contenders[i]) })
	}
	all.Wait()
}

// contender locks and unlocks again and again.
type contender struct {
	lock   *opened
	hold   time.Duration
	inside *atomic.Int64 // contenders in the critical section

	inTime, late, violations, failures int
	longest                            time.Duration
	failure                            error
}

// run locks and unlocks until the end. A contender that is waiting then keeps waiting: the wait would otherwise be
// recorded as too short.
func (c *contender) run(ctx context.Context, end time.Time) {
	for time.Now().Before(end) {
		asked := time.Now()
		unlock, err := c.lock.lock(ctx, key)
		c.longest = max(c.longest, time.Since(asked))
		if err == nil {
			c.work()
			err = unlock()
		}
		switch {
		case err != nil:
			c.failure = err
			if ctx.Err() == nil {
				c.failures++
			}
		case time.Now().Before(end):
			c.inTime++
		default:
			c.late++
		}
	}
}

// work is the critical section.
func (c *contender) work() {
	if c.inside.Add(1) != 1 {
		c.violations++
	}
	if c.hold > 0 {
		time.Sleep(c.hold)
	}
	c.inside.Add(-1)
}

// evaluate summarizes a cell. The rate counts the locks that were released in time; the cost per lock includes the
// later ones.
func evaluate(contenders []contender, commands int64, duration time.Duration) (s sample, err error) {
	inTime, all := 0, 0
	for _, c := range contenders {
		inTime += c.inTime
		all += c.inTime + c.late
		s.longest = max(s.longest, c.longest)
		s.violations += c.violations
		s.failures += c.failures
		if c.failure != nil {
			s.failure = c.failure
		}
	}
	if all == 0 {
		return s, fmt.Errorf("no lock was acquired within %v: %w", duration+patience, s.failure)
	}
	s.rate, s.commands = float64(inTime)/duration.Seconds(), float64(commands)/float64(all)
	return s, nil
}
