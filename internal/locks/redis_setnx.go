package locks

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisSetNX is the simplest lock on Redis: the client whose SET NX creates the key holds the lock, the others ask
// again, and the holder deletes the key.
//
// What it adds: a Mutex works within one process. This lock works for all processes that use the same Redis.
//
// What still breaks: a holder that crashes never deletes the key, and nobody is granted the lock again
// (TestRedisSetNXStaysLockedAfterItsHolderCrashed). A SET whose reply was lost does the same without a crash: the key
// does not tell who holds it, so the client cannot know whether to delete it
// (TestRedisSetNXStaysLockedAfterALostReply). So does an Unlock that failed: the DEL cannot be repeated, since it may
// have been carried out, and would then delete the next holder's key
// (TestTheFirstRungsStayLockedAfterAnUnlockThatFailed). RedisExpiry lets the key expire.
type RedisSetNX struct{ redisLock }

// NewRedisSetNX makes the lock on one Redis. It uses only Options.Poll: the key does not expire.
func NewRedisSetNX(client redis.UniversalClient, options Options) *RedisSetNX {
	return &RedisSetNX{newRedisLock(client, options)}
}

// Lock implements Locker. The lease has no deadline.
func (l *RedisSetNX) Lock(ctx context.Context, key string) (*Lease, error) {
	ask := func() (bool, error) { return setNX(ctx, l.client, key, "held", 0) }
	if _, err := l.await(ctx, key, request{ask: ask, wait: l.options.poll}); err != nil {
		return nil, err
	}
	return newLease(ctx, time.Time{}, 0, l.deleteAny(key).unlockOnce(key)), nil
}
