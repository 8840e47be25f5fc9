package locks

import (
	"context"
	"crypto/rand"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/release.lua
var releaseLua string

var releaseScript = redis.NewScript(releaseLua)

// RedisLua is the lock of the Redis manual (SET key owner NX PX lease), released by a script that checks the owner.
//
// What it adds: a holder deletes its own lock only, since the check and the deletion are one step
// (TestRedisLuaChecksAndDeletesInOneStep).
//
// What breaks: it is not re-entrant: a holder that asks again waits for itself (TestRedisLuaWaitsForItself), see
// RedisReentrant. The lease can run out while the work goes on (TestRedisLuaLosesItsLeaseDuringWork), see RedisWatchdog; the
// lease's context says so, but a stopped process does not listen. It waits by polling, without any order among the waiters.
// A request that gives up while Redis is silent may leave the lock behind, if its SET is carried out only after the deletion
// that was sent to undo it. It lives and dies with one Redis.
type RedisLua struct {
	client  redis.UniversalClient
	options Options
}

// NewRedisLua makes the lock on one Redis. The client should not retry by itself (MaxRetries -1): a retried SET NX whose
// first reply was lost is refused by its own first try.
func NewRedisLua(client redis.UniversalClient, options Options) *RedisLua {
	return &RedisLua{client, options.withDefaults()}
}

// Lock implements Locker.
func (l *RedisLua) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	ask := func() (bool, error) { return setNX(ctx, l.client, key, owner, l.options.Lease) }
	release := deleteOwned(l.client, key, owner)
	sent, err := poll(ctx, key, l.options, ask, release.undo)
	if err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, release.unlock(key)), nil
}

// deleteOwned deletes the lock if it is the owner's.
func deleteOwned(client redis.UniversalClient, key, owner string) giveBack {
	return func(ctx context.Context) (ours bool, err error) {
		deleted, err := releaseScript.Run(ctx, client, []string{key}, owner).Int()
		return deleted == 1, err
	}
}
