package explore

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/loadtest/internal/explore/trace"
)

// random executes schedules at random until the time is over. It is for what is too large to be exhausted, such as
// three requests: it changes between actors at few points (probabilistic concurrency testing: Burckhardt and others, "A
// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010).
func (s *Search) random(ctx context.Context, systems []System) (trace.Tally, error) {
	s.planned = map[string]bool{}
	until := time.Now().Add(s.Bounds.Duration)
	plain := execution{bounds: s.Bounds}
	if _, err := systems[0].Run(ctx, 1, plain.choose); err != nil {
		return s.tally, err
	}
	group, searching := errgroup.WithContext(ctx)
	var number atomic.Uint64
	for _, system := range systems {
		group.Go(func() error {
			for searching.Err() == nil && time.Now().Before(until) {
				c := newChance(number.Add(1), s.Bounds, len(plain.labels))
				outcome, err := system.Run(searching, 1, c.choose)
				if err != nil {
					return err
				}
				if outcome.Timed { // it does not count
					continue
				}
				c.outcome = outcome
				s.mu.Lock()
				s.found(c.execution)
				s.mu.Unlock()
			}
			return nil
		})
	}
	err := group.Wait()
	return s.tally, cmp.Or(err, ctx.Err())
}

// chance chooses the steps of one schedule at random. Of the actors that can go on, the one with the highest priority
// does; at a few points, its priority becomes the lowest of all.
type chance struct {
	execution
	random     *rand.Rand
	priorities map[int]int
	lowest     int
	changes    map[int]bool // the points at which a priority changes
	strikes    map[int]bool // the points at which a fault strikes
}

// defaultChanges is the number of preemptions if Bounds does not limit them.
const defaultChanges = 3

// newChance returns the choices of one schedule. Length is the usual number of steps of one.
func newChance(number uint64, b trace.Bounds, length int) *chance {
	c := &chance{
		execution: execution{bounds: b}, random: rand.New(rand.NewPCG(b.Seed, number)), //nolint:gosec // not a secret
		priorities: map[int]int{},
	}
	points := func(n int) map[int]bool {
		all := map[int]bool{}
		for range n {
			all[c.random.IntN(max(length, 1))] = true
		}
		return all
	}
	changes := b.Preemptions
	if changes < 0 {
		changes = defaultChanges
	}
	c.changes, c.strikes = points(changes), points(b.Faults)
	return c
}

func (c *chance) choose(p Point) int {
	point := len(c.labels)
	at := -1
	if c.strikes[point] {
		at = c.fault(p)
	}
	if at < 0 {
		at = c.step(p)
		if c.changes[point] {
			c.lowest--
			c.priorities[p.Options[at].Actor] = c.lowest
			at = c.step(p)
		}
	}
	c.beginning = c.then(p, p.Options[at])
	return at
}

// fault returns one of the faults that can strike, or -1.
func (c *chance) fault(p Point) int {
	var faults []int
	for i, o := range p.Options {
		if o.Fault != "" {
			faults = append(faults, i)
		}
	}
	if len(faults) == 0 {
		return -1
	}
	return faults[c.random.IntN(len(faults))]
}

// step returns the step of the actor with the highest priority.
func (c *chance) step(p Point) int {
	best := -1
	for i, o := range p.Options {
		if o.Fault != "" {
			continue
		}
		if _, known := c.priorities[o.Actor]; !known {
			c.priorities[o.Actor] = c.random.IntN(1 << 20)
		}
		if best < 0 || c.priorities[o.Actor] > c.priorities[p.Options[best].Actor] {
			best = i
		}
	}
	return best
}
