package locks

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/release.lua
var releaseLua string

var releaseScript = redis.NewScript(releaseLua)

// RedisLua is the lock of the Redis manual (SET key owner NX PX lease), released by a script that checks the owner.
//
// What it adds: a holder deletes its own lock only, since the check and the deletion are one step.
//
// What breaks: it waits by polling, without any order among the waiters. It is not re-entrant. The lease can run out
// while the work goes on; the lease's context says so, but a stopped process does not listen. A request that gives up while
// Redis is silent may leave the lock behind, if its SET is carried out only after the deletion that was sent to undo it.
// It lives and dies with one Redis.
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
	for {
		sent := time.Now()
		err := l.client.SetArgs(ctx, key, owner, redis.SetArgs{Mode: "NX", TTL: l.options.Lease}).Err()
		switch {
		case err == nil:
			return newLease(ctx, l.options.guaranteed(sent), 0, func(ctx context.Context) error { return l.unlock(ctx, key, owner) }), nil
		case !errors.Is(err, redis.Nil):
			// The reply is missing, not the effect: the lock may be ours without our knowing.
			takeBack(ctx, l.options.Lease, func(ctx context.Context) error {
				_, err := l.delete(ctx, key, owner)
				return err
			})
			return nil, notAcquired(key, errors.Join(ended(ctx), err))
		}
		if err := sleep(ctx, jitter(l.options.Poll)); err != nil {
			return nil, notAcquired(key, err)
		}
	}
}

func (l *RedisLua) unlock(ctx context.Context, key, owner string) error {
	switch ours, err := l.delete(ctx, key, owner); {
	case err != nil:
		return fmt.Errorf("unlock %s: %w", key, err)
	case !ours:
		return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
	}
	return nil
}

// delete deletes the lock if it is the owner's.
func (l *RedisLua) delete(ctx context.Context, key, owner string) (ours bool, err error) {
	deleted, err := releaseScript.Run(ctx, l.client, []string{key}, owner).Int()
	return deleted == 1, err
}

// jitter spreads a pause over half to one and a half of d, lest waiters that came together keep coming together.
func jitter(d time.Duration) time.Duration { return d/2 + mathrand.N(d) }
