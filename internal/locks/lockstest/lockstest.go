// Package lockstest is the conformance suite for the locks of package locks. It runs on real servers, with a network
// that fails.
package lockstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// Subject is a lock under test, and what it guarantees.
type Subject struct {
	// Shared returns servers that other tests use at the same time.
	Shared func(t testing.TB) Deployment
	// Own starts servers for one test. It is nil if the lock has none.
	Own func(t testing.TB) Private

	Lease     time.Duration // the shortest that the lock's servers grant; 0 means 300 ms
	Tokens    bool          // every grant has a fencing token
	Renews    bool          // a held lock is renewed
	Reentrant bool          // a holder may lock again through its lease's context
	Leaves    []string      // suffixes of the names that stay on the server when nobody wants the lock

	// Lacks lists the guarantees that the lock does not give, and why.
	Lacks map[Guarantee]string

	// Uncut says why connections must not be cut in this build; empty if they may. It skips Stress and most faults.
	Uncut string
}

// Guarantee is a promise that some locks do not give.
type Guarantee string

const (
	// Expiry: the lock of a dead holder ends by itself, and its lease's context ends before that.
	Expiry Guarantee = "the lock ends by itself"
	// Ownership: Unlock releases only what its caller holds.
	Ownership Guarantee = "Unlock spares the next holder"
	// TakesBack: a Lock that failed leaves nothing behind. Without it, what is left ends with the lease.
	TakesBack Guarantee = "a failed Lock is undone"
	// NoLateGrant: nothing is granted if a server carries out the request of a Lock after that has failed.
	NoLateGrant Guarantee = "a late request is granted nothing"
	// Released: an Unlock that failed is repeated until the server answers. Without it, the lock ends with the lease.
	Released Guarantee = "a failed Unlock is repeated"
	// Persistence: the lock outlives the connection on which it was taken.
	Persistence Guarantee = "the lock outlives its connection"
	// NoticesLoss: the lease's context ends when the lock is taken away on the server.
	NoticesLoss Guarantee = "the holder learns of a loss"
	// NoticesSilence: a Lock that waits fails soon after the servers stop answering, with their error.
	NoticesSilence Guarantee = "a waiter learns that nobody answers"
	// Exclusive: at most one client at a time relies on the lock, whatever the network and the server do.
	Exclusive Guarantee = "one holder at a time under faults"
)

func (s Subject) lacks(g Guarantee) bool { return s.Lacks[g] != "" }

// needs skips a test of guarantees that the lock does not give.
func (s Subject) needs(t *testing.T, guarantees ...Guarantee) {
	for _, g := range guarantees {
		if s.lacks(g) {
			t.Skipf("this lock does not guarantee %q: %s", g, s.Lacks[g])
		}
	}
}

// cuts skips a test that cuts connections if they must not be cut.
func (s Subject) cuts(t *testing.T) {
	if s.Uncut != "" {
		t.Skip(s.Uncut)
	}
}

// left lists what the servers keep about key, except for what may stay when nobody wants the lock.
func (s Subject) left(t testing.TB, d Deployment, key string) []string {
	return slices.DeleteFunc(d.Left(t, key), func(name string) bool {
		return slices.ContainsFunc(s.Leaves, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
	})
}

// Deployment is a lock on running servers.
type Deployment interface {
	// New makes a new client, as another replica would have, that reaches the servers at the addresses: their own or a
	// proxy's. All clients of a Deployment contend. The connections end with the test.
	New(t testing.TB, addresses []string, o locks.Options) locks.Locker
	// Addresses returns the addresses of the servers (host:port). A lock within a process has none.
	Addresses() []string
	// Held reports whether anybody holds key, according to the servers.
	Held(t testing.TB, key string) bool
	// Steal takes key from its holder on the servers, as an eviction or a failover does.
	Steal(t testing.TB, key string)
	// Left lists the names of everything that the servers keep about key.
	Left(t testing.TB, key string) []string
}

// Private is a Deployment that belongs to one test.
type Private interface {
	Deployment
	// Restart kills the servers and starts them again with their data.
	Restart(t testing.TB)
	// Signal sends a signal to the servers.
	Signal(t testing.TB, signal syscall.Signal)
}

// Patience bounds what a test waits for. It is long enough for a loaded machine; a lock that works never uses it up.
// It is shorter than the lease of long, so that the suite notices a lock that was left behind (but not in ZooKeeper).
const Patience = 5 * time.Minute

// long is for tests in which no lease may end.
var long = locks.Options{Lease: time.Hour, Poll: 2 * time.Millisecond}

// short is for tests that wait for the end of a lease.
func (s Subject) short() locks.Options {
	o := locks.Options{Lease: s.Lease, Poll: 5 * time.Millisecond}
	if o.Lease == 0 {
		o.Lease = 300 * time.Millisecond
	}
	return o
}

// forFailing returns long if a Lock that fails is undone, and short options if that is left to the end of the lease.
func (s Subject) forFailing(t *testing.T) locks.Options {
	if s.lacks(TakesBack) {
		s.needs(t, Expiry)
		return s.short()
	}
	return long
}

// Run runs the suite, except for Stress.
func Run(t *testing.T, s Subject) {
	d := s.Shared(t)
	for _, group := range [][]conformance{basics, leases, tries, faults} {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				if test.servers && len(d.Addresses()) == 0 {
					t.Skip("this lock has no server")
				}
				test.run(t, s, d)
			})
		}
	}
}

