package locks_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// promptZooKeeper makes a client connect again if a server that is starting does not answer.
var promptZooKeeper = zk.WithDialer(locks.LimitZooKeeperHandshake(net.DialTimeout, 3*time.Second))

// connectZooKeeper makes a connection with the given session timeout.
func connectZooKeeper(t testing.TB, addr string, session time.Duration) *zk.Conn {
	conn, _, err := zk.Connect([]string{addr}, session, promptZooKeeper, zk.WithLogger(log.New(io.Discard, "", 0)))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func newZooKeeper(t testing.TB, addr string) *locks.ZooKeeper {
	o := locks.Options{Lease: 30 * time.Second}
	lock := locks.NewZooKeeper(connectZooKeeper(t, addr, o.Lease), "/locks", nil, o)
	t.Cleanup(func() { lock.Close() })
	return lock
}

// skipUncut skips a test that breaks connections if the race detector would report a race of the client.
func skipUncut(t testing.TB) {
	if whyZooKeeperIsNotCut != "" {
		t.Skip(whyZooKeeperIsNotCut)
	}
}

// zkQueue lists the nodes of the holder and the waiters of a lock, oldest first. It waits until the observer is
// connected: the server may have been restarted.
func zkQueue(t testing.TB, observer *zk.Conn, key string) (nodes []string) {
	t.Helper()
	var names []string
	var err error
	serverstest.Eventually(t, "the observer is connected", func() bool {
		names, _, err = observer.Children("/locks/" + key)
		return !errors.Is(err, zk.ErrNoServer) && !errors.Is(err, zk.ErrConnectionClosed)
	})
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

func awaitZKQueue(t testing.TB, observer *zk.Conn, key string, length int) {
	t.Helper()
	serverstest.Eventually(t, fmt.Sprintf("%d clients hold or wait for %s", length, key), func() bool {
		return len(zkQueue(t, observer, key)) == length
	})
}

func TestZooKeeperHolderNoticesAnEndedSessionAndGetsAnother(t *testing.T) {
	t.Parallel()
	addr, key := shared.ZooKeeper(t), "expired"
	proxy := tcpproxy.New(t, addr)
	// The lease is longer than the session, which NewZooKeeper forbids, so that only the connection can report the
	// loss.
	conn := connectZooKeeper(t, proxy.Addr(), time.Second)
	lock := locks.NewZooKeeper(conn, "/locks", nil, locks.Options{Lease: time.Hour, Renew: 100 * time.Millisecond})
	t.Cleanup(func() { lock.Close() })
	observer := connectZooKeeper(t, addr, time.Minute)
	lost := mustLock(t, lock, key)
	proxy.BlackHole()
	awaitZKQueue(t, observer, key, 0)
	proxy.Pass()
	awaitLoss(t, lost)
	wantLeaseLost(t, lost.Unlock())
	again := mustLock(t, lock, key)
	if again.Token() <= lost.Token() {
		t.Errorf("token %d after %d, want a greater one", again.Token(), lost.Token())
	}
	mustUnlock(t, again)
}

func TestZooKeeperConnectsAgainIfAServerDoesNotAnswerTheHandshake(t *testing.T) {
	t.Parallel()
	proxy := tcpproxy.New(t, shared.ZooKeeper(t))
	proxy.BlackHole()
	dial := locks.LimitZooKeeperHandshake(net.DialTimeout, 500*time.Millisecond)
	conn, events, err := zk.Connect([]string{proxy.Addr()}, 30*time.Second, zk.WithDialer(dial),
		zk.WithLogger(log.New(io.Discard, "", 0)))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	for deadline := time.After(patience); ; {
		select {
		case event := <-events:
			switch event.State {
			case zk.StateDisconnected:
				proxy.Pass()
			case zk.StateHasSession:
				return
			}
		case <-deadline:
			t.Fatal("the client waits for an answer")
		}
	}
}

// The counter of the new queue begins at 0 again, but the token is greater.
func TestZooKeeperDeletesTheQueueOfAFreeLock(t *testing.T) {
	t.Parallel()
	server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{
		Relaxed: true, Java: []string{"-Dznode.container.checkIntervalMs=50"},
	})
	observer := connectZooKeeper(t, server.Addr, time.Minute)
	lock := newZooKeeper(t, server.Addr)
	var last uint64
	for range 2 {
		lease := mustLock(t, lock, "free")
		if lease.Token() <= last {
			t.Errorf("token %d after %d, want a greater one", lease.Token(), last)
		}
		last = lease.Token()
		mustUnlock(t, lease)
		serverstest.Eventually(t, "the queue is deleted", func() bool {
			exists, _, err := observer.Exists("/locks/free")
			return err == nil && !exists
		})
	}
}

func TestAZooKeeperQueueThatIsDeletedTooSoonIsCreatedAgain(t *testing.T) {
	t.Parallel()
	addr, key := shared.ZooKeeper(t), "deleted-too-soon"
	observer := connectZooKeeper(t, addr, time.Minute)
	proxy := tcpproxy.New(t, addr)
	creations := 0
	proxy.Select(func(m tcpproxy.Message) bool {
		if bytes.Contains(m.Data, []byte("/locks/"+key+"/")) {
			creations++
			return creations == 2 // the first finds no queue
		}
		return false
	})
	release := proxy.Hold()
	granted, failed := startLock(t.Context(), newZooKeeper(t, proxy.Addr()), key)
	serverstest.Eventually(t, "the node is about to be created", func() bool { return proxy.Count() == 1 })
	must.Succeed(t, observer.Delete("/locks/"+key, -1))
	release()
	mustUnlock(t, receive(t, granted, failed))
}

// From the end of the counter on, the server gives the greatest number to every node, and negative ones to some that
// are created at once.
func TestZooKeeperGrantsInOrderAfterTheCounterOverflowed(t *testing.T) {
	t.Parallel()
	skipUncut(t)
	server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{
		Relaxed: true, Java: []string{servers.WithoutDigest},
	})
	observer := connectZooKeeper(t, server.Addr, time.Minute)
	for _, node := range []string{"/locks", "/locks/order"} {
		_, err := observer.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		must.Succeed(t, err)
	}
	must.Succeed(t, server.SetSequence(t.Context(), math.MaxInt32, "/locks/order"))
	lock := newZooKeeper(t, server.Addr)
	// If the order were left to chance, it would be right once in 720 times.
	d := onZooKeeper{processes{server}, server.Addr, observer}
	grantsInOrder(t, d, true, lock, []locks.Locker{lock, lock, lock, lock, lock})
}
