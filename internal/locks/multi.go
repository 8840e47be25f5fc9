package locks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Multi is one lock made of several: a key is held where every one of them granted it. Redisson calls it MultiLock.
//
// It takes them one after the other, in their order, under the context of the one before: losing one ends the wait for
// the next. Where one is not granted, those that are held are given back, in reverse order. All who share the locks must
// list them in the same order, or they wait for each other.
//
// What it adds: the way from one lock service to another. While some replicas still know the old one only and others
// already both, those that take both exclude either.
//
// What breaks: it is as slow as all of its locks together, and as available as the least of them: one that is down stops
// all work. It is no safer than the safest of them. A crash in the middle leaves the first of them held until its
// lease ends. TestMultiTakesAllOrNone and TestMultiEndsWithTheFirstMemberThatIsLost show what it promises.
type Multi []Locker

// Lock implements Locker. The lease ends as soon as one of its members can no longer be guaranteed; its deadline is the
// earliest of theirs, and moves as they are renewed. Its token is that of the first member that mints tokens.
func (m Multi) Lock(ctx context.Context, key string) (*Lease, error) {
	if len(m) == 0 {
		return nil, notAcquired(key, errors.New("a Multi of no locks excludes nobody"))
	}
	members, err := lockEach(ctx, len(m), func(ctx context.Context, i int) (*Lease, error) { return m[i].Lock(ctx, key) })
	if err != nil {
		return nil, err
	}
	minted := slices.IndexFunc(members, func(member *Lease) bool { return member.token != 0 })
	if minted < 0 {
		return together(ctx, members, 0), nil
	}
	return together(ctx, members, members[minted].token), nil
}

// Close closes the members that work in the background.
func (m Multi) Close() error {
	var errs []error
	for _, member := range m {
		if closer, ok := member.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

// Leases are those of several keys, held together. The embedded Lease stands for all of them: it ends as soon as one can
// no longer be guaranteed, its deadline is the earliest of theirs, and Unlock and Abandon are all of theirs. It has no
// token: each key has its own.
type Leases struct {
	*Lease
	ByKey map[string]*Lease // for Token; they are given back together
}

// LockAll takes all of the keys or none. It takes each of them once and in ascending order, whatever the caller's: two that
// want the same keys cannot each hold what the other waits for. Where one is not granted, those held are given back, in
// reverse order, and the error is ErrNotAcquired joined with its cause.
func LockAll(ctx context.Context, l Locker, keys ...string) (Leases, error) {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	members, err := lockEach(ctx, len(keys), func(ctx context.Context, i int) (*Lease, error) { return l.Lock(ctx, keys[i]) })
	if err != nil {
		return Leases{}, err
	}
	byKey := make(map[string]*Lease, len(keys))
	for i, key := range keys {
		byKey[key] = members[i]
	}
	return Leases{together(ctx, members, 0), byKey}, nil
}

// lockEach takes n locks or none. Each is taken under the lease's context of the one before: the last context ends with
// any of the leases.
func lockEach(ctx context.Context, n int, lock func(context.Context, int) (*Lease, error)) ([]*Lease, error) {
	var members []*Lease
	for i := range n {
		lease, err := lock(ctx, i)
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, ErrLeaseLost) {
				err = fmt.Errorf("%w: %w of a lock taken before", err, cause)
			}
			return nil, errors.Join(err, unlockEach(members))
		}
		members = append(members, lease)
		ctx = lease.Context()
	}
	return members, nil
}

// unlockEach gives back every lock, the last taken first.
func unlockEach(members []*Lease) error {
	var errs []error
	for _, member := range slices.Backward(members) {
		errs = append(errs, member.Unlock())
	}
	return errors.Join(errs...)
}

// together makes one lease of several that were taken by lockEach.
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
