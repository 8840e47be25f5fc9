package locks

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/pubsub_acquire.lua
	pubsubAcquireLua string
	//go:embed lua/pubsub_release.lua
	pubsubReleaseLua string

	pubsubAcquireScript = redis.NewScript(pubsubAcquireLua)
	pubsubReleaseScript = redis.NewScript(pubsubReleaseLua)
)

// pubsubChannel carries the key of every lock that is released.
const pubsubChannel = "locks:redis-pubsub:released"

// recheck bounds a wait for a message. Redis delivers a message at most once: it is lost if a connection breaks, and a
// lease that ends by itself sends none.
const recheck = 2 * time.Second

// RedisPubSub is RedisWatchdog with notifications: a release publishes the key, and the clients that wait for it ask
// again. One subscription serves all waiters of a process.
//
// What it adds: a waiter learns of a release at once, and sends Redis nothing until then
// (TestRedisPubSubWakesAtARelease). A message is only a hint: a waiter also asks again when the holder's lease ends,
// every two seconds, and after the subscription was broken.
//
// What still breaks:
//
//   - A release wakes every waiter of the key, and only one is granted the lock: n waiters ask n times
//     (TestRedisPubSubWakesACrowd). RedisRLock publishes, too, but wakes one waiter of each process.
//   - Waiters are granted the lock in no order: a latecomer may overtake a client that has waited long
//     (TestRedisPubSubLetsALatecomerOvertake). With RedisFair they queue.
type RedisPubSub struct {
	redisLock
	waiters *wakeups // by key
}

// NewRedisPubSub makes the lock on one Redis. It does not use Options.Poll. The client should not retry (MaxRetries
// -1): see NewRedisOwner.
func NewRedisPubSub(client redis.UniversalClient, options Options) *RedisPubSub {
	return &RedisPubSub{newRedisLock(client, options), newWakeups(client, options.ChannelPrefix+pubsubChannel)}
}

// Close ends the subscription, and stops the background retries of failed Locks and Unlocks. A lock that is not
// released by then lasts until its lease ends.
func (l *RedisPubSub) Close() error { return errors.Join(l.redisLock.Close(), l.waiters.close()) }

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost, even after ctx has ended.
func (l *RedisPubSub) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	sent, err := l.lockAs(ctx, key, owner)
	if err != nil {
		return nil, err
	}
	return l.lease(ctx, key, owner, sent), nil
}

// lockAs waits until owner holds key, and returns when the request that was granted was sent.
func (l *RedisPubSub) lockAs(ctx context.Context, key, owner string) (sent time.Time, err error) {
	woken, leave := l.waiters.join(key)
	defer leave()
	var ttl time.Duration
	return l.await(ctx, key, request{
		ask: func() (granted bool, err error) {
			ttl, err = l.acquire(ctx, key, owner)
			return ttl == 0, err
		},
		undo: l.deleteAndPublish(key, owner).undo,
		wait: func(ctx context.Context) error { return l.waiters.wait(ctx, woken, min(ttl, recheck)) },
	})
}

// lease makes the lease of what owner was granted by a request that was sent at the given time.
func (l *RedisPubSub) lease(ctx context.Context, key, owner string, sent time.Time) *Lease {
	lease := newLease(ctx, l.options.guaranteed(sent), 0, l.unlock(key, l.deleteAndPublish(key, owner)))
	l.keepAlive(lease, key, owner)
	return lease
}

// acquire returns the time until the holder's lease ends, or 0 if the lock was granted.
func (l *RedisPubSub) acquire(ctx context.Context, key, owner string) (ttl time.Duration, err error) {
	ms, err := pubsubAcquireScript.Run(ctx, l.client, []string{key}, owner, l.options.Lease.Milliseconds()).Int64()
	return time.Duration(ms) * time.Millisecond, err
}

func (l *RedisPubSub) deleteAndPublish(key, owner string) releaseFunc {
	return func(ctx context.Context) (ours bool, err error) {
		deleted, err := pubsubReleaseScript.Run(ctx, l.client, []string{key}, owner, l.waiters.channel()).Int()
		return deleted == 1, err
	}
}
