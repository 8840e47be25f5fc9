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

// contend lets processes take turns at some keys, each with more callers than a turn has grants, and checks that no two
// of them are inside at once and that the tokens of a key only rise.
func contend(t *testing.T, processes []*locks.RedisQueue, keys []string) {
	t.Helper()
	const callers, rounds = 20, 3
	ctx := patient(t)
	var all sync.WaitGroup
	for _, key := range keys {
		var last uint64 // guarded by the lock under test: the race detector watches too
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
							t.Errorf("%s: token %d after %d", key, lease.Token(), last)
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
	for i := range 6 { // in different slots, with a hash tag and without
		keys = append(keys, fmt.Sprintf("lock:{%d}", i), fmt.Sprintf("lock-%d", i))
	}
	contend(t, processes, keys)
}

// After a failover, whoever waits is granted the lock by the new master, and the holder learns that its lock is lost
// where the new one does not know it.
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
	_ = holder.Unlock() // by the new master, which knows of it or does not
	next := <-waiting
	if next.Token() <= holder.Token() {
		t.Errorf("token %d after %d", next.Token(), holder.Token())
	}
	if err := context.Cause(next.Context()); err != nil {
		t.Error(err)
	}
	mustUnlock(t, next)
}
