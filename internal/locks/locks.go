// Package locks holds distributed locks behind one small contract, one file per lock.
//
// A granted lock is a lease: it is held for a limited time, and its context tells the holder when the lock can no
// longer be guaranteed. A lock that does not end by itself, such as Mutex, has a lease without a deadline.
package locks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

var (
	// ErrNotAcquired means that a lock was not granted. It is joined with its cause: errors.Is also finds
	// context.DeadlineExceeded, context.Canceled, ErrHeld or the lock service's error.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLeaseLost means that a lock can no longer be guaranteed: its lease ended, or another client holds the lock.
	// It is the cause of a lease's context that ended for that reason.
	ErrLeaseLost = errors.New("lease lost")
)

// Locker grants a key to one holder at a time.
//
// A Locker that works in the background is an io.Closer too: it receives notifications, or retries what failed. Close
// it once every lock is released. The connections given to a Locker belong to the caller.
type Locker interface {
	// Lock waits until the caller holds key, ctx ends, or the lock service fails. The lease's context descends from ctx,
	// so that ending ctx ends the wait as well as the work. If Lock fails, it undoes what the service may have granted
	// without a reply, in the background if need be, and returns ErrNotAcquired joined with its cause. Under TryOnce, Lock
	// does not wait for other clients.
	Lock(ctx context.Context, key string) (*Lease, error)
}

// Close closes l if it works in the background.
func Close(l Locker) error {
	if closer, ok := l.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Options are the times of a lease lock. A zero value means the default.
type Options struct {
	Lease time.Duration // how long a lock outlives a holder that died; default 30 s
	Poll  time.Duration // pause between two attempts while another client holds the lock; default 50 ms
	Renew time.Duration // pause between two renewals of a held lock, if the lock renews; default Lease/3

	ChannelPrefix string // of the names of Redis channels, as the caller's keys may have one
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

// guaranteed returns the time until which a lease is certain to last if the server was asked for it at sent. It counts
// from before the request was sent: the server starts to count later, never earlier.
func (o Options) guaranteed(sent time.Time) time.Time { return sent.Add(o.Lease - drift(o.Lease)) }

// drift is the part of a lease that is kept back because the clocks of the client and of the server run at different
// speeds: 1 % and 2 ms, as in the Redlock page of the Redis documentation.
func drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

func notAcquired(key string, cause error) error {
	return fmt.Errorf("%w: key %s: %w", ErrNotAcquired, key, cause)
}

// ended returns ctx.Err(), but is never late: a connection that takes its deadline from ctx may time out a moment
// before the timer of ctx fires.
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
