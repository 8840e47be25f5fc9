package locks_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// Tests of the locks that belong to a session: Etcd and ZooKeeper.

// newSessionLock makes a lock with a session of its own.
type newSessionLock[L locks.Locker] func(t testing.TB, addr string, o locks.Options) L

// cutOffHolder cuts a holder off from the service until another client is granted the lock, and checks that the
// holder's lease ended before that.
func cutOffHolder[L locks.Locker](
	t *testing.T, addr string, o locks.Options, newLock newSessionLock[L],
) (late *locks.Lease, proxy *tcpproxy.Proxy) {
	t.Helper()
	const key = "cut-off"
	proxy = tcpproxy.New(t, addr)
	late = mustLock(t, newLock(t, proxy.Addr(), o), key)
	first := late.Deadline()
	serverstest.Eventually(t, "the session is renewed", func() bool { return late.Deadline().After(first) })
	proxy.BlackHole()
	next := mustLock(t, newLock(t, addr, locks.Options{}), key)
	if granted := time.Now(); !late.Deadline().Before(granted) {
		t.Errorf("another client was granted the lock %v before the first holder's deadline", time.Until(late.Deadline()))
	}
	awaitLoss(t, late) // its timer may be late
	if next.Token() <= late.Token() {
		t.Errorf("token %d after %d, want a greater one", next.Token(), late.Token())
	}
	t.Cleanup(func() { mustUnlock(t, next) })
	return late, proxy
}

// deadWaiterIsPassed checks that a waiter in a black hole blocks the next one only until its session ends. o are the
// options of the waiter.
func deadWaiterIsPassed[L locks.Locker](
	t *testing.T, addr string, o locks.Options, newLock newSessionLock[L], awaitQueue func(key string, length int),
) {
	t.Helper()
	const key = "dead-waiter"
	proxy := tcpproxy.New(t, addr)
	held := mustLock(t, newLock(t, addr, locks.Options{}), key)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, dead := startLock(ctx, newLock(t, proxy.Addr(), o), key)
	awaitQueue(key, 2)
	granted, failed := startLock(t.Context(), newLock(t, addr, locks.Options{}), key)
	awaitQueue(key, 3)
	proxy.BlackHole()
	mustUnlock(t, held)
	mustUnlock(t, receive(t, granted, failed))
	awaitQueue(key, 0)
	wantServiceError(t, receive(t, dead, nil))
}

// abandonedLockEnds checks that an abandoned lock is granted again, and not before its lease has ended.
func abandonedLockEnds(t *testing.T, lock locks.Locker) {
	t.Helper()
	lease := mustLock(t, lock, "abandoned")
	deadline := lease.Deadline()
	lease.Abandon()
	mustUnlock(t, mustLock(t, lock, "abandoned"))
	if time.Now().Before(deadline) {
		t.Error("the lock was granted again before the abandoned lease had ended")
	}
}

// recovers checks that a lock leaves nothing behind while its server is paused, and works again after a restart.
func recovers(
	t *testing.T, lock locks.Locker, paused *servers.Process, server process, awaitFree func(key string),
) {
	t.Helper()
	held := mustLock(t, lock, "held")

	pause(t, paused)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := lock.Lock(ctx, "paused")
	wantNotAcquired(t, err, context.DeadlineExceeded)
	if err := held.Unlock(); err == nil || errors.Is(err, locks.ErrLeaseLost) {
		t.Errorf("Unlock: %v, want an error of the paused server", err)
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	awaitFree("paused")
	awaitFree("held")

	held = mustLock(t, lock, "held")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Logf("the last error of the lock: %v", err)
		}
	}()
	serverstest.Eventually(t, "the lock is granted again", func() bool {
		var lease *locks.Lease
		if lease, err = lock.Lock(t.Context(), "restarted"); err == nil {
			err = lease.Unlock()
		}
		return err == nil
	})
	if err := held.Context().Err(); err != nil {
		t.Errorf("the session outlives a restart, but the holder's context ended: %v", err)
	}
	mustUnlock(t, held)
}

// grantsInOrder makes clients wait for a lock, and checks that they are granted it in order of arrival, with rising
// tokens.
func grantsInOrder(t *testing.T, holder locks.Locker, waiters []locks.Locker, awaitQueue func(key string, length int)) {
	t.Helper()
	const key = "order"
	held := mustLock(t, holder, key)
	var granted []<-chan *locks.Lease
	var failed []<-chan error
	for i, waiter := range waiters {
		g, f := startLock(t.Context(), waiter, key)
		granted, failed = append(granted, g), append(failed, f)
		awaitQueue(key, i+2)
	}
	for i := range granted {
		mustUnlock(t, held)
		next := receive(t, granted[i], failed[i])
		if next.Token() <= held.Token() {
			t.Errorf("token %d after %d, want a greater one", next.Token(), held.Token())
		}
		held = next
	}
	mustUnlock(t, held)
	awaitQueue(key, 0)
}
