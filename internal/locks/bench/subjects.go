package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// A subject is a lock that is compared.
type subject struct {
	Name     string
	Settings string // where they are not what one gets by asking for nothing
	Library  bool   // of others
	open     func(addr string, count *requests) (*opened, error)
}

// opened is a lock of one process.
type opened struct {
	// lock waits until key is held. The one who calls unlock waits until it is given back.
	lock  func(ctx context.Context, key string) (unlock func() error, err error)
	close func() error
}

var errLost = errors.New("lock lost")

const (
	redisQueue = "redis-queue"
	lease      = 30 * time.Second // the default of this repository's locks, also given to redislock, which has none
)

// The locks. The libraries are set as their README or reference advises for one Redis and for waiting as long as it takes:
//
//   - redsync has its own expiry (8 s) and pause between two tries (50 to 250 ms), and as many tries as it takes. It offers no
//     other way to wait long.
//   - redislock has no default; its reference recommends an exponential pause from 16 ms. Its examples pause for 100 and
//     500 ms. 64 ms at most serves everybody at about the same rate: with more, contenders starve, and with 16 ms always,
//     a lock takes twice as many commands.
//   - rueidislock has its defaults (validity 5 s, renewal at half of that) but for what its README says of one Redis and of
//     Redis from 7.0.5: KeyMajority 1 and NoLoopTracking. Its client pipelines by itself.
//
// The locks of this repository, redsync and redislock share go-redis with the same options.
var subjects = []subject{
	{redisQueue, "", false, ours(func(c redis.UniversalClient) locks.Locker { return locks.NewRedisQueue(c, locks.Options{}) })},
	{"redis-pubsub", "", false, ours(func(c redis.UniversalClient) locks.Locker { return locks.NewRedisPubSub(c, locks.Options{}) })},
	{"redis-lua", "poll 50 ms", false, ours(func(c redis.UniversalClient) locks.Locker { return locks.NewRedisLua(c, locks.Options{}) })},
	{"redsync", "v4.18, tries without limit", true, openRedsync},
	{"redislock", "v0.9, ExponentialBackoff(16 ms, 64 ms)", true, openRedislock},
	{"rueidislock", "v1.0.79, KeyMajority 1, NoLoopTracking", true, openRueidislock},
}

func subjectNamed(name string) (subject, error) {
	for _, s := range subjects {
		if s.Name == name {
			return s, nil
		}
	}
	return subject{}, fmt.Errorf("no lock is named %q", name)
}

// newClient makes a client with go-redis's defaults, but for what locks need: a command that was sent is not sent again, and a
// context's deadline counts.
func newClient(addr string, count *requests) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                  addr,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return count.dial(ctx, &net.Dialer{}, addr)
		},
	})
}

func ours(make func(redis.UniversalClient) locks.Locker) func(string, *requests) (*opened, error) {
	return func(addr string, count *requests) (*opened, error) {
		client := newClient(addr, count)
		locker := make(client)
		lock := func(ctx context.Context, key string) (func() error, error) {
			lease, err := locker.Lock(ctx, key)
			if err != nil {
				return nil, err
			}
			return lease.Unlock, nil
		}
		closeAll := func() error {
			if locker, ok := locker.(io.Closer); ok {
				if err := locker.Close(); err != nil {
					return err
				}
			}
			return client.Close()
		}
		return &opened{lock, closeAll}, nil
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
	return &opened{lock, client.Close}, nil
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
	return &opened{lock, client.Close}, nil
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
	return &opened{lock, func() error { locker.Close(); return nil }}, nil
}
