package locks

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/renew.lua
	renewLua string

	releaseScript = redis.NewScript(releaseLua)
	renewScript   = redis.NewScript(renewLua)
)

// redisLock is what the locks of the Redis ladder share: how they ask for a key, wait for it, renew it and release it.
type redisLock struct {
	client  redis.UniversalClient
	options Options
}

func newRedisLock(client redis.UniversalClient, options Options) redisLock {
	return redisLock{client: client, options: options.withDefaults()}
}

// setNX sets key to value unless the key exists. The key expires after lease, or never if lease is 0.
func (l *redisLock) setNX(ctx context.Context, key, value string, lease time.Duration) (granted bool, err error) {
	err = l.client.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// lockAs polls with SET NX PX until owner holds key.
func (l *redisLock) lockAs(ctx context.Context, key, owner string, release releaseFunc) (*Lease, error) {
	ask := func() (bool, error) { return l.setNX(ctx, key, owner, l.options.Lease) }
	sent, err := l.poll(ctx, key, ask, release.undo)
	if err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, release.unlock(key)), nil
}

// poll asks until the lock is granted, and returns when the request that was granted was sent. If a request fails,
// poll calls undo: the request may have taken effect although its reply was lost. undo is nil for a lock without
// owners, which cannot tell its own grant from another's.
func (l *redisLock) poll(
	ctx context.Context, key string, ask func() (granted bool, err error), undo func(context.Context) error,
) (sent time.Time, err error) {
	for {
		sent = time.Now()
		granted, err := ask()
		switch {
		case err != nil:
			if undo != nil {
				takeBack(ctx, l.options.Lease, undo)
			}
			return sent, notAcquired(key, errors.Join(ended(ctx), err))
		case granted:
			return sent, nil
		}
		if err := sleep(ctx, jitter(l.options.Poll)); err != nil {
			return sent, notAcquired(key, err)
		}
	}
}

// jitter returns a random duration between half of d and one and a half of d, so that waiters that arrived together do
// not keep asking together.
func jitter(d time.Duration) time.Duration { return d/2 + mathrand.N(d) }

// keepAlive renews the lease of owner in the background.
func (l *redisLock) keepAlive(lease *Lease, key, owner string) {
	lease.keepAlive(l.options, func(ctx context.Context) error {
		switch renewed, err := renewScript.Run(ctx, l.client, []string{key}, owner, l.options.Lease.Milliseconds()).Int(); {
		case err != nil:
			return fmt.Errorf("renew %s: %w", key, err)
		case renewed == 0:
			return fmt.Errorf("renew %s: %w", key, ErrLeaseLost)
		}
		return nil
	})
}

// deleteAny deletes key, whoever holds it.
func (l *redisLock) deleteAny(key string) releaseFunc {
	return func(ctx context.Context) (ours bool, err error) {
		deleted, err := l.client.Del(ctx, key).Result()
		return deleted == 1, err
	}
}

// deleteOwned deletes key if owner holds it.
func (l *redisLock) deleteOwned(key, owner string) releaseFunc {
	return func(ctx context.Context) (ours bool, err error) {
		deleted, err := releaseScript.Run(ctx, l.client, []string{key}, owner).Int()
		return deleted == 1, err
	}
}

// releaseFunc releases a lock on the server and returns whether it was still the caller's.
type releaseFunc func(context.Context) (ours bool, err error)

// unlock adapts a releaseFunc to newLease.
func (release releaseFunc) unlock(key string) func(context.Context) error {
	return func(ctx context.Context) error {
		switch ours, err := release(ctx); {
		case err != nil:
			return fmt.Errorf("unlock %s: %w", key, err)
		case !ours:
			return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
		}
		return nil
	}
}

// undo adapts a releaseFunc to takeBack: it is no error if there was nothing to release.
func (release releaseFunc) undo(ctx context.Context) error {
	_, err := release(ctx)
	return err
}

// sibling names another key of the lock on key, in the same hash slot of Redis Cluster: it keeps the hash tag of key,
// or makes all of key the tag if it has none. Keys with braces that form no tag, such as a}b or {}a, have no sibling
// in their hash slot and do not work on a cluster.
func sibling(key, suffix string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 && strings.IndexByte(key[open:], '}') > 1 {
		return key + suffix
	}
	return "{" + key + "}" + suffix
}
