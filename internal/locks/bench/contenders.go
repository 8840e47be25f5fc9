package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// asClient is the environment variable that makes this program one of its own client processes.
const asClient = "STOCK_BENCH_CLIENT"

// patience is how long contenders may keep waiting after the end of a cell. Those still waiting then are counted as not
// served.
const patience = 2 * time.Second

// job is the task of a client process.
type job struct {
	Lock       string
	Addr       string // of Redis
	Key        string
	First      uint64 // id of its first contender; ids of all processes start at 1
	Contenders int
	Hold, Time time.Duration

	Leases int           // number of idle leases to hold instead, each on its own key
	Lease  time.Duration // duration of these leases

	Alternate []string // locks that alternate instead
	Seed      uint64   // of their order
}

// result is what a client process reports.
type result struct {
	Grants     int           // locks released in time
	Late       int           // locks released later, by contenders that were still waiting
	Longest    time.Duration // the longest wait for one of these locks
	Commands   int64         // sent
	Trips      int64         // round trips
	Violations int           // two contenders held the lock at once
	Unserved   int           // contenders that gave up after patience
	Failures   int           // locks refused, not released, or lost
	Failure    string        // one of them

	CPU   time.Duration // of this process; only if it held idle leases
	Turns []turnTaker   // instead of the above, if the locks took turns
}

// client runs a client process: it reads a job from in, reports that it is ready, begins when told to, and writes the
// result to out. It exits when in is closed, as happens when its parent dies.
func client(in io.Reader, out io.Writer, shared *os.File) error {
	orders, replies := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := orders.Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	exclusion, err := openDetector(shared)
	if err != nil {
		return err
	}
	begin := func() error {
		var word string
		if err := errors.Join(replies.Encode("ready"), orders.Decode(&word)); err != nil {
			return err
		}
		go func() {
			_ = orders.Decode(&word)
			os.Exit(1) // the parent has died
		}()
		return nil
	}
	do := contend
	switch {
	case j.Leases > 0:
		do = holdIdle
	case len(j.Alternate) > 0:
		do = takeTurns
	}
	r, err := do(j, exclusion, begin)
	if err != nil {
		return err
	}
	return replies.Encode(r)
}

// contend runs contenders for one key.
func contend(j job, exclusion detector, begin func() error) (*result, error) {
	s, err := subjectNamed(j.Lock)
	if err != nil {
		return nil, err
	}
	count := &requests{}
	lock, err := s.open(j.Addr, count)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.close() }() // the process ends anyway
	contenders := make([]contender, j.Contenders)
	for i := range contenders {
		contenders[i] = contender{id: j.First + uint64(i), lock: lock, detector: exclusion}
	}
	if err := warmUp(contenders, j.Key); err != nil {
		return nil, err
	}
	if err := begin(); err != nil {
		return nil, err
	}
	commands, trips := count.commands.Load(), count.trips.Load()
	start := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(j.Time+patience))
	defer cancel()
	each(contenders, func(c *contender) { c.run(ctx, j, start) })

	r := &result{Commands: count.commands.Load() - commands, Trips: count.trips.Load() - trips}
	for _, c := range contenders {
		r.Grants += c.grants
		r.Late += c.late
		r.Longest = max(r.Longest, c.longest)
		r.Violations += c.violations
		r.Unserved += c.unserved
		r.Failures += c.failures
		if c.err != nil {
			r.Failure = c.err.Error()
		}
	}
	return r, nil
}

// warmUp opens connections and loads scripts before the measurement: each contender locks a key of its own.
func warmUp(contenders []contender, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	each(contenders, func(c *contender) {
		unlock, err := c.lock.lock(ctx, fmt.Sprintf("%s:warm-up:%d", key, c.id))
		if err == nil {
			err = unlock()
		}
		c.err = err
	})
	var errs []error
	for _, c := range contenders {
		errs = append(errs, c.err)
	}
	return errors.Join(errs...)
}

func each(contenders []contender, do func(*contender)) {
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() { do(&contenders[i]) })
	}
	all.Wait()
}

type contender struct {
	id       uint64
	lock     *opened
	detector detector

	grants, late, violations, unserved, failures int
	longest                                      time.Duration
	err                                          error
}

// run locks and unlocks until the end of the cell. A contender that is waiting then keeps waiting: the wait would
// otherwise be recorded as too short.
func (c *contender) run(ctx context.Context, j job, start time.Time) {
	for time.Since(start) < j.Time {
		asked := time.Now()
		unlock, err := c.lock.lock(ctx, j.Key)
		c.longest = max(c.longest, time.Since(asked))
		if err != nil {
			if time.Since(start) >= j.Time+patience {
				c.unserved++ // whatever the error: a connection may time out before the context
			} else {
				c.fail(err)
			}
			continue
		}
		if !c.detector.enter(c.id) {
			c.violations++
		}
		if j.Hold > 0 {
			time.Sleep(j.Hold)
		}
		if !c.detector.leave(c.id) {
			c.violations++
		}
		if err := unlock(); err != nil {
			c.fail(err)
		}
		if time.Since(start) < j.Time {
			c.grants++
		} else {
			c.late++
		}
	}
}

func (c *contender) fail(err error) {
	c.failures++
	c.err = err
}
