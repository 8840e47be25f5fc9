package locks_test

import (
	"testing"

	"stock/internal/locks"
)

func TestAnInnerLeaseIsLostWithTheLock(t *testing.T) {
	t.Parallel()
	options := shared.Redis(t)
	watchdog := locks.NewRedisWatchdog(connect(t, options), locks.Options{Lease: lasting.Lease, Renew: inVain})
	lock := locks.NewReentrant(watchdog)
	t.Cleanup(func() { lock.Close() })
	outer := mustLock(t, lock, rungKey)
	inner, err := lock.Lock(outer.Context(), rungKey)
	if err != nil {
		t.Fatal(err)
	}
	del(t, connect(t, options), rungKey)
	awaitLoss(t, inner)
	wantLeaseLost(t, inner.Unlock())
	wantLeaseLost(t, outer.Unlock())
}

// The inner holder does not know whether its write has taken effect, so the lock has to outlast it.
func TestAnInnerLeaseAbandonsTheLock(t *testing.T) {
	t.Parallel()
	options := shared.Redis(t)
	lock := locks.NewReentrant(locks.NewRedisLua(connect(t, options), lasting))
	t.Cleanup(func() { lock.Close() })
	outer := mustLock(t, lock, rungKey)
	inner, err := lock.Lock(outer.Context(), rungKey)
	if err != nil {
		t.Fatal(err)
	}
	inner.Abandon()
	if outer.Context().Err() == nil {
		t.Error("the outer holder goes on with a lock that was abandoned")
	}
	mustUnlock(t, outer)
	if !exists(t, connect(t, options), rungKey) {
		t.Error("the outer Unlock released the lock that the inner holder had abandoned")
	}
}
