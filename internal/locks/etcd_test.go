package locks_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

func connectEtcd(t testing.TB, addr string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, DialTimeout: time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func newEtcd(t testing.TB, addr string, o locks.Options) *locks.Etcd {
	lock := locks.NewEtcd(connectEtcd(t, addr), o)
	t.Cleanup(func() { lock.Close() })
	return lock
}

// etcdQueue lists the keys of those that hold or wait for the lock, the oldest first.
func etcdQueue(t testing.TB, eye *clientv3.Client, key string) (waiters []string, sessions []clientv3.LeaseID) {
	t.Helper()
	found, err := eye.Get(context.WithoutCancel(t.Context()), "locks/"+key+"/",
		clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range found.Kvs {
		waiters, sessions = append(waiters, string(kv.Key)), append(sessions, clientv3.LeaseID(kv.Lease))
	}
	return waiters, sessions
}

func awaitEtcdQueue(t testing.TB, eye *clientv3.Client, key string, length int) {
	t.Helper()
	serverstest.Eventually(t, "the queue has the length that it should", func() bool {
		waiters, _ := etcdQueue(t, eye, key)
		return len(waiters) == length
	})
}

func TestEtcdGrantsInTheOrderOfArrivalWithRisingTokens(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "order"
	eye := connectEtcd(t, addr)
	held := mustLock(t, newEtcd(t, addr, locks.Options{}), key)
	var granted []<-chan *locks.Lease
	var failed []<-chan error
	for i := range 3 {
		g, f := startLock(t.Context(), newEtcd(t, addr, locks.Options{}), key)
		granted, failed = append(granted, g), append(failed, f)
		awaitEtcdQueue(t, eye, key, i+2)
	}
	for i := range granted {
		mustUnlock(t, held)
		next := receive(t, granted[i], failed[i])
		if next.Token() <= held.Token() {
			t.Errorf("token %d after %d", next.Token(), held.Token())
		}
		held = next
	}
	mustUnlock(t, held)
	awaitEtcdQueue(t, eye, key, 0)
}

func TestAnEtcdHolderThatIsCutOffLearnsBeforeTheNextIsGranted(t *testing.T) {
	t.Parallel()
	addr, key, o := shared.Etcd(t), "cut-off", locks.Options{Lease: 2 * time.Second, Renew: 100 * time.Millisecond}
	proxy := tcpproxy.New(t, addr)
	late := mustLock(t, newEtcd(t, proxy.Addr(), o), key)
	first := late.Deadline()
	serverstest.Eventually(t, "the session was renewed", func() bool { return late.Deadline().After(first) })
	proxy.BlackHole()
	next := mustLock(t, newEtcd(t, addr, locks.Options{}), key)
	if granted := time.Now(); !late.Deadline().Before(granted) {
		t.Errorf("another holds the lock %v before the first holder's deadline", time.Until(late.Deadline()))
	}
	awaitLoss(t, late) // its timer may be late
	wantLeaseLost(t, late.Unlock())
	if next.Token() <= late.Token() {
		t.Errorf("token %d after %d", next.Token(), late.Token())
	}
	mustUnlock(t, next)
}

func TestARevokedEtcdSessionIsNoticedAndReplaced(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "revoked"
	eye := connectEtcd(t, addr)
	lock := newEtcd(t, addr, locks.Options{Renew: 50 * time.Millisecond})
	lost, other := mustLock(t, lock, key), mustLock(t, lock, key+" too")
	_, sessions := etcdQueue(t, eye, key)
	if _, err := eye.Revoke(t.Context(), sessions[0]); err != nil {
		t.Fatal(err)
	}
	for _, lease := range []*locks.Lease{lost, other} {
		awaitLoss(t, lease)
		wantLeaseLost(t, lease.Unlock())
	}
	again := mustLock(t, lock, key)
	if again.Token() <= lost.Token() {
		t.Errorf("token %d after %d", again.Token(), lost.Token())
	}
	mustUnlock(t, again)
}

func TestAnEtcdWaiterWhoseSessionIsRevokedQueuesUpAgain(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "revoked-waiter"
	eye := connectEtcd(t, addr)
	held := mustLock(t, newEtcd(t, addr, locks.Options{}), key)
	granted, failed := startLock(t.Context(), newEtcd(t, addr, locks.Options{Renew: 50 * time.Millisecond}), key)
	awaitEtcdQueue(t, eye, key, 2)
	before, sessions := etcdQueue(t, eye, key)
	if _, err := eye.Revoke(t.Context(), sessions[1]); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "it waits in another session", func() bool {
		now, _ := etcdQueue(t, eye, key)
		return len(now) == 2 && now[1] != before[1]
	})
	mustUnlock(t, held)
	mustUnlock(t, receive(t, granted, failed))
}

func TestADeletedEtcdKeyIsMissed(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "deleted"
	eye := connectEtcd(t, addr)
	lock := newEtcd(t, addr, locks.Options{Renew: 50 * time.Millisecond})
	lost, other := mustLock(t, lock, key), mustLock(t, lock, key+" not")
	waiters, _ := etcdQueue(t, eye, key)
	if _, err := eye.Delete(t.Context(), waiters[0]); err != nil {
		t.Fatal(err)
	}
	awaitLoss(t, lost)
	wantLeaseLost(t, lost.Unlock())
	if other.Context().Err() != nil {
		t.Error("the other lock of the session was lost too")
	}
	mustUnlock(t, other)
}

func TestAnEtcdWaiterThatGaveUpLeavesNoKey(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "gave-up"
	eye := connectEtcd(t, addr)
	held := mustLock(t, newEtcd(t, addr, locks.Options{}), key)
	ctx, cancel := context.WithCancel(t.Context())
	_, failed := startLock(ctx, newEtcd(t, addr, locks.Options{}), key)
	awaitEtcdQueue(t, eye, key, 2)
	cancel()
	wantNotAcquired(t, <-failed, context.Canceled)
	if waiters, _ := etcdQueue(t, eye, key); len(waiters) != 1 {
		t.Errorf("the queue is %v, want the holder alone", waiters)
	}
	mustUnlock(t, held)
}

func TestADeadEtcdWaiterIsPassedWhenItsSessionEnds(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "dead-waiter"
	eye := connectEtcd(t, addr)
	proxy := tcpproxy.New(t, addr)
	held := mustLock(t, newEtcd(t, addr, locks.Options{}), key)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, dead := startLock(ctx, newEtcd(t, proxy.Addr(), locks.Options{Lease: 2 * time.Second}), key)
	awaitEtcdQueue(t, eye, key, 2)
	granted, failed := startLock(t.Context(), newEtcd(t, addr, locks.Options{}), key)
	awaitEtcdQueue(t, eye, key, 3)
	proxy.BlackHole()
	mustUnlock(t, held)
	mustUnlock(t, receive(t, granted, failed))
	awaitEtcdQueue(t, eye, key, 0)
	wantServiceError(t, receive(t, dead, nil))
}

func TestACutEtcdConnectionLeavesNoKey(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "cut"
	eye := connectEtcd(t, addr)
	proxy := tcpproxy.New(t, addr)
	for _, where := range []tcpproxy.Where{tcpproxy.BeforeRequest, tcpproxy.BeforeReply} {
		for k, armed := 1, false; !armed; k++ { // until nothing is left to cut
			lock := newEtcd(t, proxy.Addr(), locks.Options{})
			mustUnlock(t, mustLock(t, lock, "warm-up"))
			proxy.Cut(k, where)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			lease, err := lock.Lock(ctx, key)
			cancel()
			if err == nil {
				_ = lease.Unlock()
			}
			armed = proxy.Armed()
			proxy.Pass()
			awaitEtcdQueue(t, eye, key, 0)
		}
	}
}

// It would stay in the queue, and in everybody's way, for as long as the session.
func TestALateRequestToQueueUpInEtcdIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	addr, key := shared.Etcd(t), "late"
	eye := connectEtcd(t, addr)
	lock := newEtcd(t, addr, locks.Options{Lease: 2 * time.Second})
	if err := lock.EnqueueLate(t.Context(), key); err == nil {
		t.Error("a waiter that has given up was queued up")
	}
	if waiters, _ := etcdQueue(t, eye, key); len(waiters) != 0 {
		t.Errorf("the queue is %v", waiters)
	}
	serverstest.Eventually(t, "the mark is removed after the lease", func() bool {
		marks, err := eye.Get(t.Context(), "withdrawn/locks/"+locks.NodeName(key)+"/", clientv3.WithPrefix())
		return err == nil && marks.Count == 0
	})
}

