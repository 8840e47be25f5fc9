package locks_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/locks/lockstest"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// Tests of the locks whose waiters queue on the server.

// queueing are these locks, with a lease that a dead waiter may delay the others for.
var queueing = map[string]time.Duration{
	"redis-fair": 600 * time.Millisecond, "redis-queue": time.Second, "etcd": 2 * time.Second, "zookeeper": time.Second,
}

// awaitWaiters waits until the given number of clients wait on the server for a key that is held.
func awaitWaiters(t testing.TB, d lockstest.Deployment, key string, want int) {
	t.Helper()
	serverstest.Eventually(t, fmt.Sprintf("%d clients wait for %s", want, key), func() bool {
		if redis, ok := d.(onRedis); ok {
			r, ctx := redis.observers[0], context.WithoutCancel(t.Context())
			return r.LLen(ctx, "{"+key+"}:waiters").Val()+r.ZCard(ctx, "{"+key+"}:queue").Val() == int64(want)
		}
		return len(d.Left(t, key)) == want+1
	})
}

// grantsInOrder makes clients wait for a key, and checks that they are granted it in order of arrival, with rising
// tokens.
func grantsInOrder(t *testing.T, d lockstest.Deployment, tokens bool, holder locks.Locker, waiters []locks.Locker) {
	t.Helper()
	const key = "order"
	held := mustLock(t, holder, key)
	var granted []<-chan *locks.Lease
	for i, waiter := range waiters {
		granted = append(granted, lockLater(t, waiter, key))
		awaitWaiters(t, d, key, i+1)
	}
	for _, next := range granted {
		mustUnlock(t, held)
		last := held.Token()
		held = receive(t, next, nil) // would time out if a later waiter had been granted the lock first
		if tokens && held.Token() <= last {
			t.Errorf("token %d after %d, want a greater one", held.Token(), last)
		}
	}
	mustUnlock(t, held)
}

func TestWaitersThatQueueAreGrantedTheLockInOrderOfArrival(t *testing.T) {
	t.Parallel()
	for name := range queueing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := subjects[name].Shared(t)
			clients := make([]locks.Locker, 5)
			for i := range clients {
				clients[i] = d.New(t, d.Addresses(), lasting)
				t.Cleanup(func() { _ = locks.Close(clients[i]) })
			}
			mustUnlock(t, mustLock(t, clients[0], "order")) // then redis-queue has a fast path, which it must not take
			grantsInOrder(t, d, subjects[name].Tokens, clients[0], clients[1:])
		})
	}
}

// A waiter that lost its network delays the next one only until its lease or its heartbeat has ended.
func TestADeadWaiterIsPassedOver(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	const key = "dead-waiter"
	for name, lease := range queueing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if subjects[name].Uncut != "" {
				t.Skip(subjects[name].Uncut)
			}
			d := subjects[name].Shared(t)
			proxy := tcpproxy.New(t, d.Addresses()...)
			holder, next := d.New(t, d.Addresses(), lasting), d.New(t, d.Addresses(), lasting)
			dead := d.New(t, proxy.Addresses(), locks.Options{Lease: lease})
			for _, l := range []locks.Locker{holder, next, dead} {
				t.Cleanup(func() { _ = locks.Close(l) })
			}
			held := mustLock(t, holder, key)
			ctx, giveUp := context.WithCancel(t.Context())
			_, failed := startLock(ctx, dead, key)
			awaitWaiters(t, d, key, 1)
			granted := lockLater(t, next, key)
			awaitWaiters(t, d, key, 2)
			proxy.BlackHole()
			mustUnlock(t, held)
			mustUnlock(t, receive(t, granted, nil))
			giveUp()
			_ = receive(t, failed, nil)
		})
	}
}

// Its session has ended, or its node was deleted.
func TestAWaiterThatLosesItsPlaceQueuesAgain(t *testing.T) {
	t.Parallel()
	const key = "lost-place"
	for _, name := range []string{"etcd", "zookeeper"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := subjects[name].Shared(t)
			var clients [2]locks.Locker
			for i := range clients {
				clients[i] = d.New(t, d.Addresses(), locks.Options{Lease: lasting.Lease, Renew: 50 * time.Millisecond})
				t.Cleanup(func() { _ = locks.Close(clients[i]) })
			}
			held := mustLock(t, clients[0], key)
			granted := lockLater(t, clients[1], key)
			awaitWaiters(t, d, key, 1)
			lost := d.Left(t, key)[1]
			switch d := d.(type) {
			case onEtcd:
				_, sessions := etcdQueue(t, d.observer, key)
				_, err := d.observer.Revoke(t.Context(), sessions[1])
				must.Succeed(t, err)
			case onZooKeeper:
				must.Succeed(t, d.observer.Delete(lost, -1))
			}
			serverstest.Eventually(t, "the waiter has another place", func() bool {
				places := d.Left(t, key)
				return len(places) == 2 && places[1] != lost
			})
			mustUnlock(t, held)
			mustUnlock(t, receive(t, granted, nil))
		})
	}
}
