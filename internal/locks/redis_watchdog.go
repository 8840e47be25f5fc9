package locks

import (
	"context"
	"crypto/rand"

	"github.com/redis/go-redis/v9"
)

// RedisWatchdog is RedisLua with what Redisson calls a watchdog: while the lock is held, its lease is renewed in the
// background, by default every third of a lease.
//
// What it adds: the work may take longer than the lease, which need only outlast the pause between two renewals. So the
// lease can be short, and a crashed holder blocks the others for less time.
//
// What still breaks:
//
//   - A process that is stopped (by SIGSTOP, a long garbage collection, a migration of its machine) or cut off from
//     Redis does not renew. Its lease ends, and it may go on working when it wakes up
//     (TestRedisWatchdogLosesItsLeaseWhenItIsPaused). See RedisFenced.
//   - Waiters poll: they notice a release late (TestRedisWatchdogSleepsThroughARelease), and polling more often loads
//     Redis. See RedisPubSub.
//   - It is not re-entrant.
type RedisWatchdog struct{ redisLock }

// NewRedisWatchdog makes the lock on one Redis. The client should not retry (MaxRetries -1): see NewRedisOwner.
func NewRedisWatchdog(client redis.UniversalClient, options Options) *RedisWatchdog {
	return &RedisWatchdog{newRedisLock(client, options)}
}

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost, even after ctx has ended.
func (l *RedisWatchdog) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	release := l.deleteOwned(key, owner)
	sent, err := l.pollAs(ctx, key, owner, release.undo)
	if err != nil {
		return nil, err
	}
	lease := newLease(ctx, l.options.guaranteed(sent), 0, l.unlock(key, release))
	l.keepAlive(lease, key, owner)
	return lease, nil
}
