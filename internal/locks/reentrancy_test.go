package locks_test

import (
	"context"
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

// Another client is granted the lock before the holder hears that its Unlock was carried out.
func TestALeaseEndsBeforeItsLockIsFree(t *testing.T) {
	l := newLadder(t)
	process, another := l.client("redis-lua", lasting), l.client("redis-lua", lasting)
	lock := locks.NewReentrant(process)
	outer := mustLock(t, lock, rungKey)
	inner, err := lock.Lock(outer.Context(), rungKey)
	if err != nil {
		t.Fatal(err)
	}
	process.afterNext(func() error {
		mustLock(t, another, rungKey)
		for name, lease := range map[string]*locks.Lease{"outer": outer, "inner": inner} {
			if lease.Context().Err() == nil {
				t.Errorf("the %s lease goes on while another client holds the lock", name)
			}
		}
		nested := locks.TryOnce(context.WithoutCancel(outer.Context()))
		_, err := lock.Lock(nested, rungKey)
		wantNotAcquired(t, err, locks.ErrHeld)
		return nil
	})
	mustUnlock(t, outer)
}
