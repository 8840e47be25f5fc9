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

// RedisReentrant is RedisLua for code that takes a lock which its caller may have taken already. Go has no identity of a
// goroutine that could stand for the owner, as Redisson has its thread; here the context carries it: a Lock under a context
// that descends from a lease's Context, for the same key of the same RedisReentrant, enters that lock again.
//
// What it adds: a holder that asks again is granted a further hold at once, and the lease begins anew
// (TestRedisReentrantEntersAgain). The lock is free when the last hold is given back, in whatever order
// (TestRedisReentrantIsHeldUntilItsLastHoldIsGivenBack). Each hold has an id of its own in Redis: with a mere count, a
// release that is carried out twice would give back someone else's hold.
//
// What breaks: goroutines that share a lease's context share the lock; it does not keep them apart. A hold ends no later
// than that whose context it was asked under. Still, the lease can run out while the work goes on
// (TestRedisReentrantLosesItsLeaseDuringWork), see RedisWatchdog.
type RedisReentrant struct {
	client  redis.UniversalClient
	options Options
}

// NewRedisReentrant makes the lock on one Redis.
func NewRedisReentrant(client redis.UniversalClient, options Options) *RedisReentrant {
	return &RedisReentrant{client, options.withDefaults()}
}

// hold is one of the holds of a lock. A lease's context carries it under its holdKey.
type hold struct {
	id    string
	lease *Lease
	outer *hold // that whose context this one was asked under
}

type holdKey struct {
	lock *RedisReentrant
	key  string
}

// What the script answers.
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
	var answer int
	ask := func() (granted bool, err error) {
		answer, err = reentrantAcquireScript.Run(ctx, l.client, []string{key}, inner.id, l.options.Lease.Milliseconds(), outerID).Int()
		return answer >= reentrantGranted, err
	}
	release := giveBack(func(ctx context.Context) (bool, error) {
		removed, err := l.client.SRem(ctx, key, inner.id).Result()
		return removed == 1, err
	})
	sent, err := poll(ctx, key, l.options, ask, release.undo)
	if err != nil {
		return nil, err
	}
	deadline := l.options.guaranteed(sent)
	if answer == reentrantEntered { // else the outer hold is lost, or was given back
		inner.outer = outer
		for h := outer; h != nil; h = h.outer {
			h.lease.extend(deadline)
		}
	}
	inner.lease = newLease(context.WithValue(ctx, holdKey{l, key}, inner), deadline, 0, release.unlock(key))
	return inner.lease, nil
}
