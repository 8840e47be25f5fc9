package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// nodeLimit bounds one command to one master, so that a stopped master costs a try this long and no longer.
const nodeLimit = 250 * time.Millisecond

// Redlock is the Redlock algorithm of the Redis documentation, by go-redsync: the lock is held where a majority of
// independent masters granted it, within the lease less the drift of the clocks.
//
// What it adds: a minority of the masters may be down.
//
// What breaks: a master that restarts without its data grants the lock again, a clock that jumps ends it early, and a
// stopped holder writes after its lease ran out: there is no token to refuse it by. It waits by polling, and contenders
// split the votes.
type Redlock struct {
	redsync *redsync.Redsync
	masters int
	options Options
}

// NewRedlock makes the lock over independent masters, an odd number of them, at least three.
func NewRedlock(masters []redis.UniversalClient, options Options) (*Redlock, error) {
	if len(masters) < 3 || len(masters)%2 == 0 {
		return nil, fmt.Errorf("redlock needs an odd number of masters, at least 3: got %d", len(masters))
	}
	pools := make([]redsyncredis.Pool, len(masters))
	for i, master := range masters {
		pools[i] = goredis.NewPool(master)
	}
	return &Redlock{redsync.New(pools...), len(masters), options.withDefaults()}, nil
}

// Lock implements Locker.
func (l *Redlock) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	limit := min(nodeLimit, l.options.Lease/20)
	mutex := l.redsync.NewMutex(key,
		redsync.WithExpiry(l.options.Lease),
		redsync.WithTimeoutFactor(float64(limit)/float64(l.options.Lease)),
		redsync.WithGenValueFunc(func() (string, error) { return owner, nil }),
		redsync.WithValue(owner),
	)
	for {
		err := mutex.TryLockContext(ctx)
		if err == nil {
			return newLease(ctx, mutex.Until(), 0, func(ctx context.Context) error { return l.unlock(ctx, key, mutex) }), nil
		}
		if cause := ended(ctx); cause != nil {
			// redsync takes back a failed try under the same context, which has ended.
			return nil, notAcquired(key, errors.Join(cause, l.abandon(ctx, mutex)))
		}
		if down := countNodeErrors(err); down > l.masters/2 {
			return nil, notAcquired(key, fmt.Errorf("%d of %d masters failed: %w", down, l.masters, err))
		}
		if err := sleep(ctx, jitter(l.options.Poll)); err != nil {
			return nil, notAcquired(key, err)
		}
	}
}

func (l *Redlock) unlock(ctx context.Context, key string, mutex *redsync.Mutex) error {
	ok, err := l.unlockAll(ctx, mutex)
	switch {
	case ok:
		return nil
	case countNodeErrors(err) > 0:
		return fmt.Errorf("unlock %s: %w", key, err)
	default:
		return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
	}
}

// unlockAll bounds each master like a try does: redsync itself bounds only Lock.
func (l *Redlock) unlockAll(ctx context.Context, mutex *redsync.Mutex) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	return mutex.UnlockContext(ctx)
}

// abandon takes back the votes of a try that was cut short. It is no error that there were none.
func (l *Redlock) abandon(ctx context.Context, mutex *redsync.Mutex) error {
	_, err := l.unlockAll(context.WithoutCancel(ctx), mutex)
	if countNodeErrors(err) > 0 {
		return err
	}
	return nil
}

// countNodeErrors counts the masters that failed, rather than voted for another, in redsync's tree of joined errors.
func countNodeErrors(err error) int {
	if _, ok := err.(*redsync.RedisError); ok {
		return 1
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 0
	}
	count := 0
	for _, err := range joined.Unwrap() {
		count += countNodeErrors(err)
	}
	return count
}
