package lockstest

import (
	"errors"
	"testing"
	"time"

	"stock/internal/locks"
)

// leases tests locks that end by themselves or are taken away.
var leases = []conformance{
	{"returns ErrLeaseLost from Unlock if the lock was lost", true, unlockAfterLoss},
	{"ends the lease's context when the lock is lost", true, noticesLoss},
	{"ends the lease's context before another client is granted the lock", true, leaseEndsFirst},
	{"keeps back part of the lease for the drift of the clocks", true, keepsBackDrift},
	{"holds as long as the work takes", true, renews},
	{"ends by itself when it is abandoned", false, abandoned},
}

func unlockAfterLoss(t *testing.T, _ Subject, d Deployment) {
	key := freshKey()
	lease := lock(t, Patient(t), client(t, d, long), key)
	d.Steal(t, key)
	if err := lease.Unlock(); !errors.Is(err, locks.ErrLeaseLost) {
		t.Errorf("Unlock of a lost lock: %v, want ErrLeaseLost", err)
	}
}

func noticesLoss(t *testing.T, s Subject, d Deployment) {
	s.needs(t, NoticesLoss)
	o, key := long, freshKey()
	o.Renew = 100 * time.Millisecond // also the limit of one renewal
	lease := lock(t, Patient(t), client(t, d, o), key)
	d.Steal(t, key)
	WantLost(t, lease)
	_ = lease.Unlock()
}

func leaseEndsFirst(t *testing.T, s Subject, d Deployment) {
	s.needs(t, Expiry)
	if s.Renews {
		t.Skip("this lock renews its leases: blackHole tests the same")
	}
	key, o := freshKey(), s.short()
	first, second := client(t, d, o), client(t, d, o)
	late := lock(t, Patient(t), first, key)
	next := nextHolder(t, s, second, key, late)
	if err := late.Unlock(); !errors.Is(err, locks.ErrLeaseLost) && !s.lacks(Ownership) {
		t.Errorf("Unlock after the end of the lease: %v, want ErrLeaseLost", err)
	}
	// On a slow machine the next lease may have ended too; then this proves nothing.
	if held := d.Held(t, key); !held && time.Now().Before(next.Deadline()) && !s.lacks(Ownership) {
		t.Error("the late holder's Unlock took the lock from the next holder")
	}
	_ = next.Unlock()
}

// nextHolder locks a key whose holder's lease ends, and checks that it ended before.
func nextHolder(t *testing.T, s Subject, l locks.Locker, key string, late *locks.Lease) (next *locks.Lease) {
	t.Helper()
	next = lock(t, Patient(t), l, key)
	if granted := time.Now(); !late.Deadline().Before(granted) {
		t.Errorf("another client was granted the lock %v before the holder's deadline", time.Until(late.Deadline()))
	}
	if s.Tokens && next.Token() <= late.Token() {
		t.Errorf("token %d after %d, want a greater one", next.Token(), late.Token())
	}
	WantLost(t, late)
	return next
}

func keepsBackDrift(t *testing.T, s Subject, d Deployment) {
	s.needs(t, Expiry)
	lease := lock(t, Patient(t), client(t, d, long), freshKey())
	defer MustUnlock(t, lease)
	if left := time.Until(lease.Deadline()); lease.Deadline().IsZero() || left > long.Lease*99/100 {
		t.Errorf("the lease is guaranteed for %v, want at most 99 %% of the %v on the server", left, long.Lease)
	}
}

func renews(t *testing.T, s Subject, d Deployment) {
	if !s.Renews {
		t.Skip("this lock does not renew its leases")
	}
	// On a slow machine a renewal may be too late for a short lease, which is then rightly lost: try a longer one. A
	// lock that does not renew loses them all.
	for o := s.short(); ; o.Lease *= 2 {
		o.Renew = o.Lease / 10
		if outlasts(t, d, o) {
			return
		}
		if o.Lease > Patience/4 {
			t.Fatalf("a lease of %v ended during the work", o.Lease)
		}
	}
}

// outlasts holds a lock for twice its lease, and returns whether it was held all the time.
func outlasts(t *testing.T, d Deployment, o locks.Options) bool {
	key := freshKey()
	lease := lock(t, Patient(t), client(t, d, o), key)
	for work := time.Now().Add(2 * o.Lease); time.Now().Before(work) || time.Now().After(lease.Deadline()); {
		select {
		case <-lease.Context().Done():
			_ = lease.Unlock()
			return false
		case <-time.After(2 * time.Millisecond):
		}
	}
	held := d.Held(t, key)
	if err := lease.Unlock(); err != nil {
		return false
	}
	if !held {
		t.Error("nobody holds the lock, but the lease's context has not ended")
	}
	return true
}

func abandoned(t *testing.T, s Subject, d Deployment) {
	o, key := s.short(), freshKey()
	l, other := client(t, d, o), client(t, d, o)
	lease := lock(t, Patient(t), l, key)
	ends := lease.Deadline()
	lease.Abandon()
	if lease.Context().Err() == nil {
		t.Error("the context of an abandoned lease has not ended")
	}
	// The lock can only be granted again if it is not renewed any more.
	next := lock(t, Patient(t), other, key)
	if granted := time.Now(); granted.Before(ends) {
		t.Errorf("an abandoned lock was granted again %v before its deadline", ends.Sub(granted))
	}
	if s.Tokens && next.Token() <= lease.Token() {
		t.Errorf("token %d after %d, want a greater one", next.Token(), lease.Token())
	}
	_ = next.Unlock()
	// The abandoning client can lock again, too.
	_ = lock(t, Patient(t), l, key).Unlock()
}
