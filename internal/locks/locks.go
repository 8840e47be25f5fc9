// Package locks holds distributed locks behind one small contract, one file a lock.
//
// A lock of this package is a lease: it is granted for a time, and the holder learns from the lease's context when it can
// no longer be guaranteed. A lock that cannot end by itself (Mutex) has a lease without a deadline.
package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrNotAcquired says that a lock was not granted. It is joined with its cause: errors.Is finds
	// context.DeadlineExceeded, context.Canceled or the server's error beside it.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLeaseLost says that a lock can no longer be guaranteed: its lease ran out or another holds it.
	// It is the cause of a lease's context that ended by itself.
	ErrLeaseLost = errors.New("lease lost")
)

// Locker grants one holder at a time for a key.
//
// A Locker that works in the background, to renew leases or to hear of releases, is an io.Closer too: Close ends that, for
// callers that have given back every lock. Connections belong to whoever made the Locker.
type Locker interface {
	// Lock waits until key is held, ctx ends, or the lock service fails. The lease's context descends from ctx, so that
	// whoever ends ctx gives up the wait as well as the work. A Lock that fails takes back what the service may have granted
	// without a reply, in the background where it has to, and returns ErrNotAcquired joined with its cause.
	Lock(ctx context.Context, key string) (*Lease, error)
}

// Options are the times of a lease lock. Zero values stand for the defaults.
type Options struct {
	Lease time.Duration // how long a lock outlives a holder that died; 30 s
	Poll  time.Duration // pause between two tries while another holds the lock; 50 ms
	Renew time.Duration // pause between two renewals of a lock that is held, where it renews; a third of the lease
}

func (o Options) withDefaults() Options {
	if o.Lease <= 0 {
		o.Lease = 30 * time.Second
	}
	if o.Poll <= 0 {
		o.Poll = 50 * time.Millisecond
	}
	if o.Renew <= 0 {
		o.Renew = o.Lease / 3
	}
	return o
}

// guaranteed is until when a lease that the server was asked for at sent is certain to last. It is counted from before
// the request was sent: the server's clock for it starts later, never earlier.
func (o Options) guaranteed(sent time.Time) time.Time { return sent.Add(o.Lease - drift(o.Lease)) }

// releaseLimit bounds a release, which runs apart from the request's context: a request that was cancelled must still
// give its lock back.
const releaseLimit = 2 * time.Second

// Bounds of taking back what may have been granted without a reply.
const (
	undoLimit   = 250 * time.Millisecond // of one try
	undoPause   = 100 * time.Millisecond // after the first; each pause is twice the one before
	longestUndo = 500 * time.Millisecond // the longest pause: an outage must not end in a storm
)

// takeBack undoes a grant whose reply never came. It tries once while the caller waits, so that nothing is left behind
// once Lock has failed; where the service does not answer, it goes on in the background.
func takeBack(ctx context.Context, lease time.Duration, undo func(context.Context) error) {
	if tryUndo(ctx, undo) != nil {
		takeBackLater(ctx, lease, undo)
	}
}

// takeBackLater tries in the background until the service answers, or until the lease has ended by itself.
func takeBackLater(ctx context.Context, lease time.Duration, undo func(context.Context) error) {
	deadline := time.Now().Add(lease)
	go func() {
		for pause := undoPause; time.Now().Before(deadline); pause = min(2*pause, longestUndo) {
			time.Sleep(pause)
			if err := tryUndo(ctx, undo); err == nil || errors.Is(err, redis.ErrClosed) {
				return
			}
		}
	}()
}

func tryUndo(ctx context.Context, undo func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	return undo(ctx)
}

// drift is the part of a lease kept back because the clocks of the client and of the server run at different speeds:
// 1 % and 2 ms, as the Redlock page of the Redis documentation has it.
func drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

func notAcquired(key string, cause error) error {
	return fmt.Errorf("%w: key %s: %w", ErrNotAcquired, key, cause)
}

// ended is ctx.Err(), but never late: a connection whose deadline is the context's may time out a moment before the
// context's own timer fires.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// sleep waits for d, or returns ctx.Err() as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
