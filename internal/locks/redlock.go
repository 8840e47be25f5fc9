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

// A command to one master is bounded by a twentieth of the lease, as redsync does by default, but within these limits: a
// stopped master must not cost every try a second, nor a master that is merely slow be given up at once.
const (
	leastNodeLimit = 100 * time.Millisecond
	mostNodeLimit  = 250 * time.Millisecond
)

// Redlock is the Redlock algorithm of the Redis documentation, by go-redsync: the lock is held where a majority of
// independent masters granted it, within the lease less the drift of the clocks.
//
// What it adds: a minority of the masters may be down.
//
// What breaks: a master that restarts without its data grants the lock again, a clock that jumps ends it early, and a
// stopped holder writes after its lease ran out: there is no token to refuse it by. It waits by polling, and contenders
// split the votes.
type Redlock struct {
	redsync   *redsync.Redsync
	masters   int
	options   Options
	nodeLimit time.Duration // bounds one command to one master
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
	options = options.withDefaults()
	nodeLimit := max(min(options.Lease/20, mostNodeLimit), leastNodeLimit)
	return &Redlock{redsync.New(pools...), len(masters), options, min(nodeLimit, options.Lease/2)}, nil
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
			return newLease(ctx, mutex.Until(), 0, func(ctx context.Context) error { return l.unlock(ctx, key, mutex) }), nil
		}
		if cause := ended(ctx); cause != nil {
			// redsync takes back a failed try under the same context, which has ended.
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
	silent := count(err, failed)
	if silent > 0 {
		// The others have let go. These would keep their votes until the lease ends.
		takeBackLater(ctx, l.options.Lease, func(ctx context.Context) error { return l.undo(ctx, mutex) })
	}
	switch {
	case ok:
		return nil
	case silent > 0:
		return fmt.Errorf("unlock %s: %w", key, err)
	default:
		return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
	}
}

// unlockAll bounds each master like a try does: redsync itself bounds only Lock.
func (l *Redlock) unlockAll(ctx context.Context, mutex *redsync.Mutex) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.nodeLimit)
	defer cancel()
	return mutex.UnlockContext(ctx)
}

// undo takes back every vote. It fails where a master did not answer; it is no error that there were no votes.
func (l *Redlock) undo(ctx context.Context, mutex *redsync.Mutex) error {
	if _, err := l.unlockAll(ctx, mutex); count(err, failed) > 0 {
		return err
	}
	return nil
}

// failed matches a master that did not answer, rather than vote for another.
func failed(*redsync.RedisError) bool { return true }

// unreachable matches a master that is down. One that is merely slow may answer the next try.
func unreachable(err *redsync.RedisError) bool {
	var dial *net.OpError
	return errors.As(err.Err, &dial) && dial.Op == "dial" || errors.Is(err.Err, redis.ErrClosed)
}

// count counts the masters' errors that match, in redsync's tree of joined errors.
func count(err error, match func(*redsync.RedisError) bool) int {
	if node, ok := err.(*redsync.RedisError); ok {
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
