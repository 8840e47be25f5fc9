package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Multi is one lock made of several: the caller holds a key when each of them has granted it. Redisson calls it
// MultiLock.
//
// It takes them one after the other, in order, each under the lease's context of the one before: losing one ends the
// wait for the next. If one is not granted, those that are held are released in reverse order. All users of the same
// locks must list them in the same order; otherwise they deadlock.
//
// What it adds: a migration from one lock service to another. While some replicas know only the old lock and others
// already take both, those that take both exclude all others.
//
// What still breaks: it takes as long as all of its locks together, and one lock that is down stops all work. It is
// only as safe as its safest member. A crash halfway leaves the first locks held until their leases end.
// TestMultiTakesAllOrNone and TestMultiEndsWithTheFirstMemberThatIsLost show its guarantees.
type Multi []Locker

// Lock implements Locker. The lease ends as soon as one of its members can no longer be guaranteed. Its deadline is the
// earliest of theirs, and moves as they are renewed. Its token is that of the first member that has tokens.
func (m Multi) Lock(ctx context.Context, key string) (*Lease, error) {
	if len(m) == 0 {
		return nil, notAcquired(key, errors.New("a Multi without members excludes nobody: give it at least one lock"))
	}
	members, err := lockEach(ctx, len(m), func(ctx context.Context, i int) (*Lease, error) { return m[i].Lock(ctx, key) })
	if err != nil {
		return nil, err
	}
	fenced := slices.IndexFunc(members, func(member *Lease) bool { return member.token != 0 })
	if fenced < 0 {
		return together(ctx, members, 0), nil
	}
	return together(ctx, members, members[fenced].token), nil
}

// Close closes the members that work in the background.
func (m Multi) Close() error {
	var errs []error
	for _, member := range m {
		errs = append(errs, Close(member))
	}
	return errors.Join(errs...)
}

// Leases are the leases of several keys that are held together. The embedded Lease stands for all of them: it ends as
// soon as one can no longer be guaranteed, its deadline is the earliest of theirs, and Unlock and Abandon apply to all
// of them. It has no token: each key has its own.
type Leases struct {
	*Lease
	ByKey map[string]*Lease // for their tokens; do not unlock them one by one
}

// LockAll locks all of the keys or none. It locks each key once, in ascending order whatever the caller's order: two
// callers that want the same keys cannot each hold a key that the other waits for. If a key is not granted, those that
// are held are released in reverse order, and the error is ErrNotAcquired joined with its cause.
func LockAll(ctx context.Context, l Locker, keys ...string) (Leases, error) {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	lock := func(ctx context.Context, i int) (*Lease, error) { return l.Lock(ctx, keys[i]) }
	members, err := lockEach(ctx, len(keys), lock)
	if err != nil {
		return Leases{}, err
	}
	byKey := make(map[string]*Lease, len(keys))
	for i, key := range keys {
		byKey[key] = members[i]
	}
	return Leases{Lease: together(ctx, members, 0), ByKey: byKey}, nil
}

// lockEach takes n locks or none. It takes each under the lease's context of the one before, so that the last context
// ends with any of the leases.
func lockEach(ctx context.Context, n int, lock func(context.Context, int) (*Lease, error)) ([]*Lease, error) {
	var members []*Lease
	for i := range n {
		lease, err := lock(ctx, i)
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, ErrLeaseLost) {
				err = fmt.Errorf("%w: a lock taken before it was lost: %w", err, cause)
			}
			return nil, errors.Join(err, unlockEach(members))
		}
		members = append(members, lease)
		ctx = lease.Context()
	}
	return members, nil
}

// unlockEach releases the locks in reverse order.
func unlockEach(members []*Lease) error {
	var errs []error
	for _, member := range slices.Backward(members) {
		errs = append(errs, member.Unlock())
	}
	return errors.Join(errs...)
}

// together makes one lease of those that lockEach took. It has their deadlines, and releases or abandons all of them.
func together(ctx context.Context, members []*Lease, token uint64) *Lease {
	if len(members) > 0 {
		ctx = members[len(members)-1].Context()
	}
	lease := newLease(ctx, time.Time{}, token, func(context.Context) error { return unlockEach(members) })
	lease.members = members
	lease.abandoned = func() {
		for _, member := range slices.Backward(members) {
			member.Abandon()
		}
	}
	return lease
}
