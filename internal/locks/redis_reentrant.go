package locks

import (
	"context"
	"crypto/rand"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/reentrant_acquire.lua
var reentrantAcquireLua string

var reentrantAcquireScript = redis.NewScript(reentrantAcquireLua)

// RedisReentrant is RedisLua for code that takes a lock which its caller may hold already. Redisson identifies the
// holder by its thread; Go has no such identity, so the context carries it: Lock under a context that descends from a
// lease's Context, for the same key of the same RedisReentrant, enters the lock again.
//
// Redis keeps a set with one random id for each hold, not the usual count of holds per owner: a release that is
// carried out twice then removes nothing but its own hold. The lock is free when the set is empty.
//
// What it adds: a holder that asks again is granted another hold at once, and the lease starts anew. The lock is free
// once the last hold is released, in any order (TestRedisReentrantIsHeldUntilItsLastHoldIsGivenBack).
//
// What still breaks: goroutines that share a lease's context share the lock; it does not exclude them from each other.
// A hold's context ends with the context under which it was requested. The lease can still end during the work
// (TestRedisReentrantLosesItsLeaseDuringWork). See RedisWatchdog.
type RedisReentrant struct{ redisLock }

// NewRedisReentrant makes the lock on one Redis.
func NewRedisReentrant(client redis.UniversalClient, options Options) *RedisReentrant {
	return &RedisReentrant{newRedisLock(client, options)}
}

// hold is one hold of a lock. A lease's context carries it under its holdKey.
type hold struct {
	id    string
	lease *Lease
	outer *hold // the hold whose context this one was requested under; nil if there was none
}

type holdKey struct {
	lock *RedisReentrant
	key  string
}

// Replies of the script.
const (
	reentrantGranted = 1
	reentrantEntered = 2
)

// Lock implements Locker.
func (l *RedisReentrant) Lock(ctx context.Context, key string) (*Lease, error) {
	inner := &hold{id: rand.Text()}
	outerID := ""
	outer, _ := ctx.Value(holdKey{l, key}).(*hold)
	if outer != nil {
		outerID = outer.id
	}
	var reply int
	ask := func() (granted bool, err error) {
		reply, err = reentrantAcquireScript.Run(ctx, l.client, []string{key},
			inner.id, l.options.Lease.Milliseconds(), outerID).Int()
		return reply >= reentrantGranted, err
	}
	id := inner.id // release must not keep inner, and with it the request
	release := releaseFunc(func(ctx context.Context) (bool, error) {
		removed, err := l.client.SRem(ctx, key, id).Result()
		return removed == 1, err
	})
	sent, err := l.await(ctx, key, request{ask: ask, undo: release.undo, wait: l.options.poll})
	if err != nil {
		return nil, err
	}
	deadline := l.options.guaranteed(sent)
	if reply == reentrantEntered { // otherwise the outer hold was lost or released
		inner.outer = outer
		for h := outer; h != nil; h = h.outer {
			h.lease.extend(deadline)
		}
	}
	inner.lease = newLease(context.WithValue(ctx, holdKey{l, key}, inner), deadline, 0, l.unlock(key, release))
	return inner.lease, nil
}