// conformance is one test of the suite.
type conformance struct {
	name    string
	servers bool // the test needs servers
	run     func(*testing.T, Subject, Deployment)
}

var keys atomic.Int64

// freshKey returns a key that no other test uses.
func freshKey() string { return fmt.Sprintf("lock:{%d}", keys.Add(1)) }

// client makes a client that reaches the servers directly.
func client(t testing.TB, d Deployment, o locks.Options) locks.Locker {
	return clientAt(t, d, d.Addresses(), o)
}

// proxied makes a client that reaches the servers through a proxy.
func proxied(t testing.TB, d Deployment, o locks.Options) (locks.Locker, *tcpproxy.Proxy) {
	p := tcpproxy.New(t, d.Addresses()...)
	return clientAt(t, d, p.Addresses(), o), p
}

func clientAt(t testing.TB, d Deployment, addresses []string, o locks.Options) locks.Locker {
	l := d.New(t, addresses, o)
	t.Cleanup(func() { _ = locks.Close(l) }) // fails if the test has broken the network
	return l
}

func lock(t testing.TB, ctx context.Context, l locks.Locker, key string) *locks.Lease {
	t.Helper()
	lease, err := l.Lock(ctx, key)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return lease
}

// MustUnlock expects Unlock to succeed.
func MustUnlock(t testing.TB, lease *locks.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// MustLock retries a Lock that fails: after a fault, a client may learn by an error that its connections are broken,
// and on a busy machine a service may take longer to answer than the lock allows.
func MustLock(t testing.TB, l locks.Locker, key string) *locks.Lease {
	t.Helper()
	ctx := Patient(t)
	for {
		lease, err := l.Lock(ctx, key)
		if err == nil {
			return lease
		}
		if ctx.Err() != nil {
			t.Fatalf("Lock still fails after %v: %v", Patience, err)
		}
		if !errors.Is(err, locks.ErrNotAcquired) {
			t.Fatalf("Lock: %v, want ErrNotAcquired", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// unlockAgain locks and unlocks until both succeed, after a fault.
func unlockAgain(t testing.TB, l locks.Locker, key string) {
	t.Helper()
	serverstest.Eventually(t, "Unlock succeeds after a fault", func() bool { return MustLock(t, l, key).Unlock() == nil })
}

// Patient returns a context that ends after Patience.
func Patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// awaitFree waits until nobody holds key: undoing a grant in the background takes a moment.
func awaitFree(t testing.TB, d Deployment, key string) {
	t.Helper()
	serverstest.Eventually(t, "the lock is free", func() bool { return !d.Held(t, key) })
}

// WantWait expects Lock to wait for a key that is held, and gives up.
func WantWait(t testing.TB, ctx context.Context, l locks.Locker, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := l.Lock(ctx, key); !errors.Is(err, locks.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock while it is held: %v, want ErrNotAcquired joined with context.DeadlineExceeded", err)
	}
}

// WantLost expects the lease's context to end because the lock was lost. Its timer may be late.
func WantLost(t testing.TB, lease *locks.Lease) {
	t.Helper()
	select {
	case <-lease.Context().Done():
		if cause := context.Cause(lease.Context()); !errors.Is(cause, locks.ErrLeaseLost) {
			t.Errorf("the lease's context ended with %v, want ErrLeaseLost", cause)
		}
	case <-time.After(Patience):
		t.Error("the lease's context has not ended although the lock is lost")
	}
}
