package lockstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// faults tests a lock while the network or the servers fail.
var faults = []conformance{
	{"fails at once if the server is down", true, serverDown},
	{"undoes what may have been granted when the servers answer again", true, lockDuringOutage},
	{"locks or fails cleanly when its connection is cut at any step", true, lockIsCut},
	{"unlocks or fails cleanly when its connection is cut at any step, and frees the lock", true, unlockIsCut},
	{"frees the lock when its servers answer again after Unlock failed", true, unlockDuringOutage},
	{"waits or fails cleanly when its connection is cut at any step", true, waitIsCut},
	{"fails while it waits if the servers stop answering", true, waitDuringOutage},
	{"ends the context of a holder in a black hole before another client is granted the lock", true, blackHole},
	{"works on after its servers were paused and have restarted", true, pauseAndRestart},
}

// nobody is an address where nothing listens.
const nobody = "127.0.0.1:1"

func serverDown(t *testing.T, _ Subject, d Deployment) {
	var addresses []string
	for range d.Addresses() {
		addresses = append(addresses, nobody)
	}
	_, err := clientAt(t, d, addresses, long).Lock(Patient(t), freshKey())
	if !errors.Is(err, locks.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock without a server: %v, want ErrNotAcquired joined with the server's error", err)
	}
}

