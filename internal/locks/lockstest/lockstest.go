// Package lockstest is one conformance suite for every lock of package locks.
package lockstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/locks"
)

// Subject is a lock under test.
type Subject struct {
	// New makes a client of its own, as another replica would have. All of a Subject's clients contend.
	New func(t testing.TB, options locks.Options) locks.Locker
	// Held asks the server itself whether anybody holds key.
	Held func(t testing.TB, key string) bool
	// Steal takes key from its holder on the server, as an eviction or a failover does. Nil where nothing can.
	Steal func(t testing.TB, key string)
	// Down makes a client whose server does not answer. Nil where there is no server.
	Down func(t testing.TB) locks.Locker
	// OneProcess is true for a lock whose clients do not contend with each other.
	OneProcess bool
}

// patience bounds what a test waits for: long enough for a loaded machine, and never used up by a lock that works.
const patience = 20 * time.Second

var quick = locks.Options{Lease: 30 * time.Second, Poll: time.Millisecond}

// Run runs the suite.
func Run(t *testing.T, s Subject) {
	tests := []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"grants one holder at a time", oneHolder},
		{"grants different keys side by side", differentKeys},
		{"gives up waiting when its context ends and leaves nothing behind", waitEnds},
		{"refuses a context that has ended", endedContext},
		{"unlocks once however often it is asked", unlockTwice},
		{"unlocks after the request was cancelled", unlockAfterCancel},
		{"ends the lease's context with the request and with Unlock", leaseContext},
		{"tells the holder that its lock was lost", unlockAfterLoss},
		{"ends the lease's context before another is granted the lock", leaseEndsFirst},
		{"keeps back a part of the lease for the drift of the clocks", keepsBackDrift},
		{"fails at once where the server is down", serverDown},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, s)
		})
	}
}

var keys atomic.Int64

// freshKey keeps tests that run side by side apart.
func freshKey() string { return fmt.Sprintf("lock:{%d}", keys.Add(1)) }

func lock(t testing.TB, l locks.Locker, ctx context.Context, key string) *locks.Lease {
	t.Helper()
	lease, err := l.Lock(ctx, key)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return lease
}

func unlock(t testing.TB, lease *locks.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func oneHolder(t *testing.T, s Subject) {
	const contenders, rounds = 8, 20
	clients := []locks.Locker{s.New(t, quick), s.New(t, quick)}
	if s.OneProcess {
		clients[1] = clients[0]
	}
	ctx, key := patient(t), freshKey()
	var holders atomic.Int32
	granted := 0 // guarded by the lock under test: the race detector watches too
	var wg sync.WaitGroup
	for i := range contenders {
		wg.Go(func() {
			for range rounds {
				lease, err := clients[i%2].Lock(ctx, key)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d holders at once", n)
				}
				granted++
				holders.Add(-1)
				unlock(t, lease)
			}
		})
	}
	wg.Wait()
	if granted != contenders*rounds {
		t.Errorf("%d grants, want %d", granted, contenders*rounds)
	}
	if s.Held(t, key) {
		t.Error("the lock is still held after the last Unlock")
	}
}

func differentKeys(t *testing.T, s Subject) {
	l, ctx := s.New(t, quick), patient(t)
	first := lock(t, l, ctx, freshKey())
	second := lock(t, l, ctx, freshKey())
	unlock(t, first)
	unlock(t, second)
}

func waitEnds(t *testing.T, s Subject) {
	l, key := s.New(t, quick), freshKey()
	holder := lock(t, l, patient(t), key)

	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if cause == context.Canceled {
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
		}
		_, err := l.Lock(ctx, key)
		cancel()
		if !errors.Is(err, locks.ErrNotAcquired) || !errors.Is(err, cause) {
			t.Errorf("Lock while another holds it: %v, want ErrNotAcquired joined with %v", err, cause)
		}
	}

	unlock(t, holder)
	if s.Held(t, key) {
		t.Error("a waiter that gave up holds the lock")
	}
	unlock(t, lock(t, l, patient(t), key))
}

