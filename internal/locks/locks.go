// Package locks holds distributed locks behind one small contract.
package locks

import (
	"context"
	"errors"
)

var (
	// ErrNotAcquired says that a lock was not granted. It is joined with its cause: errors.Is finds
	// context.DeadlineExceeded, context.Canceled or the server's error beside it.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLeaseLost says that a lock can no longer be guaranteed: its lease ran out or another holds it.
	ErrLeaseLost = errors.New("lease lost")
)

// Locker grants one holder at a time for a key.
type Locker interface {
	// Lock waits until key is held, ctx ends, or the lock service fails.
	Lock(ctx context.Context, key string) (*Lease, error)
}
