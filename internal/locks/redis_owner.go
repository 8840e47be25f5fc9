package locks

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/redis/go-redis/v9"
)

// RedisOwner is RedisExpiry with a name in the key: a random value that no other holder has.
//
// What it adds: a holder looks whose lock it is (GET) before it gives it back (DEL), so that a late one leaves the lock of
// the next holder alone and learns that its own is lost (TestRedisOwnerLeavesAnothersLockAlone). And a SET whose reply was
// lost can be taken back (TestRedisOwnerTakesBackWhatALostReplyGranted).
//
// What breaks: the look and the deletion are two commands. Between them the lease can end and another be granted the lock,
// which the DEL then takes from him after all (TestRedisOwnerIsTornBetweenGetAndDel). RedisLua makes them one.
type RedisOwner struct {
	client  redis.UniversalClient
	options Options
}

// NewRedisOwner makes the lock on one Redis. The client should not retry by itself (MaxRetries -1): a retried SET NX whose
// first reply was lost is refused by its own first try.
func NewRedisOwner(client redis.UniversalClient, options Options) *RedisOwner {
	return &RedisOwner{client, options.withDefaults()}
}

// Lock implements Locker.
func (l *RedisOwner) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	ask := func() (bool, error) { return setNX(ctx, l.client, key, owner, l.options.Lease) }
	release := giveBack(func(ctx context.Context) (bool, error) { return l.getAndDelete(ctx, key, owner) })
	sent, err := poll(ctx, key, l.options, ask, release.undo)
	if err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, release.unlock(key)), nil
}

func (l *RedisOwner) getAndDelete(ctx context.Context, key, owner string) (ours bool, err error) {
	holder, err := l.client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) || err == nil && holder != owner {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// Here the lease may end, and another be granted the lock.
	deleted, err := l.client.Del(ctx, key).Result()
	return deleted == 1, err
}
