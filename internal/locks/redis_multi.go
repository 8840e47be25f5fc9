package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// RedisMulti is RedisWatchdog on several independent Redis masters at once: the caller holds a key when every master
// has granted it. Redisson does this with a MultiLock.
//
// It asks the masters one after the other. If one refuses, it gives back what the others granted, and tries again after
// a pause. So callers do not deadlock, whatever their order of masters. Multi combines any locks; this one needs one
// owner and one renewal.
//
// What it adds: a second holder needs a grant of every master, so it is not enough that one of them loses its data, as
// it is with a lock on one Redis (TestRedisMultiOutlivesTheDataOfOneMaster).
//
// What still breaks: one master that is down stops all work, where Redlock goes on with a majority
// (TestRedisMultiNeedsEveryMaster). A holder that was stopped past its lease can still write, as with RedisWatchdog.
// Waiters poll, in no order. A lock is as slow as all masters together.
type RedisMulti struct {
	redisMasters
	options Options
}

// NewRedisMulti makes the lock on at least two independent masters. The clients should not retry (MaxRetries -1): see
// NewRedisOwner.
func NewRedisMulti(masters []redis.UniversalClient, options Options) (*RedisMulti, error) {
	if len(masters) < 2 {
		return nil, fmt.Errorf("a lock on several masters needs at least 2: got %d", len(masters))
	}
	return &RedisMulti{newRedisMasters(masters, options), options.withDefaults()}, nil
}

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost, even after ctx has ended.
func (l *RedisMulti) Lock(ctx context.Context, key string) (*Lease, error) {
	var owner string
	ask := func() (granted bool, err error) {
		// Each try has an owner of its own, because the last one may still be being released in the background.
		owner = rand.Text()
		return l.try(ctx, key, owner)
	}
	sent, err := l.redisMasters[0].await(ctx, key, request{ask: ask, wait: l.options.poll})
	if err != nil {
		return nil, err
	}
	held := owner
	lease := newLease(ctx, l.options.guaranteed(sent), 0, func(ctx context.Context) error {
		return l.onEach(func(master redisLock) error { return master.unlock(key, master.deleteOwned(key, held))(ctx) })
	})
	lease.keepAlive(l.options, func(ctx context.Context) error {
		return l.onEach(func(master redisLock) error { return master.renew(ctx, key, held) })
	})
	return lease, nil
}

// try asks one master after the other. It gives back what it was granted unless all have granted it.
func (l *RedisMulti) try(ctx context.Context, key, owner string) (granted bool, err error) {
	for _, master := range l.redisMasters {
		if err := master.undos.full(); err != nil {
			return false, err
		}
	}
	for i, master := range l.redisMasters {
		if granted, err = setNX(ctx, master.client, key, owner, l.options.Lease); granted {
			continue
		}
		mine := l.redisMasters[:i]
		if err != nil && !notDone(master.client, err) {
			mine = l.redisMasters[:i+1]
		}
		for _, master := range slices.Backward(mine) {
			master.undos.takeBack(ctx, master.deleteOwned(key, owner).undo)
		}
		return false, err
	}
	return true, nil
}

// onEach calls do for all masters at the same time, and joins the errors. Any master that has lost the key makes it
// ErrLeaseLost, even if others do not answer.
func (l *RedisMulti) onEach(do func(redisLock) error) error {
	errs := make([]error, len(l.redisMasters))
	var masters sync.WaitGroup
	for i, master := range l.redisMasters {
		masters.Go(func() { errs[i] = do(master) })
	}
	masters.Wait()
	return errors.Join(errs...)
}
