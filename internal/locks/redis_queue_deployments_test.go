package locks_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
)

// contend makes processes contend for keys, each with more callers (20) than a turn grants (16). It checks that nobody
// holds a key at the same time as another caller, and that the tokens of each key rise.
func contend(t *testing.T, processes []*locks.RedisQueue, keys []string) {
	t.Helper()
	const callers, rounds = 20, 3
	ctx := patient(t)
	var all sync.WaitGroup
	for _, key := range keys {
		var last uint64 // guarded by the lock under test, which the race detector checks too
		for _, p := range processes {
			for range callers {
				all.Go(func() {
					for range rounds {
						lease, err := p.Lock(ctx, key)
						if err != nil {
							t.Error(err)
							return
						}
						if lease.Token() <= last {
							t.Errorf("%s: token %d after %d, want a greater one", key, lease.Token(), last)
						}
						last = lease.Token()
						if err := lease.Unlock(); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	}
	all.Wait()
}

func TestRedisQueueWorksOnACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	var processes []*locks.RedisQueue
	for range 2 {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs, ContextTimeoutEnabled: true})
		q := locks.NewRedisQueue(client, locks.Options{})
		t.Cleanup(func() {
			q.Close()
			client.Close()
		})
		processes = append(processes, q)
	}
	var keys []string
	for i := range 6 { // in different hash slots, with a hash tag and without
		keys = append(keys, fmt.Sprintf("lock:{%d}", i), fmt.Sprintf("lock-%d", i))
	}
	contend(t, processes, keys)
}

// After a failover, the next waiter is granted the lock by the new master, with a greater token. The old holder may
// have lost its lock.
func TestRedisQueueFollowsTheMasterOfASentinel(t *testing.T) {
	t.Parallel()
	sentinel := serverstest.StartSentinel(t)
	var processes []*locks.RedisQueue
	for range 2 {
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sentinel.MasterName, SentinelAddrs: sentinel.SentinelAddrs, ContextTimeoutEnabled: true, MaxRetries: -1,
		})
		q := locks.NewRedisQueue(client, locks.Options{})
		t.Cleanup(func() {
			q.Close()
			client.Close()
		})
		processes = append(processes, q)
	}
	contend(t, processes, []string{queueKey})

	holder := mustLock(t, processes[0], queueKey)
	waiting := lockLater(t, processes[1], queueKey)
	serverstest.Eventually(t, "the second process waits", func() bool { return processes[1].Waiting(queueKey) == 1 })
	sentinel.Master.Kill()
	_ = holder.Unlock() // on the new master, which may not know the lock
	next := <-waiting
	if next.Token() <= holder.Token() {
		t.Errorf("token %d after %d, want a greater one", next.Token(), holder.Token())
	}
	if err := context.Cause(next.Context()); err != nil {
		t.Error(err)
	}
	mustUnlock(t, next)
}
