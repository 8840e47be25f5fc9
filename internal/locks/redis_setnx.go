package locks

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisSetNX is the simplest lock that Redis has: whoever sets the key (SET NX) holds the lock, whoever does not asks
// again, and the holder deletes the key.
//
// What it adds: Mutex holds in one process. This lock holds for every process that asks the same Redis.
//
// What breaks: a holder that crashes never deletes the key, and nobody is granted the lock ever again (the test
// TestRedisSetNXStaysLockedAfterItsHolderCrashed). A SET whose reply was lost does the same harm without any crash: the
// key says that it is held, not by whom, so that the client cannot know whether it is its own that it should delete
// (TestRedisSetNXStaysLockedAfterALostReply). RedisExpiry gives the key an end.
type RedisSetNX struct {
	client  redis.UniversalClient
	options Options
}

// NewRedisSetNX makes the lock on one Redis. Of the options it has only Poll: its lease does not end by itself.
func NewRedisSetNX(client redis.UniversalClient, options Options) *RedisSetNX {
	return &RedisSetNX{client, options.withDefaults()}
}

// Lock implements Locker. The lease has no deadline.
func (l *RedisSetNX) Lock(ctx context.Context, key string) (*Lease, error) {
	ask := func() (bool, error) { return setNX(ctx, l.client, key, "held", 0) }
	if _, err := poll(ctx, key, l.options, ask, nil); err != nil {
		return nil, err
	}
	release := giveBack(func(ctx context.Context) (bool, error) {
		deleted, err := l.client.Del(ctx, key).Result()
		return deleted == 1, err
	})
	return newLease(ctx, time.Time{}, 0, release.unlock(key)), nil
}