func endedContext(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key := freshKey()
	_, err := s.New(t, quick).Lock(ctx, key)
	if !errors.Is(err, locks.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
		t.Errorf("Lock: %v, want ErrNotAcquired joined with context.Canceled", err)
	}
	if s.Held(t, key) {
		t.Error("the refused caller holds the lock")
	}
}

func unlockTwice(t *testing.T, s Subject) {
	l, ctx, key := s.New(t, quick), patient(t), freshKey()
	first := lock(t, l, ctx, key)
	unlock(t, first)
	second := lock(t, l, ctx, key)
	unlock(t, first) // must not take the lock from the second
	if !s.Held(t, key) {
		t.Error("a second Unlock gave back the lock of the next holder")
	}
	unlock(t, second)
}

func unlockAfterCancel(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(patient(t))
	key := freshKey()
	lease := lock(t, s.New(t, quick), ctx, key)
	cancel()
	unlock(t, lease)
	if s.Held(t, key) {
		t.Error("the lock of a cancelled request is still held")
	}
}

func leaseContext(t *testing.T, s Subject) {
	l := s.New(t, quick)
	ctx, cancel := context.WithCancel(patient(t))
	cancelled := lock(t, l, ctx, freshKey())
	if err := cancelled.Context().Err(); err != nil {
		t.Errorf("the context of a lock that is held has ended: %v", err)
	}
	cancel()
	<-cancelled.Context().Done()
	unlock(t, cancelled)

	unlocked := lock(t, l, patient(t), freshKey())
	unlock(t, unlocked)
	if unlocked.Context().Err() == nil {
		t.Error("the context of a lock that was given back goes on")
	}
}

func unlockAfterLoss(t *testing.T, s Subject) {
	if s.Steal == nil {
		t.Skip("nothing can take this lock from its holder")
	}
	key := freshKey()
	lease := lock(t, s.New(t, quick), patient(t), key)
	s.Steal(t, key)
	if err := lease.Unlock(); !errors.Is(err, locks.ErrLeaseLost) {
		t.Errorf("Unlock of a lost lock: %v, want ErrLeaseLost", err)
	}
}

func leaseEndsFirst(t *testing.T, s Subject) {
	if s.Steal == nil {
		t.Skip("the lease of this lock does not run out")
	}
	key, options := freshKey(), locks.Options{Lease: time.Second, Poll: time.Millisecond}
	first, second := s.New(t, options), s.New(t, options)
	for _, client := range []locks.Locker{first, second} {
		unlock(t, lock(t, client, patient(t), freshKey())) // connects, which would take its part of the lease
	}
	late := lock(t, first, patient(t), key)
	next := lock(t, second, patient(t), key)
	if cause := context.Cause(late.Context()); !errors.Is(cause, locks.ErrLeaseLost) {
		t.Errorf("another holds the lock and the first holder's context says %v, want ErrLeaseLost", cause)
	}
	if err := late.Unlock(); !errors.Is(err, locks.ErrLeaseLost) {
		t.Errorf("Unlock after the lease ran out: %v, want ErrLeaseLost", err)
	}
	if !s.Held(t, key) {
		t.Error("the late holder's Unlock took the lock from the next holder")
	}
	unlock(t, next)
}

func serverDown(t *testing.T, s Subject) {
	if s.Down == nil {
		t.Skip("this lock has no server")
	}
	ctx := patient(t)
	_, err := s.Down(t).Lock(ctx, freshKey())
	if !errors.Is(err, locks.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock without a server: %v, want ErrNotAcquired joined with the server's error", err)
	}
	if ctx.Err() != nil {
		t.Errorf("Lock without a server waited until its context ended")
	}
}

func keepsBackDrift(t *testing.T, s Subject) {
	if s.Steal == nil {
		t.Skip("the lease of this lock does not run out")
	}
	lease := lock(t, s.New(t, quick), patient(t), freshKey())
	defer unlock(t, lease)
	if left := time.Until(lease.Deadline()); lease.Deadline().IsZero() || left > quick.Lease*99/100 {
		t.Errorf("the lease is guaranteed for %v, want at most 99 %% of the %v on the server", left, quick.Lease)
	}
}
