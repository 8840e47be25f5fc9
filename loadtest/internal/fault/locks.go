package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
)

// lockPTTL is how long the item's lock lasts on a server of Redis, as PTTL tells it.
func (s *Stage) lockPTTL(at *servers.Redis) pttl { return s.pttlAt(openRedis(at.Addr)) }

// keyPTTL is lockPTTL for the Redis of the deployment.
func (s *Stage) keyPTTL() pttl { return s.pttlAt(s.openRedis()) }

func (s *Stage) pttlAt(client *redis.Client) pttl {
	defer client.Close()
	rest, err := client.PTTL(s.ctx, s.LockKey()).Result()
	s.check(err)
	return pttl(rest)
}

// pttl is how long a key lasts, as Redis tells it: a time, or -1 ns if the key does not expire, or noKey.
type pttl time.Duration

// noKey is the PTTL of a key that does not exist.
const noKey = pttl(-2)

// String formats it as Redis does: milliseconds, or -1, or -2.
func (p pttl) String() string {
	if p < 0 {
		return strconv.Itoa(int(p))
	}
	return strconv.FormatInt(time.Duration(p).Milliseconds(), 10)
}

// deleteLock deletes the item's lock, as an operator does who takes its holder for dead.
func (s *Stage) deleteLock() {
	side := s.openRedis()
	defer side.Close()
	deleted, err := side.Del(s.ctx, s.LockKey()).Result()
	s.check(err)
	s.requiref(deleted == 1, "the lock %s is not in Redis", s.LockKey())
	s.Stepf("an operator deletes the lock %s", s.LockKey())
}

// awaitRenewal waits until the lease of the item's lock starts anew.
func (s *Stage) awaitRenewal() {
	last := noKey
	s.eventually("the lock is renewed", func() bool {
		rest := s.keyPTTL()
		renewed := last > 0 && rest > last
		if renewed {
			s.Stepf("the lock is renewed: its PTTL rises from %s to %s ms", last, rest)
		}
		last = rest
		return renewed
	})
}

// votes returns what is left of each vote for the item's lock, by the number of the master from 1. Masters that are
// down are left out.
func (s *Stage) votes() map[int]pttl {
	votes := map[int]pttl{}
	for i, address := range s.Addresses.Redlock {
		if i < len(s.masters) && s.masters[i].Err() != nil {
			continue
		}
		if rest := s.pttlAt(openRedis(address)); rest > 0 {
			votes[i+1] = rest
		}
	}
	return votes
}

// voters formats the numbers of the masters that have voted, as "{1, 2}".
func voters(votes map[int]pttl) string {
	numbers := fmt.Sprint(slices.Sorted(maps.Keys(votes)))
	return "{" + strings.Trim(strings.ReplaceAll(numbers, " ", ", "), "[]") + "}"
}

// toMasters does something to the masters with the given numbers, from 1.
func (s *Stage) toMasters(what string, do func(context.Context, *servers.Redis) error, numbers ...int) {
	s.strike(what, func(ctx context.Context) error {
		var errs []error
		for _, n := range numbers {
			errs = append(errs, do(ctx, s.masters[n-1]))
		}
		return errors.Join(errs...)
	})
}

// killMasters kills masters.
func (s *Stage) killMasters(what string, numbers ...int) {
	s.toMasters(what, func(_ context.Context, r *servers.Redis) error { r.Kill(); return nil }, numbers...)
}

// startMasters starts masters anew, with what they have on disk.
func (s *Stage) startMasters(what string, numbers ...int) {
	s.toMasters(what, func(ctx context.Context, r *servers.Redis) error { return r.Restart(ctx) }, numbers...)
}

// jump lets the clock of Redis jump, once for all cells.
func (s *Stage) jump(what string, ahead time.Duration) {
	s.strike(what, func(ctx context.Context) error { return s.redis.master.SetClock(ctx, ahead) })
}

// ghostPatience is how long the next buyer tries: long enough to see that a lock does not end with a lease.
const ghostPatience = 2*lease + time.Second

// clockJump is how far a clock jumps. It exceeds every lease.
const clockJump = time.Hour

// busyLease is the least that must be left of a lease before a clock jumps: it did not end by itself.
func (s *Stage) busyLease() pttl { return pttl(s.On.Lease / 2) }

// replicaPromoted is what redisServers.failOver does.
const replicaPromoted = "the master was killed, and its Redis replica was promoted"

// cutReplication has everything swallowed between the master and its Redis replica.
func (s *Stage) cutReplication() {
	s.strike("the proxy between the master and its Redis replica begins to swallow",
		func(context.Context) error { s.redis.link.BlackHole(); return nil })
}
