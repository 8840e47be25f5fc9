// Package lockstest is one conformance suite for every lock of package locks, on real servers and with a network that fails.
package lockstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// Subject is a lock under test, and what it claims.
type Subject struct {
	// Shared finds servers that other tests use at the same time.
	Shared func(t testing.TB) Deployment
	// Own starts servers for one test. Nil where the lock has none.
	Own func(t testing.TB) Private

	Lease     time.Duration // the shortest that the lock's servers grant; 300 ms where 0
	Tokens    bool          // every grant has a fencing token
	Renews    bool          // a lock that is held is renewed
	Reentrant bool          // a holder may lock again through its lease's context
	Resends   bool          // a command whose connection broke is sent once more, so that nobody notices
	Leaves    []string      // how the names end of what stays on the server when nobody wants the lock

	// Lacks lists the guarantees that the lock does not give, and why.
	Lacks map[Guarantee]string

	// Uncut says why connections must not be cut in this build: the faults and Stress are skipped then. Empty where they may.
	Uncut string
}

// Guarantee is a promise that some locks do not give.
type Guarantee string

const (
	// Expiry: the lock of a holder that died ends by itself, and the lease's context before that.
	Expiry Guarantee = "the lock ends by itself"
	// Ownership: Unlock gives back only what its caller holds.
	Ownership Guarantee = "Unlock spares the next holder"
	// TakesBack: a Lock that failed leaves nothing behind. Without it, what it left ends with the lease.
	TakesBack Guarantee = "a failed Lock is undone"
	// Persistence: the lock outlives the connection by which it was taken.
	Persistence Guarantee = "the lock outlives its connection"
	// NoticesLoss: the lease's context ends when the lock is taken away on the server.
	NoticesLoss Guarantee = "the holder learns of a loss"
	// Linearizable: at most one client at a time relies on the lock, whatever the network and the server do.
	Linearizable Guarantee = "linearizable under faults"
)

func (s Subject) lacks(g Guarantee) bool { return s.Lacks[g] != "" }

// needs skips a test of what the lock does not claim.
func (s Subject) needs(t *testing.T, guarantees ...Guarantee) {
	for _, g := range guarantees {
		if s.lacks(g) {
			t.Skipf("not a claim of this lock (%s): %s", g, s.Lacks[g])
		}
	}
}

// cuts skips a test that cuts connections where that must not be.
func (s Subject) cuts(t *testing.T) {
	if s.Uncut != "" {
		t.Skip(s.Uncut)
	}
}

// Deployment is a lock on running servers.
type Deployment interface {
	// New makes a client of its own, as another replica would have, that reaches the servers at the addresses: their own or
	// a Proxy's. All clients of a Deployment contend. The connections end with the test.
	New(t testing.TB, addresses []string, o locks.Options) locks.Locker
	// Addresses are the servers' (host:port). A lock inside a process has none.
	Addresses() []string
	// Held asks the servers themselves whether anybody holds key.
	Held(t testing.TB, key string) bool
	// Steal takes key from its holder on the servers, as an eviction or a failover does.
	Steal(t testing.TB, key string)
	// Left lists the names of all that the servers keep about key.
	Left(t testing.TB, key string) []string
}

// Private is a Deployment of one test.
type Private interface {
	Deployment
	// Restart kills the servers and starts them again, with the data that they had.
	Restart(t testing.TB)
	// Signal sends a signal to the servers.
	Signal(t testing.TB, signal syscall.Signal)
}

// patience bounds what a test waits for: long enough for a loaded machine, and never used up by a lock that works. It is
// shorter than the lease of long, so that a lock which is left behind there is found.
const patience = 20 * time.Second

// long is for tests in which no lease may run out.
var long = locks.Options{Lease: time.Minute, Poll: 2 * time.Millisecond}

// short is for tests that wait for the end of a lease.
func (s Subject) short() locks.Options {
	o := locks.Options{Lease: s.Lease, Poll: 5 * time.Millisecond}
	if o.Lease == 0 {
		o.Lease = 300 * time.Millisecond
	}
	return o
}

// forFailing is long where a Lock that fails is undone, and short where that is left to the lease.
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
	for _, group := range [][]conformance{basics, leases, faults} {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				if test.network && len(d.Addresses()) == 0 {
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
	network bool // needs servers
	run     func(*testing.T, Subject, Deployment)
}

var keys atomic.Int64

// freshKey keeps tests that run side by side apart.
func freshKey() string { return fmt.Sprintf("lock:{%d}", keys.Add(1)) }

// client makes a client that reaches the servers directly.
func client(t testing.TB, d Deployment, o locks.Options) locks.Locker {
	return clientAt(t, d, d.Addresses(), o)
}

// NewProxy starts a proxy in front of servers: see package tcpproxy.
var NewProxy = tcpproxy.New

// proxied makes a client that reaches the servers through a proxy.
func proxied(t testing.TB, d Deployment, o locks.Options) (locks.Locker, *tcpproxy.Proxy) {
	p := tcpproxy.New(t, d.Addresses()...)
	return clientAt(t, d, p.Addresses(), o), p
}

func clientAt(t testing.TB, d Deployment, addresses []string, o locks.Options) locks.Locker {
	l := d.New(t, addresses, o)
	if closer, ok := l.(io.Closer); ok {
		t.Cleanup(func() { closer.Close() }) // may fail where the test has broken the network
	}
	return l
}

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

// lockAgain locks after a fault: the client may find out by an error that its connections are gone, and has to do without a
// new one.
func lockAgain(t testing.TB, l locks.Locker, key string) *locks.Lease {
	t.Helper()
	ctx := patient(t)
	for {
		lease, err := l.Lock(ctx, key)
		if err == nil {
			return lease
		}
		if ctx.Err() != nil {
			t.Fatalf("Lock still fails %v after the fault: %v", patience, err)
		}
		if !errors.Is(err, locks.ErrNotAcquired) {
			t.Fatalf("Lock after a fault: %v, want ErrNotAcquired", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// unlockAgain locks and unlocks until both succeed, after a fault.
func unlockAgain(t testing.TB, l locks.Locker, key string) {
	t.Helper()
	serverstest.Eventually(t, "Unlock works again", func() bool { return lockAgain(t, l, key).Unlock() == nil })
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// free waits until nobody holds key: what is undone in the background takes a moment.
func free(t testing.TB, d Deployment, key string) {
	t.Helper()
	serverstest.Eventually(t, "the lock is free", func() bool { return !d.Held(t, key) })
}

// lost expects the lease's context to have ended because the lock was lost. Its timer may be late.
func lost(t testing.TB, lease *locks.Lease) {
	t.Helper()
	select {
	case <-lease.Context().Done():
		if cause := context.Cause(lease.Context()); !errors.Is(cause, locks.ErrLeaseLost) {
			t.Errorf("the lease's context ended with %v, want ErrLeaseLost", cause)
		}
	case <-time.After(patience):
		t.Error("the lease's context goes on, though the lock is lost")
	}
}
