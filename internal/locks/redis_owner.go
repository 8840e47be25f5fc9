package locks

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/redis/go-redis/v9"
)

// RedisOwner is RedisExpiry with an owner: the key's value is random and names its holder.
//
// What it adds: a holder reads the owner (GET) before it deletes the key (DEL). A late holder leaves the next holder's
// lock alone and learns that its own is lost. A SET whose reply was lost can be undone.
//
// What still breaks:
//
//   - GET and DEL are two commands. If the lease ends between them and another client is granted the lock, DEL takes it
//     from that client (TestRedisOwnerIsTornBetweenGetAndDel). RedisLua makes them one step.
//   - An Unlock that failed is not repeated, and blocks the others until the lease ends: each repetition could be torn
//     in the same way (TestTheFirstRungsStayLockedAfterAnUnlockThatFailed). Nor is the undo of a Lock whose reply was
//     lost.
type RedisOwner struct{ redisLock }

// NewRedisOwner makes the lock on one Redis. The client should not retry (MaxRetries -1): if the reply to a SET NX is
// lost, its retry finds the key set and is refused.
func NewRedisOwner(client redis.UniversalClient, options Options) *RedisOwner {
	return &RedisOwner{newRedisLock(client, options)}
}

// Lock implements Locker.
func (l *RedisOwner) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	release := l.getAndDelete(key, owner)
	undo := func(ctx context.Context) error {
		_, _ = release(ctx)
		return nil // one attempt only
	}
	sent, err := l.pollAs(ctx, key, owner, undo)
	if err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, release.unlockOnce(key)), nil
}

func (l *RedisOwner) getAndDelete(key, owner string) releaseFunc {
	return func(ctx context.Context) (ours bool, err error) {
		holder, err := l.client.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) || err == nil && holder != owner {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		// Here the lease may end, and another client be granted the lock.
		return l.deleteAny(key)(ctx)
	}
}
