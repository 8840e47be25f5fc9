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

// RedisFenced is RedisWatchdog with a fencing token: every grant has a number, greater than that of every grant before
// (Kleppmann, "How to do distributed locking", 2016). The holder sends it along with its writes, and the store refuses a
// write whose token is older than one that it has seen. How the waiters wait makes no difference to that, so this rung
// polls, as the simplest one that renews does.
//
// What it adds: a holder that was stopped past its lease, and writes when it wakes up, does no harm any more. Its token is
// older than the next holder's (TestRedisFencedPausedHolderHasAnOlderToken), and the store refuses the write.
//
// What breaks: nothing under a pause, as long as the store checks the token, in the write itself; the lock alone protects
// nothing. It still waits by polling, without order, and lives and dies with one Redis: where a failover or a restart loses
// the last seconds, two hold the lock, but the later one's token is still greater as long as the servers' clocks agree.
// The last token of a key stays in Redis for ever. RedisQueue brings together what the ladder has found.
type RedisFenced struct {
	client  redis.UniversalClient
	options Options
}

// NewRedisFenced makes the lock on one Redis.
func NewRedisFenced(client redis.UniversalClient, options Options) *RedisFenced {
	return &RedisFenced{client, options.withDefaults()}
}

// Lock implements Locker. The lease has a token, and is renewed until it is unlocked, abandoned or lost: also after ctx
// has ended.
func (l *RedisFenced) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	keys := []string{key, sibling(key, ":token")}
	var token uint64
	ask := func() (granted bool, err error) {
		token, err = fencedAcquireScript.Run(ctx, l.client, keys, owner, l.options.Lease.Milliseconds()).Uint64()
		return token > 0, err
	}
	release := deleteOwned(l.client, key, owner)
	sent, err := poll(ctx, key, l.options, ask, release.undo)
	if err != nil {
		return nil, err
	}
	lease := newLease(ctx, l.options.guaranteed(sent), token, release.unlock(key))
	lease.keepAlive(l.options, renewOwned(l.client, key, owner, l.options.Lease))
	return lease, nil
}
