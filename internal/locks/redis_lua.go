package locks

import (
	"context"
	"crypto/rand"

	"github.com/redis/go-redis/v9"
)

// RedisLua is the lock of the Redis manual (SET key owner NX PX lease): a script checks the owner and deletes the key.
//
// What it adds: a holder can delete only its own lock, since the check and the deletion are one step
// (TestRedisLuaChecksAndDeletesInOneStep). So an Unlock that failed can be repeated until Redis answers, and an outage
// blocks the lock only as long as it lasts.
//
// What still breaks:
//
//   - It is not re-entrant: a holder that asks again waits for itself (TestRedisLuaWaitsForItself). See RedisReentrant.
//   - The lease can end during the work. The lease's context ends then, but a process that is stopped does not notice.
//     See RedisWatchdog.
//   - Waiters poll, in no order.
//   - A request that gives up while Redis does not answer may leave the lock behind, if Redis carries out its SET
//     after the deletion that was sent to undo it.
//   - The lock depends on a single Redis.
type RedisLua struct{ redisLock }

// NewRedisLua makes the lock on one Redis. The client should not retry (MaxRetries -1): see NewRedisOwner.
func NewRedisLua(client redis.UniversalClient, options Options) *RedisLua {
	return &RedisLua{newRedisLock(client, options)}
}

// Lock implements Locker.
func (l *RedisLua) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	release := l.deleteOwned(key, owner)
	sent, err := l.pollAs(ctx, key, owner, release.undo)
	if err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, l.unlock(key, release)), nil
}