func TestAnAbandonedEtcdLockEndsWithTheLease(t *testing.T) {
	t.Parallel()
	lock := newEtcd(t, shared.Etcd(t), locks.Options{Lease: 2 * time.Second, Renew: 100 * time.Millisecond})
	lease := mustLock(t, lock, "abandoned")
	deadline := lease.Deadline()
	lease.Abandon()
	mustUnlock(t, mustLock(t, lock, "abandoned"))
	if time.Now().Before(deadline) {
		t.Error("the lock was granted before the abandoned one had ended")
	}
}

func TestEtcdThatIsDownFailsWithoutWaiting(t *testing.T) {
	t.Parallel()
	lock := newEtcd(t, nobody.Addr, locks.Options{})
	_, err := lock.Lock(t.Context(), "down")
	if !errors.Is(err, locks.ErrNotAcquired) {
		t.Errorf("Lock: %v, want ErrNotAcquired", err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
	if _, err := lock.Lock(t.Context(), "closed"); !errors.Is(err, locks.ErrNotAcquired) {
		t.Errorf("Lock after Close: %v, want ErrNotAcquired", err)
	}
}

func TestEtcdThatIsSilentOrRestarted(t *testing.T) {
	t.Parallel()
	server := serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true})
	eye := connectEtcd(t, server.Addr)
	lock := newEtcd(t, server.Addr, locks.Options{})
	held := mustLock(t, lock, "held")

	pause(t, server.Process)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := lock.Lock(ctx, "silent")
	wantNotAcquired(t, err, context.DeadlineExceeded)
	if err := held.Unlock(); err == nil || errors.Is(err, locks.ErrLeaseLost) {
		t.Errorf("Unlock: %v, want that the server did not answer", err)
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	awaitEtcdQueue(t, eye, "silent", 0)
	awaitEtcdQueue(t, eye, "held", 0)

	held = mustLock(t, lock, "held")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "the lock is granted again", func() bool {
		lease, err := lock.Lock(t.Context(), "restarted")
		return err == nil && lease.Unlock() == nil
	})
	if err := held.Context().Err(); err != nil {
		t.Errorf("the session outlives a restart, but the holder's context says %v", err)
	}
	mustUnlock(t, held)
}
