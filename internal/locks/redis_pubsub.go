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

// pubsubChannel carries the key of every lock that was given back.
const pubsubChannel = "locks:redis-pubsub:released"

// recheck bounds a wait for a message. Redis delivers a message at most once: it is lost where a connection breaks, and a
// lease that ends by itself sends none.
const recheck = 2 * time.Second

// RedisPubSub is RedisWatchdog with a bell: the release publishes the key, and whoever waits for it asks again. One
// subscription serves all waiters of a process.
//
// What it adds: a waiter hears of a release at once, and in between leaves Redis alone (TestRedisPubSubWakesAtARelease). A
// message is a hint only: a waiter asks again too when the holder's lease ends, after two seconds, and when the
// subscription was broken.
//
// What breaks: every waiter of the key wakes, and all but one in vain: with n waiters, n questions a release
// (TestRedisPubSubWakesACrowd). There is no order among them: who comes late may overtake who has waited long
// (TestRedisPubSubLetsALatecomerOvertake). RedisFair makes a queue of the crowd.
type RedisPubSub struct {
	client   redis.UniversalClient
	options  Options
	waiters  wakeups // by key
	releases *subscription
}

// NewRedisPubSub makes the lock on one Redis. Of the options it does without Poll. The client should not retry by itself
// (MaxRetries -1): a retried SET NX whose first reply was lost is refused by its own first try.
func NewRedisPubSub(client redis.UniversalClient, options Options) *RedisPubSub {
	l := &RedisPubSub{client: client, options: options.withDefaults()}
	l.releases = newSubscription(client, pubsubChannel, l.waiters.wake, l.waiters.wakeAll)
	return l
}

// Close ends the subscription.
func (l *RedisPubSub) Close() error { return l.releases.close() }

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost: also after ctx has ended.
func (l *RedisPubSub) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	release := l.deleteAndPublish(key, owner)
	woken, leave := l.waiters.join(key)
	defer leave()
	for {
		sent := time.Now()
		ttl, err := l.acquire(ctx, key, owner)
		switch {
		case err != nil:
			takeBack(ctx, l.options.Lease, release.undo)
			return nil, notAcquired(key, errors.Join(ended(ctx), err))
		case ttl == 0:
			lease := newLease(ctx, l.options.guaranteed(sent), 0, release.unlock(key))
			lease.keepAlive(l.options, renewOwned(l.client, key, owner, l.options.Lease))
			return lease, nil
		}
		l.releases.start()
		if err := await(ctx, woken, min(ttl, recheck)); err != nil {
			return nil, notAcquired(key, err)
		}
	}
}

// acquire returns how long the holder's lease still runs, or 0 where the lock was granted.
func (l *RedisPubSub) acquire(ctx context.Context, key, owner string) (ttl time.Duration, err error) {
	ms, err := pubsubAcquireScript.Run(ctx, l.client, []string{key}, owner, l.options.Lease.Milliseconds()).Int64()
	return time.Duration(ms) * time.Millisecond, err
}

func (l *RedisPubSub) deleteAndPublish(key, owner string) giveBack {
	return func(ctx context.Context) (ours bool, err error) {
		deleted, err := pubsubReleaseScript.Run(ctx, l.client, []string{key}, owner, pubsubChannel).Int()
		return deleted == 1, err
	}
}
