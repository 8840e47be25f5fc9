package locks

import (
	"context"
	"crypto/rand"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/fenced_acquire.lua
var fencedAcquireLua string

var fencedAcquireScript = redis.NewScript(fencedAcquireLua)

// RedisFenced is RedisWatchdog with a fencing token: a number that is greater than that of every earlier grant
// (Kleppmann, "How to do distributed locking", 2016). The holder writes it with the stock, and the store refuses a
// write once a newer token was written. Tokens do not depend on how waiters wait: this lock polls, as the simplest lock
// with renewal does.
//
// What it adds: a holder that was paused past its lease does no harm when it wakes up and writes. Its token is older
// than the next holder's (TestRedisFencedPausedHolderHasAnOlderToken), and the store refuses the write.
//
// What still breaks: nothing under a pause, if the store checks the token and what the holder has read; a check of the
// token alone is not enough (docs/locks.md), and the lock alone protects nothing. Waiters still poll, in no order. The
// lock depends on a single Redis: if a failover or a restart loses the last seconds, two clients hold the lock, but the
// later one has the greater token as long as the servers' clocks agree. RedisQueue has tokens, order and notifications.
//
// Tokens are times, and Redis keeps the last one of each key for a day after its grant. So tokens rise unless the clock
// is set back by more than a day (TestRedisFencedTokensRiseWhenTheClockIsSetBack), and no key stays in Redis for ever.
type RedisFenced struct{ redisLock }

// NewRedisFenced makes the lock on one Redis.
func NewRedisFenced(client redis.UniversalClient, options Options) *RedisFenced {
	return &RedisFenced{newRedisLock(client, options)}
}

// Lock implements Locker. The lease has a token, and is renewed until it is unlocked, abandoned or lost, even after
// ctx has ended.
func (l *RedisFenced) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	keys := []string{key, sibling(key, ":token")}
	var token uint64
	ask := func() (granted bool, err error) {
		token, err = fencedAcquireScript.Run(ctx, l.client, keys, owner, l.options.Lease.Milliseconds()).Uint64()
		return token > 0, err
	}
	release := l.deleteOwned(key, owner)
	sent, err := l.await(ctx, key, request{ask: ask, undo: release.undo, wait: l.options.poll})
	if err != nil {
		return nil, err
	}
	lease := newLease(ctx, l.options.guaranteed(sent), token, l.unlock(key, release))
	l.keepAlive(lease, key, owner)
	return lease, nil
}
