package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// A command to one master may take a twentieth of the lease, which is redsync's default, but within these limits: a
// stopped master must not cost each attempt a second, and a slow master must not be given up at once.
const (
	minNodeLimit = 100 * time.Millisecond
	maxNodeLimit = 250 * time.Millisecond
)

// Redlock is the Redlock algorithm of the Redis documentation, as implemented by go-redsync: a client holds the lock
// if a majority of independent masters granted it, within the lease minus the drift of the clocks.
//
// What it adds: a minority of the masters may be down.
//
// What still breaks: a master that restarts without its data grants the lock again; a clock that jumps ends it early; a
// holder that was stopped past its lease can still write, since there is no token by which the store could refuse it.
// Waiters poll, and contenders split the votes.
type Redlock struct {
	redsync   *redsync.Redsync
	masters   []redisLock // to take back the vote of each
	options   Options
	nodeLimit time.Duration // bounds one command to one master
}

// NewRedlock makes the lock on an odd number of independent masters, at least three.
func NewRedlock(masters []redis.UniversalClient, options Options) (*Redlock, error) {
	if len(masters) < 3 || len(masters)%2 == 0 {
		return nil, fmt.Errorf("redlock needs an odd number of masters, at least 3: got %d", len(masters))
	}
	options = options.withDefaults()
	nodeLimit := max(min(options.Lease/20, maxNodeLimit), minNodeLimit)
	l := &Redlock{options: options, nodeLimit: min(nodeLimit, options.Lease/2)}
	var pools []redsyncredis.Pool
	for _, master := range masters {
		pools = append(pools, goredis.NewPool(master))
		l.masters = append(l.masters, newRedisLock(master, options))
	}
	l.redsync = redsync.New(pools...)
	return l, nil
}

// Close ends what goes on in the background after a Lock or an Unlock that failed.
func (l *Redlock) Close() error {
	for _, master := range l.masters {
		master.undos.close()
	}
	return nil
}

// Lock implements Locker.
func (l *Redlock) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	mutex := l.redsync.NewMutex(key,
		redsync.WithExpiry(l.options.Lease),
		redsync.WithTimeoutFactor(float64(l.nodeLimit)/float64(l.options.Lease)),
		redsync.WithGenValueFunc(func() (string, error) { return owner, nil }),
		redsync.WithValue(owner),
	)
	for {
		err := mutex.TryLockContext(ctx)
		if err == nil {
			release := func(ctx context.Context) error { return l.unlock(ctx, key, mutex) }
			return newLease(ctx, mutex.Until(), 0, release), nil
		}
		if cause := ended(ctx); cause != nil {
			// redsync undoes a failed attempt under the same context, which has ended.
			l.takeBack(ctx, key, owner)
			return nil, notAcquired(key, cause)
		}
		if down := len(slices.DeleteFunc(masterErrors(err), mayAnswer)); down > len(l.masters)/2 {
			return nil, notAcquired(key, fmt.Errorf("%d of %d masters cannot be reached: %w", down, len(l.masters), err))
		}
		if err := sleep(ctx, jitter(l.options.Poll)); err != nil {
			return nil, notAcquired(key, err)
		}
	}
}

func (l *Redlock) unlock(ctx context.Context, key string, mutex *redsync.Mutex) error {
	ctx, cancel := context.WithTimeout(ctx, l.nodeLimit) // redsync bounds the request to each master only in Lock
	defer cancel()
	ok, err := mutex.UnlockContext(ctx)
	failed := masterErrors(err)
	for _, failure := range failed {
		// The other masters have released the lock. This one would keep its vote until the lease ends.
		master := l.masters[failure.Node]
		master.undos.takeBackLater(master.deleteOwned(key, mutex.Value()).undo)
	}
	switch {
	case ok:
		return nil
	case len(failed) > 0:
		return fmt.Errorf("unlock %s: %w", key, err)
	default:
		return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
	}
}

// takeBack takes back every vote, from all masters at the same time.
func (l *Redlock) takeBack(ctx context.Context, key, owner string) {
	var masters sync.WaitGroup
	for _, master := range l.masters {
		masters.Go(func() { master.undos.takeBack(ctx, master.deleteOwned(key, owner).undo) })
	}
	masters.Wait()
}

// mayAnswer reports whether a master that failed may answer the next attempt: it is slow, but not down.
func mayAnswer(failure *redsync.RedisError) bool {
	dial, isNet := errors.AsType[*net.OpError](failure.Err)
	down := isNet && dial.Op == "dial" || errors.Is(failure.Err, redis.ErrClosed)
	return !down
}

// masterErrors returns the errors of the masters that did not answer, in redsync's tree of joined errors. A master
// that voted for another holder has answered.
func masterErrors(err error) (failures []*redsync.RedisError) {
	if failure, ok := err.(*redsync.RedisError); ok { //nolint:errorlint // errors.As finds only the first of the tree
		return []*redsync.RedisError{failure}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			failures = append(failures, masterErrors(err)...)
		}
	}
	return failures
}
