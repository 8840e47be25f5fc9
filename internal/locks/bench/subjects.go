package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"stock/internal/locks"
)

// subject is a lock that is measured.
type subject struct {
	name string
	open func(addr string, count *requests) (*opened, error)
}

// opened is a lock as one client uses it.
type opened struct {
	// lock returns once key is held, and unlock once it is released.
	lock  func(ctx context.Context, key string) (unlock func() error, err error)
	close func() error
}

var errLost = errors.New("lock lost")

// lease is the default of this repository, also used for redislock, which has none.
const lease = 30 * time.Second

// The locks. The libraries are configured as their README or reference recommends for one Redis and unlimited waiting:
//
//   - redsync has its default expiry (8 s) and pause between tries (50 to 250 ms), and unlimited tries: it offers no
//     other way to wait long.
//   - redislock has no default; its reference recommends an exponential backoff from 16 ms, its examples pause for 100
//     and 500 ms. A maximum of 64 ms serves all contenders at about the same rate: with a longer one, some starve, and
//     with a constant 16 ms, a lock takes twice as many commands.
//   - rueidislock has its defaults (validity 5 s, renewal after half of it), except for KeyMajority 1 and
//     NoLoopTracking, which its README recommends for one Redis and for Redis 7.0.5 or later. Its client pipelines by
//     itself.
//
// The locks of this repository, redsync and redislock use go-redis with the same options.
var subjects = []subject{
	{"redis-queue", ours(locks.NewRedisQueue)},
	{"redis-pubsub", ours(locks.NewRedisPubSub)},
	{"redis-rlock", ours(locks.NewRedisRLock)},
	{"redis-lua", ours(locks.NewRedisLua)},
	{"redsync", openRedsync},
	{"redislock", openRedislock},
	{"rueidislock", openRueidislock},
}

// newClient returns a client with go-redis's defaults, except for two options that locks need: commands are never sent
// twice, and the deadline of a context applies to its commands.
func newClient(addr string, count *requests) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                  addr,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return count.dial(ctx, &net.Dialer{}, addr)
		},
	})
}

// ours opens a lock of this repository with its defaults.
func ours[L locks.Locker](
	newLocker func(redis.UniversalClient, locks.Options) L,
) func(string, *requests) (*opened, error) {
	return func(addr string, count *requests) (*opened, error) {
		client := newClient(addr, count)
		locker := newLocker(client, locks.Options{})
		lock := func(ctx context.Context, key string) (func() error, error) {
			lease, err := locker.Lock(ctx, key)
			if err != nil {
				return nil, err
			}
			return lease.Unlock, nil
		}
		closeAll := func() error { return errors.Join(locks.Close(locker), client.Close()) }
		return &opened{lock: lock, close: closeAll}, nil
	}
}

func openRedsync(addr string, count *requests) (*opened, error) {
	client := newClient(addr, count)
	sync := redsync.New(goredis.NewPool(client))
	lock := func(ctx context.Context, key string) (func() error, error) {
		mutex := sync.NewMutex(key, redsync.WithTries(math.MaxInt))
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error {
			if ok, err := mutex.Unlock(); !ok {
				return fmt.Errorf("unlock %s: %w", key, errors.Join(errLost, err))
			}
			return nil
		}, nil
	}
	return &opened{lock: lock, close: client.Close}, nil
}

func openRedislock(addr string, count *requests) (*opened, error) {
	client := newClient(addr, count)
	locker := redislock.New(client)
	lock := func(ctx context.Context, key string) (func() error, error) {
		held, err := locker.Obtain(ctx, key, lease, &redislock.Options{
			RetryStrategy: redislock.ExponentialBackoff(16*time.Millisecond, 64*time.Millisecond),
		})
		if err != nil {
			return nil, err
		}
		return func() error { return held.Release(context.Background()) }, nil
	}
	return &opened{lock: lock, close: client.Close}, nil
}

func openRueidislock(addr string, count *requests) (*opened, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: []string{addr},
			DialCtxFn:   count.dialRueidis,
		},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	lock := func(ctx context.Context, key string) (func() error, error) {
		_, cancel, err := locker.WithContext(ctx, key)
		if err != nil {
			return nil, err
		}
		return func() error { cancel(); return nil }, nil
	}
	return &opened{lock: lock, close: func() error { locker.Close(); return nil }}, nil
}
