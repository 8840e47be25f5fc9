package locks_test

import (
	"context"
	"testing"

	"stock/internal/locks"
	"stock/internal/tcpproxy"
)

// Tests of the locks that belong to a session: Etcd and ZooKeeper.

// newSessionLock makes a lock with a session of its own.
type newSessionLock[L locks.Locker] func(t testing.TB, addr string, o locks.Options) L

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
