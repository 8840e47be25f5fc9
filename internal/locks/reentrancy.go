package locks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reentrant makes a lock re-entrant, for code that takes a lock which its caller may hold already. The context tells
// who holds it: a Lock under a context that descends from a lease's Context, for the same key of the same Reentrant, is
// granted at once and sends nothing to the lock service. The inner lease has the token and the deadline of the outer
// one, and ends with it. Its Unlock gives nothing back. Its Abandon abandons the lock, or only ends the inner lease if
// the lock does not end by itself.
//
// RedisReentrant does the same in Redis: there, a lock is held until its last hold is released, in any order.
//
// What still breaks: goroutines that share a lease's context share the lock; it does not exclude them from each other.
type Reentrant struct{ locker Locker }

// NewReentrant makes a lock re-entrant.
func NewReentrant(l Locker) *Reentrant { return &Reentrant{l} }

// Close closes the lock if it works in the background.
func (r *Reentrant) Close() error { return Close(r.locker) }

// outerKey is the key under which a lease's context carries its outerLease.
type outerKey struct {
	lock *Reentrant
	key  string
}

// outerLease is a lease that other leases can be entered under; nil until the lock is granted.
type outerLease struct{ *Lease }

// Lock implements Locker.
func (r *Reentrant) Lock(ctx context.Context, key string) (*Lease, error) {
	if outer, ok := ctx.Value(outerKey{r, key}).(*outerLease); ok && outer.Context().Err() == nil {
		return enter(ctx, key, outer.Lease), nil
	}
	outer := &outerLease{}
	lease, err := r.locker.Lock(context.WithValue(ctx, outerKey{r, key}, outer), key)
	if err != nil {
		return nil, err
	}
	outer.Lease = lease
	release := lease.release
	lease.release = func(ctx context.Context) error {
		lease.cancel(nil) // before the lock is free: no inner lease may outlive it
		return release(ctx)
	}
	return lease, nil
}

// enter makes a lease of a lock that is held already.
func enter(ctx context.Context, key string, outer *Lease) *Lease {
	inner := &Lease{token: outer.token, members: []*Lease{outer}}
	inner.begin(ctx, time.Time{})
	// ctx need not end with the outer lease: see context.WithoutCancel.
	stop := context.AfterFunc(outer.ctx, func() { inner.cancel(context.Cause(outer.ctx)) })
	inner.release = func(context.Context) error {
		stop()
		if errors.Is(context.Cause(outer.ctx), ErrLeaseLost) {
			return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
		}
		return nil
	}
	inner.abandoned = outer.Abandon // a write may still be on its way, so the lock must not be released
	return inner
}
