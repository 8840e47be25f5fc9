package locks

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/renew.lua
var renewLua string

var renewScript = redis.NewScript(renewLua)

// RedisWatchdog is RedisLua with a watchdog, as Redisson calls it: while the lock is held, its lease is renewed in the
// background, every third of it unless the options say otherwise.
//
// What it adds: the work may take longer than the lease, which need only outlast the pause between two renewals
// (TestRedisWatchdogOutlastsItsLease). So the lease can be short, and a crashed holder keeps the others out for less long.
//
// What breaks: a process that is stopped (by SIGSTOP, a long garbage collection, a migrating machine) does not renew, nor
// does one that Redis cannot be reached from. The lease runs out, and the holder may go on with its work when it wakes up
// (TestRedisWatchdogLosesItsLeaseWhenItIsPaused); only RedisFenced has an answer to that. It waits by polling: a release is
// noticed late, and asking more often costs Redis more (TestRedisWatchdogSleepsThroughARelease), see RedisPubSub. It is not
// re-entrant, nor is any rung above it: what RedisReentrant does could be added to each.
type RedisWatchdog struct {
	client  redis.UniversalClient
	options Options
}

// NewRedisWatchdog makes the lock on one Redis. The client should not retry by itself (MaxRetries -1): a retried SET NX
// whose first reply was lost is refused by its own first try.
func NewRedisWatchdog(client redis.UniversalClient, options Options) *RedisWatchdog {
	return &RedisWatchdog{client, options.withDefaults()}
}

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost: also after ctx has ended.
func (l *RedisWatchdog) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	ask := func() (bool, error) { return setNX(ctx, l.client, key, owner, l.options.Lease) }
	release := deleteOwned(l.client, key, owner)
	sent, err := poll(ctx, key, l.options, ask, release.undo)
	if err != nil {
		return nil, err
	}
	lease := newLease(ctx, l.options.guaranteed(sent), 0, release.unlock(key))
	lease.keepAlive(l.options, renewOwned(l.client, key, owner, l.options.Lease))
	return lease, nil
}

// renewOwned counts the lease anew if the lock is the owner's, and returns ErrLeaseLost if it is not.
func renewOwned(client redis.UniversalClient, key, owner string, lease time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		switch renewed, err := renewScript.Run(ctx, client, []string{key}, owner, lease.Milliseconds()).Int(); {
		case err != nil:
			return fmt.Errorf("renew %s: %w", key, err)
		case renewed == 0:
			return fmt.Errorf("renew %s: %w", key, ErrLeaseLost)
		}
		return nil
	}
}
