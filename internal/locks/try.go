package locks

import (
	"context"
	"errors"
)

// ErrHeld means that a Lock under TryOnce was refused: another client holds the lock, or waits for it.
var ErrHeld = errors.New("another client holds the lock or waits for it")

type tryOnceKey struct{}

// TryOnce returns a context under which Lock does not wait for other clients. If the lock is not granted at once, Lock
// fails with ErrNotAcquired joined with ErrHeld, and leaves no waiter behind. It still waits for the answer of the lock
// service. A very short deadline would not do: it would also end that wait.
//
// A lease's context descends from the one given to Lock, so further locks taken under it are tried once too, as LockAll
// and Multi do.
func TryOnce(ctx context.Context) context.Context { return context.WithValue(ctx, tryOnceKey{}, true) }

// triesOnce reports whether a Lock under ctx must not wait.
func triesOnce(ctx context.Context) bool {
	once, _ := ctx.Value(tryOnceKey{}).(bool)
	return once
}

// mayWait returns ctx without the effect of TryOnce, for a Mutex that a Locker uses inside.
func mayWait(ctx context.Context) context.Context {
	if !triesOnce(ctx) {
		return ctx
	}
	return context.WithValue(ctx, tryOnceKey{}, false)
}
