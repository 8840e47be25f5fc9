package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var clockScenarios = []Scenario{clockJumpsAhead, clockJumpsBack, redlockClockJumps}

// clockJump is how far a clock jumps. It exceeds every lease.
const clockJump = time.Hour

// longLease is a lease that does not end by itself while a story goes on.
const longLease = patientTimeout

// clockJumpsAhead is the story of leases that end at once.
var clockJumpsAhead = Scenario{
	Name:    "clock-jumps/ahead",
	Title:   "The clock of Redis jumps ahead by an hour while a holder's write is on its way.",
	Applies: leaseInRedis,
	Claim:   secondHolderClaim,
	Missing: noClocks,
	Deploy:  func(ctx context.Context, l *Lab) (*Deployment, error) { return deployClocked(ctx, l, longLease) },
	Play: func(ctx context.Context, s *Stage) error {
		side := s.openRedis()
		defer side.Close()
		return s.overtake(ctx, func(ctx context.Context) error {
			rest, err := side.PTTL(ctx, s.lockKey()).Result()
			if err != nil {
				return err
			}
			if err := s.jump(ctx, "the clock of Redis jumps ahead by an hour", clockJump, s.clocked[0]); err != nil {
				return err
			}
			held, err := side.Exists(ctx, s.lockKey()).Result()
			if err != nil {
				return err
			}
			if rest > clockBusy && held == 0 {
				s.Provef("TIME is an hour ahead; A's lock had a PTTL of %s, and is gone", pttl(rest))
			}
			return nil
		})
	},
}

// clockBusy is the least that must be left of a lease of longLease before a clock jumps: it did not end by itself.
const clockBusy = longLease / 2

// leaseInRedis applies to locks that are one key of one Redis, and that expire.
func leaseInRedis(s scenario.Strategy) string {
	if s.Claim.HolderCrash == "blocks-forever" {
		return "its lock does not expire"
	}
	return keyInOneRedis(s)
}

// secondHolderClaim is what follows if a lock is granted twice: only the store can tell the two holders apart.
func secondHolderClaim(s scenario.Strategy) Claim {
	if s.Claim.LateWrite == "refused" {
		return claim("two hold the lock, and the store refuses the older token", report.Safe)
	}
	return claim("two hold the lock", report.Unsafe)
}

// overtake has a fault strike while the proxy holds A's write, and B buy before that write arrives.
func (s *Stage) overtake(ctx context.Context, strike func(context.Context) error) error {
	a, err := s.holdWrite(ctx, patientTimeout)
	if err != nil {
		return err
	}
	defer a.write.Release()
	if err := strike(ctx); err != nil {
		return err
	}
	return s.buyBeforeWrite(ctx, a)
}

// jump lets the clocks of servers jump, once for all cells.
func (s *Stage) jump(ctx context.Context, what string, ahead time.Duration, of ...*clockedRedis) error {
	return s.Together(ctx, what, func(ctx context.Context) error {
		for _, r := range of {
			if err := r.setClock(ctx, ahead); err != nil {
				return err
			}
		}
		return nil
	})
}

// deployClocked deploys on a Redis with a clock of its own.
func deployClocked(ctx context.Context, l *Lab, lease time.Duration) (*Deployment, error) {
	if err := l.sparesRedis(); err != nil {
		return nil, err
	}
	started, stop, err := startClocked(ctx, 1)
	at := l.Topology.Addresses()
	if err == nil {
		at.Redis, at.RedisReplica = []string{started[0].Addr}, false
	}
	d, err := l.deployOn(ctx, at, stop, err, withLease(lease)...)
	if err == nil {
		d.clocked = started
	}
	return d, err
}

// clockJumpsBack is the story of a lease that ends too late.
var clockJumpsBack = Scenario{
	Name:    "clock-jumps/back",
	Title:   "A holder dies, and the clock of Redis is set back by an hour.",
	Applies: leaseInRedis,
	Claim: func(scenario.Strategy) Claim {
		return claim("blocked until the clock has caught up", report.Unavailable)
	},
	Missing: noClocks,
	Deploy:  func(ctx context.Context, l *Lab) (*Deployment, error) { return deployClocked(ctx, l, pauseLease) },
	Play: func(ctx context.Context, s *Stage) error {
		side := s.openRedis()
		defer side.Close()
		holder, point, err := s.park(ctx, order{client: "A", at: s.Victim})
		if err != nil {
			return err
		}
		// The victim first: a renewal would set the end of the lease by the new clock.
		err = s.Together(ctx, "the victim is killed, and the clock of Redis is set back by an hour",
			func(ctx context.Context) error {
				if err := s.Victim.Kill(); err != nil {
					return err
				}
				return s.clocked[0].setClock(ctx, -clockJump)
			})
		if err != nil {
			return err
		}
		struck := time.Now()
		if err := s.proveStuck(ctx, side, point); err != nil {
			return err
		}
		if err := holder.wait(); err != nil {
			return err
		}
		// Long enough to see that the lock does not end with its lease.
		b := order{client: "B", at: s.Survivor, count: 2}
		sold, err := s.tryToBuy(ctx, b, struck, pauseLease+time.Second)
		if err != nil || sold {
			return err
		}
		s.giveUp(struck)
		if err := s.jump(ctx, "the clock of Redis is set right", 0, s.clocked[0]); err != nil {
			return err
		}
		_, err = s.send(ctx, order{client: "C", at: s.Survivor})
		return err
	},
}

// proveStuck proves that the lock of a dead holder lasts longer than its lease.
func (s *Stage) proveStuck(ctx context.Context, side *redis.Client, point string) error {
	rest, err := side.PTTL(ctx, s.lockKey()).Result()
	switch {
	case err != nil:
		return err
	case rest < clockJump:
		return fmt.Errorf("the lock of client A had ended before the clock was set back: its PTTL is %s", pttl(rest))
	}
	s.Provef("A was at %s; TIME is an hour behind, and the PTTL of A's lock of %v is %s", point, pauseLease, pttl(rest))
	return nil
}

// redlockClockJumps is the story of a majority whose clocks are wrong.
var redlockClockJumps = Scenario{
	Name:    "redlock-clock-jumps",
	Title:   "The clocks of two of three masters jump ahead by an hour while a holder's write is on its way.",
	Applies: only("lock-redlock"),
	Claim:   secondHolderClaim,
	Missing: noClocks,
	Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
		started, stop, err := startClocked(ctx, 3)
		at := l.Topology.Addresses()
		at.Redlock = nil
		for _, r := range started {
			at.Redlock = append(at.Redlock, r.Addr)
		}
		d, err := l.deployOn(ctx, at, stop, err, withLease(longLease)...)
		if err == nil {
			d.clocked = started
		}
		return d, err
	},
	Play: func(ctx context.Context, s *Stage) error {
		return s.overtake(ctx, func(ctx context.Context) error {
			before, err := s.votes(ctx)
			if err != nil {
				return err
			}
			what := "the clocks of masters 1 and 2 jump ahead by an hour"
			if err := s.jump(ctx, what, clockJump, s.clocked[:2]...); err != nil {
				return err
			}
			after, err := s.votes(ctx)
			if err != nil {
				return err
			}
			if len(before) == 3 && len(after) == 1 && after[3] > clockBusy {
				s.Provef("TIME is an hour ahead on masters 1 and 2, and A's votes there are gone; on master 3, the PTTL of "+
					"A's vote is %s", pttl(after[3]))
			}
			return nil
		})
	},
}
