package locks_test

import (
	"math"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

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
		if _, err := observer.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.SetSequence(t.Context(), math.MaxInt32, "/locks/order"); err != nil {
		t.Fatal(err)
	}
	lock := newZooKeeper(t, server.Addr, locks.Options{})
	// If the order were left to chance, it would be right once in 720 times.
	grantsInOrder(t, lock, []locks.Locker{lock, lock, lock, lock, lock},
		func(key string, length int) { awaitZKQueue(t, observer, key, length) })
}
