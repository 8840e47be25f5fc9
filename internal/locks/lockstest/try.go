package lockstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/monotonic"
)

// tries tests Lock under locks.TryOnce.
var tries = []conformance{
	{"refuses a try at once while it is held, and leaves nothing behind", false, tryHeld},
	{"grants a try if it is free", false, tryFree},
	{"grants tries and waits one at a time", false, tryAmongWaiters},
}

// wantHeld expects a try to be refused because the lock is not free. The refusal must not come from a context that
// ended: a try does not wait.
func wantHeld(t testing.TB, l locks.Locker, key string) {
	t.Helper()
	lease, err := l.Lock(locks.TryOnce(Patient(t)), key)
	if err == nil {
		_ = lease.Unlock()
		t.Fatal("a lock that is held was granted")
	}
	refused := errors.Is(err, locks.ErrNotAcquired) && errors.Is(err, locks.ErrHeld)
	if !refused || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a try while the lock is held: %v, want ErrNotAcquired joined with ErrHeld", err)
	}
}

func tryHeld(t *testing.T, s Subject, d Deployment) {
	l, other, key := client(t, d, long), client(t, d, long), freshKey()
	holder := lock(t, Patient(t), l, key)
	before := s.left(t, d, key)
	for _, contender := range []locks.Locker{l, other} {
		wantHeld(t, contender, key)
		if after := s.left(t, d, key); len(after) > len(before) {
			t.Errorf("after a try that was refused, the server keeps %v, before %v", after, before)
		}
	}
	MustUnlock(t, holder)
	if d.Held(t, key) {
		t.Error("the lock is held although its holder has unlocked it and the tries were refused")
	}
	// Nobody is in the way of the next try.
	for _, contender := range []locks.Locker{other, l} {
		MustUnlock(t, lock(t, locks.TryOnce(Patient(t)), contender, key))
	}
}

func tryFree(t *testing.T, s Subject, d Deployment) {
	l, key := client(t, d, long), freshKey()
	first := lock(t, locks.TryOnce(Patient(t)), l, key)
	wantHeld(t, client(t, d, long), key)
	if s.Tokens && first.Token() == 0 {
		t.Error("a try was granted without a token")
	}
	MustUnlock(t, first)
	awaitFree(t, d, key)
	// The next one waits again.
	MustUnlock(t, lock(t, Patient(t), l, key))
}

func tryAmongWaiters(t *testing.T, s Subject, d Deployment) {
	contend(t, s, d, 8, func(contender int, l locks.Locker, key string) (*locks.Lease, error) {
		if contender < contenders/2 {
			return tryUntilGranted(t, l, key)
		}
		return l.Lock(Patient(t), key)
	})
}

// tryUntilGranted locks with tries until one is granted.
func tryUntilGranted(t testing.TB, l locks.Locker, key string) (*locks.Lease, error) {
	ctx := Patient(t)
	for {
		lease, err := l.Lock(locks.TryOnce(ctx), key)
		if err == nil || !errors.Is(err, locks.ErrHeld) || ctx.Err() != nil {
			return lease, err
		}
		_ = monotonic.Sleep(ctx, time.Millisecond)
	}
}
