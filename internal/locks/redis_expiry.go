package locks

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// RedisExpiry is RedisSetNX with an expiry: Redis deletes the key when the lease ends (SET NX PX).
//
// What it adds: a holder that crashes blocks the others until its lease ends, not for ever. The SET itself sets the
// expiry: with SETNX followed by EXPIRE, a client that dies between the two would leave a key without one.
//
// What still breaks:
//
//   - The lease may end before the work does. Another client is then granted the lock, and the late holder deletes it
//     without checking whose it is, so that a third one is granted it too
//     (TestRedisExpiryLetsALateHolderDeleteAnothersLock). RedisOwner checks.
//   - An Unlock that failed is not repeated, for the same reason, and blocks the others until the lease ends
//     (TestTheFirstRungsStayLockedAfterAnUnlockThatFailed).
type RedisExpiry struct{ redisLock }

// NewRedisExpiry makes the lock on one Redis.
func NewRedisExpiry(client redis.UniversalClient, options Options) *RedisExpiry {
	return &RedisExpiry{newRedisLock(client, options)}
}

// Lock implements Locker.
func (l *RedisExpiry) Lock(ctx context.Context, key string) (*Lease, error) {
	ask := func() (bool, error) { return setNX(ctx, l.client, key, "held", l.options.Lease) }
	sent, err := l.await(ctx, key, request{ask: ask, wait: l.options.poll})
	if err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, l.deleteAny(key).unlockOnce(key)), nil
}
