package locks

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// RedisExpiry is RedisSetNX with an end: Redis itself deletes the key after the lease (SET NX PX).
//
// What it adds: a holder that crashes keeps the others out until its lease ends, not for ever
// (TestRedisExpiryEndsALockWhoseHolderCrashed). The expiry is set by the SET itself: in a command of its own (SETNX, then
// EXPIRE) it would be missing where the client dies between the two.
//
// What breaks: the lease may end before the work does. Another is then granted the lock, and the late holder, which
// deletes the key without a look at whose it is, takes the lock from him: a third one comes in
// (TestRedisExpiryLetsALateHolderDeleteAnothersLock). RedisOwner looks first.
type RedisExpiry struct {
	client  redis.UniversalClient
	options Options
}

// NewRedisExpiry makes the lock on one Redis.
func NewRedisExpiry(client redis.UniversalClient, options Options) *RedisExpiry {
	return &RedisExpiry{client, options.withDefaults()}
}

// Lock implements Locker.
func (l *RedisExpiry) Lock(ctx context.Context, key string) (*Lease, error) {
	ask := func() (bool, error) { return setNX(ctx, l.client, key, "held", l.options.Lease) }
	sent, err := poll(ctx, key, l.options, ask, nil)
	if err != nil {
		return nil, err
	}
	release := giveBack(func(ctx context.Context) (bool, error) {
		deleted, err := l.client.Del(ctx, key).Result()
		return deleted == 1, err
	})
	return newLease(ctx, l.options.guaranteed(sent), 0, release.unlock(key)), nil
}
