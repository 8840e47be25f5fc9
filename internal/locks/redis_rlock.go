package locks

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// RedisRLock is RedisPubSub with a queue in each process, after Redisson's RLock: of the callers of a process that want
// a key, only the first asks Redis and waits there. It is re-entrant: see Reentrant.
//
// What it adds: a release wakes one waiter of each process, not all of them (TestRedisRLockWakesOneWaiterPerProcess),
// and those of one process are granted the lock in their order (TestRedisRLockGrantsInOrderWithinAProcess).
//
// What still breaks: processes are granted it in no order. One that has released the lock may be granted it again and
// again while others wait. RedisFair makes them queue. As with RedisWatchdog, a holder that was stopped past its lease
// can still write.
type RedisRLock struct{ reentrant *Reentrant }

// NewRedisRLock makes the lock on one Redis. It does not use Options.Poll. The client should not retry (MaxRetries
// -1): see NewRedisOwner.
func NewRedisRLock(client redis.UniversalClient, options Options) *RedisRLock {
	return &RedisRLock{NewReentrant(&oneWaiter{RedisPubSub: NewRedisPubSub(client, options)})}
}

// Close ends the subscription, and stops the background retries of failed Locks and Unlocks. A lock that is not
// released by then lasts until its lease ends.
func (l *RedisRLock) Close() error { return l.reentrant.Close() }

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost, even after ctx has ended.
func (l *RedisRLock) Lock(ctx context.Context, key string) (*Lease, error) {
	return l.reentrant.Lock(ctx, key)
}

// oneWaiter is a RedisPubSub in which the callers of a process take turns: only the one whose turn it is asks Redis.
type oneWaiter struct {
	*RedisPubSub
	turns Mutex
}

// Lock implements Locker.
func (l *oneWaiter) Lock(ctx context.Context, key string) (*Lease, error) {
	turn, err := l.turns.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	lease, err := l.RedisPubSub.Lock(ctx, key)
	if err != nil {
		l.turns.exit(key, turn)
		return nil, err
	}
	// The turn ends with the release. If the lock is lost or abandoned, it ends at once: the next caller should wait for
	// it in Redis.
	endTurn := sync.OnceFunc(func() { l.turns.exit(key, turn) })
	lease.stopWatching = context.AfterFunc(lease.ctx, endTurn)
	lease.abandoned = endTurn
	release := lease.release
	lease.release = func(ctx context.Context) error {
		defer endTurn()
		return release(ctx)
	}
	return lease, nil
}
