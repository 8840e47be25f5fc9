package locks

import (
	"context"
	"crypto/rand"
	"fmt"
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
	redisMasters // to take back the vote of each
	redsync      *redsync.Redsync
	options      Options
	nodeLimit    time.Duration // bounds one command to one master
}

// NewRedlock makes the lock on an odd number of independent masters, at least three.
func NewRedlock(masters []redis.UniversalClient, options Options) (*Redlock, error) {
	if len(masters) < 3 || len(masters)%2 == 0 {
		return nil, fmt.Errorf("redlock needs an odd number of masters, at least 3: got %d", len(masters))
	}
	options = options.withDefaults()
	nodeLimit := max(min(options.Lease/20, maxNodeLimit), minNodeLimit)
	var pools []redsyncredis.Pool
	for _, master := range masters {
		pools = append(pools, goredis.NewPool(master))
	}
	return &Redlock{
		redisMasters: newRedisMasters(masters, options),
		redsync:      redsync.New(pools...),
		options:      options,
		nodeLimit:    min(nodeLimit, options.Lease/2),
	}, nil
}

// Lock implements Locker.
func (l *Redlock) Lock(ctx context.Context, key string) (*Lease, error) {
	if err := l.full(); err != nil {
		return nil, notAcquired(key, err)
	}
	owner := rand.Text()
	mutex := l.redsync.NewMutex(key,
		redsync.WithExpiry(l.options.Lease),
		redsync.WithTimeoutFactor(float64(l.nodeLimit)/float64(l.options.Lease)),
		redsync.WithGenValueFunc(func() (string, error) { return owner, nil }),
		redsync.WithValue(owner),
	)
	asked := make([]bool, len(l.redisMasters)) // may have voted for owner
	for {
		err := mutex.TryLockContext(ctx)
		if err == nil {
			release := func(ctx context.Context) error { return l.unlock(ctx, key, mutex) }
			return newLease(ctx, mutex.Until(), 0, release), nil
		}
		down := l.markAsked(asked, err)
		cause := ended(ctx)
		if cause == nil && down > len(l.redisMasters)/2 {
			cause = fmt.Errorf("%d of %d masters cannot be reached: %w", down, len(l.redisMasters), err)
		}
		switch {
		case cause != nil || !triesOnce(ctx):
		case len(masterErrors(err)) > len(l.redisMasters)/2: // did not answer
			cause = err
		default:
			cause = ErrHeld
		}
		if cause == nil {
			cause = sleep(ctx, jitter(l.options.Poll))
		}
		if cause != nil {
			// redsync undoes a failed attempt once, under the same context, and does not tell whether that succeeded.
			l.takeBack(ctx, key, owner, asked)
			return nil, notAcquired(key, cause)
		}
	}
}

// markAsked marks the masters that may have voted in an attempt that failed with err, and returns how many could not
// be connected to.
func (l *Redlock) markAsked(asked []bool, err error) (down int) {
	unasked := make([]bool, len(l.redisMasters))
	for _, failure := range masterErrors(err) {
		unasked[failure.Node] = notDone(l.redisMasters[failure.Node].client, failure.Err)
		if notConnected(failure.Err) {
			down++
		}
	}
	for i := range asked {
		asked[i] = asked[i] || !unasked[i]
	}
	return down
}

func (l *Redlock) unlock(ctx context.Context, key string, mutex *redsync.Mutex) error {
	ctx, cancel := context.WithTimeout(ctx, l.nodeLimit) // redsync bounds the request to each master only in Lock
	defer cancel()
	ok, err := mutex.UnlockContext(ctx)
	failed := masterErrors(err)
	for _, failure := range failed {
		// The other masters have released the lock. This one would keep its vote until the lease ends.
		master := l.redisMasters[failure.Node]
		if ok && master.undos.full() != nil {
			continue // the others are a majority
		}
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

// takeBack takes back the votes of the masters that were asked, all at the same time. A master whose undoer is full
// keeps its vote until the lease ends: most others are not, or Lock would have been refused.
func (l *Redlock) takeBack(ctx context.Context, key, owner string, asked []bool) {
	var masters sync.WaitGroup
	for i, master := range l.redisMasters {
		if asked[i] && master.undos.full() == nil {
			masters.Go(func() { master.undos.takeBack(ctx, master.deleteOwned(key, owner).undo) })
		}
	}
	masters.Wait()
}

// full returns an error if too much waits to be undone on a majority of the masters. A minority may be down.
func (l *Redlock) full() (err error) {
	full := 0
	for _, master := range l.redisMasters {
		if e := master.undos.full(); e != nil {
			full, err = full+1, e
		}
	}
	if full > len(l.redisMasters)/2 {
		return err
	}
	return nil
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
