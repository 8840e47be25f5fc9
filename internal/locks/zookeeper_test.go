package locks_test

import (
	"context"
	"errors"
	"io"
	"log"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// connectZooKeeper makes a connection whose session lasts as long as the lease.
func connectZooKeeper(t testing.TB, addr string, session time.Duration) *zk.Conn {
	conn, _, err := zk.Connect([]string{addr}, session, zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func newZooKeeper(t testing.TB, addr string, o locks.Options) *locks.ZooKeeper {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	lock := locks.NewZooKeeper(connectZooKeeper(t, addr, o.Lease), "/locks", o)
	t.Cleanup(func() { lock.Close() })
	return lock
}

// skipUncut skips a test that breaks connections where the race detector would find what is not ours.
func skipUncut(t testing.TB) {
	if zooKeeperUncut != "" {
		t.Skip(zooKeeperUncut)
	}
}

// zkQueue lists the paths of the nodes that hold or wait for the lock, the oldest first.
func zkQueue(t testing.TB, eye *zk.Conn, key string) (nodes []string) {
	t.Helper()
	names, _, err := eye.Children("/locks/" + key)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	number := func(name string) string { return name[strings.LastIndexByte(name, '-'):] }
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(number(a), number(b)) })
	for _, name := range names {
		nodes = append(nodes, "/locks/"+key+"/"+name)
	}
	return nodes
}

func awaitZKQueue(t testing.TB, eye *zk.Conn, key string, length int) {
	t.Helper()
	serverstest.Eventually(t, "the queue has the length that it should", func() bool { return len(zkQueue(t, eye, key)) == length })
}

func TestZooKeeperGrantsInTheOrderOfArrivalWithRisingTokens(t *testing.T) {
	t.Parallel()
	addr, key := shared.ZooKeeper(t), "order"
	eye := connectZooKeeper(t, addr, time.Minute)
	lock := newZooKeeper(t, addr, locks.Options{})
	held := mustLock(t, lock, key)
	var granted []<-chan *locks.Lease
	var failed []<-chan error
	for i := range 3 {
		waiter := lock // two waiters of one process, and one of another
		if i == 1 {
			waiter = newZooKeeper(t, addr, locks.Options{})
		}
		g, f := startLock(t.Context(), waiter, key)
		granted, failed = append(granted, g), append(failed, f)
		awaitZKQueue(t, eye, key, i+2)
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
	awaitZKQueue(t, eye, key, 0)
}

func TestAZooKeeperHolderThatIsCutOffLearnsBeforeTheNextIsGranted(t *testing.T) {
	t.Parallel()
	addr, key, o := shared.ZooKeeper(t), "cut-off", locks.Options{Lease: time.Second, Renew: 50 * time.Millisecond}
	proxy := tcpproxy.New(t, addr)
	late := mustLock(t, newZooKeeper(t, proxy.Addr(), o), key)
	first := late.Deadline()
	serverstest.Eventually(t, "the lease was renewed", func() bool { return late.Deadline().After(first) })
	proxy.BlackHole()
	next := mustLock(t, newZooKeeper(t, addr, locks.Options{}), key)
	if granted := time.Now(); !late.Deadline().Before(granted) {
		t.Errorf("another holds the lock %v before the first holder's deadline", time.Until(late.Deadline()))
	}
	awaitLoss(t, late) // its timer may be late
	proxy.Pass()
	wantLeaseLost(t, late.Unlock())
	if next.Token() <= late.Token() {
		t.Errorf("token %d after %d", next.Token(), late.Token())
	}
	mustUnlock(t, next)
}

func TestAZooKeeperSessionThatEndsIsNoticedAndReplaced(t *testing.T) {
	t.Parallel()
	addr, key := shared.ZooKeeper(t), "expired"
	proxy := tcpproxy.New(t, addr)
	// The lease is longer than the session, against all advice: only what the connection hears can end it in time.
	conn := connectZooKeeper(t, proxy.Addr(), time.Second)
	lock := locks.NewZooKeeper(conn, "/locks", locks.Options{Lease: time.Hour})
	t.Cleanup(func() { lock.Close() })
	eye := connectZooKeeper(t, addr, time.Minute)
	lost := mustLock(t, lock, key)
	proxy.BlackHole()
	awaitZKQueue(t, eye, key, 0)
	proxy.Pass()
	awaitLoss(t, lost)
	wantLeaseLost(t, lost.Unlock())
	again := mustLock(t, lock, key)
	if again.Token() <= lost.Token() {
		t.Errorf("token %d after %d", again.Token(), lost.Token())
	}
	mustUnlock(t, again)
}

func TestADeletedZooKeeperNodeIsMissedAtOnce(t *testing.T) {
	t.Parallel()
	addr, key := shared.ZooKeeper(t), "deleted"
	eye := connectZooKeeper(t, addr, time.Minute)
	lost := mustLock(t, newZooKeeper(t, addr, locks.Options{}), key)
	if err := eye.Delete(zkQueue(t, eye, key)[0], -1); err != nil {
		t.Fatal(err)
	}
	awaitLoss(t, lost)
	wantLeaseLost(t, lost.Unlock())
}

func TestAZooKeeperWaiterWhoseNodeIsDeletedQueuesUpAgain(t *testing.T) {
	t.Parallel()
	addr, key := shared.ZooKeeper(t), "deleted-waiter"
	eye := connectZooKeeper(t, addr, time.Minute)
	held := mustLock(t, newZooKeeper(t, addr, locks.Options{}), key)
	granted, failed := startLock(t.Context(), newZooKeeper(t, addr, locks.Options{Renew: 50 * time.Millisecond}), key)
	awaitZKQueue(t, eye, key, 2)
	before := zkQueue(t, eye, key)[1]
	if err := eye.Delete(before, -1); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "it waits by another node", func() bool {
		now := zkQueue(t, eye, key)
		return len(now) == 2 && now[1] != before
	})
	mustUnlock(t, held)
	mustUnlock(t, receive(t, granted, failed))
}

func TestAZooKeeperWaiterThatGaveUpLeavesNoNode(t *testing.T) {
	t.Parallel()
	addr, key := shared.ZooKeeper(t), "gave-up"
	eye := connectZooKeeper(t, addr, time.Minute)
	lock := newZooKeeper(t, addr, locks.Options{})
	held := mustLock(t, lock, key)
	ctx, cancel := context.WithCancel(t.Context())
	_, failed := startLock(ctx, lock, key)
	awaitZKQueue(t, eye, key, 2)
	cancel()
	wantNotAcquired(t, <-failed, context.Canceled)
	awaitZKQueue(t, eye, key, 1)
	mustUnlock(t, held)
}

func TestADeadZooKeeperWaiterIsPassedWhenItsSessionEnds(t *testing.T) {
	t.Parallel()
	addr, key := shared.ZooKeeper(t), "dead-waiter"
	eye := connectZooKeeper(t, addr, time.Minute)
	proxy := tcpproxy.New(t, addr)
	held := mustLock(t, newZooKeeper(t, addr, locks.Options{}), key)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, dead := startLock(ctx, newZooKeeper(t, proxy.Addr(), locks.Options{Lease: time.Second}), key)
	awaitZKQueue(t, eye, key, 2)
	granted, failed := startLock(t.Context(), newZooKeeper(t, addr, locks.Options{}), key)
	awaitZKQueue(t, eye, key, 3)
	proxy.BlackHole()
	mustUnlock(t, held)
	mustUnlock(t, receive(t, granted, failed))
	awaitZKQueue(t, eye, key, 0)
	wantServiceError(t, receive(t, dead, nil))
}

func TestACutZooKeeperConnectionLeavesNoNode(t *testing.T) {
	t.Parallel()
	skipUncut(t)
	addr, key := shared.ZooKeeper(t), "cut"
	eye := connectZooKeeper(t, addr, time.Minute)
	proxy := tcpproxy.New(t, addr)
	for _, where := range []tcpproxy.Where{tcpproxy.BeforeRequest, tcpproxy.BeforeReply} {
		for k, armed := 1, false; !armed; k++ { // until nothing is left to cut
			lock := newZooKeeper(t, proxy.Addr(), locks.Options{})
			mustUnlock(t, mustLock(t, lock, "warm-up"))
			proxy.Cut(k, where)
			if lease, err := lock.Lock(t.Context(), key); err == nil {
				_ = lease.Unlock()
			}
			armed = proxy.Armed()
			proxy.Pass()
			awaitZKQueue(t, eye, key, 0)
		}
	}
}

func TestAnAbandonedZooKeeperLockEndsWithTheLease(t *testing.T) {
	t.Parallel()
	lock := newZooKeeper(t, shared.ZooKeeper(t), locks.Options{Lease: time.Second, Renew: 50 * time.Millisecond})
	lease := mustLock(t, lock, "abandoned")
	deadline := lease.Deadline()
	lease.Abandon()
	mustUnlock(t, mustLock(t, lock, "abandoned"))
	if time.Now().Before(deadline) {
		t.Error("the lock was granted before the abandoned one had ended")
	}
}

func TestKeysThatAreNoNodeNamesAreDifferentZooKeeperLocks(t *testing.T) {
	t.Parallel()
	lock := newZooKeeper(t, shared.ZooKeeper(t), locks.Options{})
	for _, key := range []string{"", ".", "..", "lock:{1}", "a/b", "a", "%", "%2F", "ä", "\x00"} {
		defer mustUnlock(t, mustLock(t, lock, key))
	}
}

func TestZooKeeperThatIsDownFailsWithoutWaiting(t *testing.T) {
	t.Parallel()
	_, err := newZooKeeper(t, nobody.Addr, locks.Options{}).Lock(t.Context(), "down")
	wantServiceError(t, err)
}

func TestZooKeeperThatIsSilentOrRestarted(t *testing.T) {
	t.Parallel()
	skipUncut(t)
	server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{Relaxed: true})
	eye := connectZooKeeper(t, server.Addr, time.Minute)
	lock := newZooKeeper(t, server.Addr, locks.Options{})
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
	awaitZKQueue(t, eye, "silent", 0)
	awaitZKQueue(t, eye, "held", 0)

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