func lockDuringOutage(t *testing.T, s Subject, d Deployment) {
	s.needs(t, TakesBack)
	s.cuts(t)
	l, p := proxied(t, d, long)
	MustUnlock(t, lock(t, Patient(t), l, freshKey())) // connects
	var keys []string
	p.BlackHole()
	ctx, cancel := context.WithTimeout(Patient(t), 50*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range 20 {
		key := freshKey()
		keys = append(keys, key)
		all.Go(func() {
			if _, err := l.Lock(ctx, key); !errors.Is(err, locks.ErrNotAcquired) {
				t.Errorf("Lock while the server does not answer: %v, want ErrNotAcquired", err)
			}
		})
	}
	all.Wait()
	p.Pass()
	for _, key := range keys {
		awaitFree(t, d, key)
	}
}

// How many messages of a step are cut, one by one.
const (
	maxSteps  = 50 // of one call, which must end
	pollSteps = 10 // of a wait, which may ask for ever
)

// cutAt cuts the connection at the k-th message of a step.
type cutAt struct {
	proxy  *tcpproxy.Proxy
	k      int
	where  tcpproxy.CutPoint
	passed bool // the step has fewer than k messages
}

func (c *cutAt) arm()           { c.proxy.Cut(c.k, c.where) }
func (c *cutAt) armed() bool    { return c.proxy.Armed() }
func (c *cutAt) String() string { return fmt.Sprintf("cut %s %d", c.where, c.k) }

func (c *cutAt) disarm() {
	c.passed = c.armed()
	c.proxy.Pass()
}

// cutEverywhere repeats a step while the connection is cut at its first message, its second and so on, until the step
// has no further message. The step arms and disarms the cut.
func cutEverywhere(t *testing.T, d Deployment, o locks.Options, step func(*testing.T, locks.Locker, *cutAt)) {
	for _, where := range []tcpproxy.CutPoint{tcpproxy.BeforeRequest, tcpproxy.BeforeReply} {
		t.Run(string(where), func(t *testing.T) {
			t.Parallel()
			l, p := proxied(t, d, o)
			for k := 1; ; k++ {
				unlockAgain(t, l, freshKey()) // connects
				cut := cutAt{proxy: p, k: k, where: where}
				step(t, l, &cut)
				if cut.passed {
					break
				}
				if k == maxSteps {
					t.Fatalf("one call takes more than %d messages", maxSteps)
				}
			}
		})
	}
}

func lockIsCut(t *testing.T, s Subject, d Deployment) {
	s.cuts(t)
	o := s.forFailing(t)
	other := client(t, d, o)
	cutEverywhere(t, d, o, func(t *testing.T, l locks.Locker, cut *cutAt) {
		key := freshKey()
		cut.arm()
		lease, err := l.Lock(Patient(t), key)
		cut.disarm()
		switch {
		case err == nil:
			if !d.Held(t, key) && (o == long || time.Now().Before(lease.Deadline())) {
				t.Errorf("%v: Lock succeeded, but nobody holds the lock", cut)
			}
			if err := lease.Unlock(); err != nil && !s.lacks(Persistence) {
				t.Errorf("%v: Unlock: %v", cut, err)
			}
		case !errors.Is(err, locks.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded):
			t.Errorf("%v: Lock: %v, want ErrNotAcquired joined with the server's error", cut, err)
		}
		_ = lock(t, Patient(t), other, key).Unlock()
	})
}

func unlockIsCut(t *testing.T, s Subject, d Deployment) {
	s.cuts(t)
	o := long
	if s.lacks(Released) && !s.lacks(Expiry) {
		o = s.short()
	}
	other := client(t, d, o)
	cutEverywhere(t, d, o, func(t *testing.T, l locks.Locker, cut *cutAt) {
		key := freshKey()
		lease := MustLock(t, l, key)
		cut.arm()
		err := lease.Unlock()
		cut.disarm()
		switch {
		case err == nil:
			_ = lock(t, Patient(t), other, key).Unlock()
			return
		case errors.Is(err, locks.ErrLeaseLost) && !s.lacks(Persistence) && o == long:
			t.Errorf("%v: Unlock: %v, but the lock was still held", cut, err)
		}
		if s.lacks(Released) && s.lacks(Expiry) {
			return // it may be held for ever
		}
		t.Cleanup(func() { // at the end of the test, since each may have to wait for the end of a lease
			ctx, cancel := context.WithTimeout(context.Background(), Patience)
			defer cancel()
			next, err := other.Lock(ctx, key)
			if err != nil {
				t.Errorf("Lock after the holder's Unlock was cut: %v", err)
				return
			}
			_ = next.Unlock()
		})
	})
}

func unlockDuringOutage(t *testing.T, s Subject, d Deployment) {
	serverstest.Long(t)
	s.needs(t, Released)
	s.cuts(t)
	l, p := proxied(t, d, long)
	key := freshKey()
	lease := lock(t, Patient(t), l, key)
	p.BlackHole()
	if err := lease.Unlock(); err == nil {
		t.Error("Unlock succeeded without a server")
	}
	p.Pass()
	MustUnlock(t, lock(t, Patient(t), client(t, d, long), key))
}

func waitIsCut(t *testing.T, s Subject, d Deployment) {
	s.cuts(t)
	o := s.forFailing(t)
	other := client(t, d, long)
	cutEverywhere(t, d, o, func(t *testing.T, l locks.Locker, cut *cutAt) {
		key := freshKey()
		holder := lock(t, Patient(t), other, key)
		cut.arm()
		type result struct {
			lease *locks.Lease
			err   error
		}
		waited := make(chan result, 1)
		go func() {
			lease, err := l.Lock(Patient(t), key)
			waited <- result{lease, err}
		}()
		// The wait may have fewer than k messages.
		end := time.Now().Add(50 * time.Millisecond)
		for cut.armed() && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
		MustUnlock(t, holder)
		r := <-waited
		cut.disarm()
		cut.passed = cut.passed || cut.k == pollSteps
		switch {
		case r.err == nil:
			_ = r.lease.Unlock()
		case !errors.Is(r.err, locks.ErrNotAcquired) || errors.Is(r.err, context.DeadlineExceeded):
			t.Errorf("%v: Lock: %v, want ErrNotAcquired joined with the server's error", cut, r.err)
		}
		_ = lock(t, Patient(t), other, key).Unlock()
	})
}

func waitDuringOutage(t *testing.T, s Subject, d Deployment) {
	serverstest.Long(t)
	s.needs(t, NoticesSilence)
	s.cuts(t)
	o, key := long, freshKey()
	o.Renew = 100 * time.Millisecond
	holder := lock(t, Patient(t), client(t, d, long), key)
	l, p := proxied(t, d, o)
	MustUnlock(t, lock(t, Patient(t), l, freshKey())) // connects
	failed := make(chan error, 1)
	go func() {
		_, err := l.Lock(Patient(t), key)
		failed <- err
	}()
	select {
	case err := <-failed:
		t.Fatalf("Lock while another client holds it: %v, want it to wait", err)
	case <-time.After(100 * time.Millisecond):
	}
	p.BlackHole()
	if err := <-failed; !errors.Is(err, locks.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock: %v, want ErrNotAcquired joined with the servers' error", err)
	}
	MustUnlock(t, holder)
}

func blackHole(t *testing.T, s Subject, d Deployment) {
	serverstest.Long(t)
	s.needs(t, Expiry)
	s.cuts(t)
	o, key := s.short(), freshKey()
	o.Renew = o.Lease / 5
	other := client(t, d, o)
	l, p := proxied(t, d, o)
	lease := lock(t, Patient(t), l, key)
	if s.Renews {
		first := lease.Deadline()
		serverstest.Eventually(t, "the lease is renewed", func() bool {
			if lease.Context().Err() != nil { // on a slow machine it may end before it is renewed
				_ = lease.Unlock()
				lease = lock(t, Patient(t), l, key)
				first = lease.Deadline()
			}
			return lease.Deadline() != first
		})
	}
	p.BlackHole()
	next := nextHolder(t, s, other, key, lease)
	if err := lease.Unlock(); err == nil {
		t.Error("Unlock succeeded without a server")
	}
	p.Pass()
	_ = next.Unlock()
	unlockAgain(t, l, key)
}

func pauseAndRestart(t *testing.T, s Subject, _ Deployment) {
	s.cuts(t)
	d := s.Own(t)
	if !s.lacks(TakesBack) && !s.lacks(Released) && !s.lacks(NoLateGrant) {
		pauseServers(t, d)
	}
	restart(t, s, d)
}

// pauseServers calls Lock and Unlock while the servers are stopped. They carry out the requests after that.
func pauseServers(t *testing.T, d Private) {
	l, held, free := client(t, d, long), freshKey(), freshKey()
	holder := lock(t, Patient(t), l, held)
	MustUnlock(t, lock(t, Patient(t), l, free)) // connects
	d.Signal(t, syscall.SIGSTOP)
	time.Sleep(20 * time.Millisecond) // until all threads have stopped
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Lock(ctx, free); !errors.Is(err, locks.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock while the servers are stopped: %v, want ErrNotAcquired joined with context.DeadlineExceeded", err)
	}
	if err := holder.Unlock(); err == nil || errors.Is(err, locks.ErrLeaseLost) {
		t.Errorf("Unlock while the servers are stopped: %v, want their error", err)
	}
	d.Signal(t, syscall.SIGCONT)
	awaitFree(t, d, free)
	awaitFree(t, d, held)
}

func restart(t *testing.T, s Subject, d Private) {
	o, key := s.short(), freshKey()
	o.Lease *= 4 // the servers need time to restart
	l, idle := client(t, d, o), client(t, d, o)
	waiter, p := proxied(t, d, o)
	MustUnlock(t, lock(t, Patient(t), idle, freshKey()))
	lease := lock(t, Patient(t), l, key)
	waited := make(chan *locks.Lease, 1)
	go func() {
		lease, err := waiter.Lock(Patient(t), key)
		if err != nil && (!errors.Is(err, locks.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("Lock while its server restarts: %v, want ErrNotAcquired joined with the server's error", err)
		}
		waited <- lease
	}()
	serverstest.Eventually(t, "the waiter is connected", func() bool { return p.Open() > 0 })
	kept := lock(t, Patient(t), client(t, d, long), freshKey())

	d.Restart(t)

	if kept.Context().Err() != nil && !s.lacks(Persistence) {
		t.Errorf("the lease outlasts the restart, but its context has ended: %v", context.Cause(kept.Context()))
	}
	_ = kept.Unlock()
	_ = lease.Unlock() // if it fails, the lease ends by itself
	next := <-waited
	if !s.lacks(Expiry) || next != nil {
		if next == nil {
			next = MustLock(t, waiter, key)
		}
		if s.Tokens && next.Token() <= lease.Token() {
			t.Errorf("token %d after %d, want a greater one", next.Token(), lease.Token())
		}
		_ = next.Unlock()
	}
	for _, client := range []locks.Locker{l, idle, waiter} {
		unlockAgain(t, client, freshKey())
	}
}
