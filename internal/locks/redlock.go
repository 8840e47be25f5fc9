package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
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
	masters   int
	options   Options
	nodeLimit time.Duration // bounds one command to one master
}

// NewRedlock makes the lock on an odd number of independent masters, at least three.
func NewRedlock(masters []redis.UniversalClient, options Options) (*Redlock, error) {
	if len(masters) < 3 || len(masters)%2 == 0 {
		return nil, fmt.Errorf("redlock needs an odd number of masters, at least 3: got %d", len(masters))
	}
	pools := make([]redsyncredis.Pool, len(masters))
	for i, master := range masters {
		pools[i] = goredis.NewPool(master)
	}
	options = options.withDefaults()
	nodeLimit := max(min(options.Lease/20, maxNodeLimit), minNodeLimit)
	return &Redlock{
		redsync: redsync.New(pools...), masters: len(masters), options: options, nodeLimit: min(nodeLimit, options.Lease/2),
	}, nil
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
			takeBack(ctx, l.options.Lease, func(ctx context.Context) error { return l.undo(ctx, mutex) })
			return nil, notAcquired(key, cause)
		}
		if down := count(err, unreachable); down > l.masters/2 {
			return nil, notAcquired(key, fmt.Errorf("%d of %d masters cannot be reached: %w", down, l.masters, err))
		}
		if err := sleep(ctx, jitter(l.options.Poll)); err != nil {
			return nil, notAcquired(key, err)
		}
	}
}

func (l *Redlock) unlock(ctx context.Context, key string, mutex *redsync.Mutex) error {
	ok, err := l.unlockAll(ctx, mutex)
	failed := count(err, anyError)
	if failed > 0 {
		// The other masters have released the lock. These would keep their votes until the lease ends.
		takeBackLater(ctx, l.options.Lease, func(ctx context.Context) error { return l.undo(ctx, mutex) })
	}
	switch {
	case ok:
		return nil
	case failed > 0:
		return fmt.Errorf("unlock %s: %w", key, err)
	default:
		return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
	}
}

// unlockAll bounds the request to each master: redsync does so only in Lock.
func (l *Redlock) unlockAll(ctx context.Context, mutex *redsync.Mutex) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.nodeLimit)
	defer cancel()
	return mutex.UnlockContext(ctx)
}

// undo takes back every vote. It fails if a master did not answer; it is no error if there were no votes.
func (l *Redlock) undo(ctx context.Context, mutex *redsync.Mutex) error {
	if _, err := l.unlockAll(ctx, mutex); count(err, anyError) > 0 {
		return err
	}
	return nil
}

// anyError matches every master that did not answer, as opposed to one that voted for another holder.
func anyError(*redsync.RedisError) bool { return true }

// unreachable matches a master that is down. A slow master may answer the next attempt.
func unreachable(err *redsync.RedisError) bool {
	var dial *net.OpError
	return errors.As(err.Err, &dial) && dial.Op == "dial" || errors.Is(err.Err, redis.ErrClosed)
}

// count returns how many of the masters' errors match, in redsync's tree of joined errors.
func count(err error, match func(*redsync.RedisError) bool) int {
	if node, ok := err.(*redsync.RedisError); ok { //nolint:errorlint // errors.As would find only the first of the tree
		if match(node) {
			return 1
		}
		return 0
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 0
	}
	total := 0
	for _, err := range joined.Unwrap() {
		total += count(err, match)
	}
	return total
}
