package locks_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

const queueKey = "lock:{1}"

// queueProcess is a process that contends for the lock, with its own client.
type queueProcess struct {
	*locks.RedisQueue
	client redis.UniversalClient
}

func newQueueProcess(t testing.TB, server *redis.Options, o locks.Options) queueProcess {
	client := connect(t, server)
	p := queueProcess{locks.NewRedisQueue(client, o), client}
	t.Cleanup(func() { p.Close() })
	return p
}

// awaitQueue waits until the given number of processes wait in the queue of queueKey in Redis.
func awaitQueue(t testing.TB, observer redis.UniversalClient, processes int64) {
	t.Helper()
	serverstest.Eventually(t, fmt.Sprint(processes, " processes wait"), func() bool {
		return observer.ZCard(context.Background(), queueKey+":queue").Val() == processes
	})
}

// waitFor makes p wait for queueKey, and waits until it is in the queue, as the given number of processes are, and is
// subscribed.
func waitFor(t *testing.T, p queueProcess, observer redis.UniversalClient, processes int64) <-chan *locks.Lease {
	t.Helper()
	granted := lockLater(t, p, queueKey)
	awaitQueue(t, observer, processes)
	channel := p.Process()
	serverstest.Eventually(t, "the process is subscribed", func() bool {
		return observer.PubSubNumSub(context.Background(), channel).Val()[channel] == 1
	})
	return granted
}

// waitBehindHolder makes a process wait for queueKey, which another process holds.
func waitBehindHolder(t *testing.T) (
	p queueProcess, observer redis.UniversalClient, holder *locks.Lease, granted <-chan *locks.Lease,
) {
	t.Helper()
	server := shared.Redis(t)
	p, observer = newQueueProcess(t, server, locks.Options{}), connect(t, server)
	holder = mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	return p, observer, holder, waitFor(t, p, observer, 1)
}

// The holder's lease has ended, the first in the queue has not noticed yet, and another process asks.
func TestRedisQueueKeepsTheOrderWhenALeaseEnds(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	first, late := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{})
	observer := connect(t, server)
	mustUnlock(t, mustLock(t, late, queueKey)) // it could take the fast path, but for the queue
	mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	granted := waitFor(t, first, observer, 1)
	del(t, observer, queueKey)
	overtakes := lockLater(t, late, queueKey)
	lease := <-granted
	if owner := observer.Get(t.Context(), queueKey).Val(); !strings.HasPrefix(owner, first.Process()) {
		t.Errorf("%s holds the lock, want the first in the queue, %s", owner, first.Process())
	}
	mustUnlock(t, lease)
	mustUnlock(t, <-overtakes)
}

func TestRedisQueueKeepsTheOrderWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	observer := connect(t, server)
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
	first := waitFor(t, newQueueProcess(t, server, locks.Options{}), observer, 1)
	head := observer.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0]
	// It arrived before the clock was set back by an hour.
	must.Succeed(t, observer.ZIncrBy(t.Context(), queueKey+":queue", float64(time.Hour.Microseconds()), head).Err())
	second := waitFor(t, newQueueProcess(t, server, locks.Options{}), observer, 2)
	if now := observer.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0]; now != head {
		t.Errorf("%s overtook %s", now, head)
	}
	mustUnlock(t, holder)
	mustUnlock(t, <-first)
	mustUnlock(t, <-second)
}

// queueUp makes callers of one process wait behind its holder. They send their leases to order as they are granted.
func queueUp(t *testing.T, p queueProcess, callers int, order chan<- *locks.Lease) {
	ctx := patient(t)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for range callers {
		running.Go(func() {
			lease, err := p.Lock(ctx, queueKey)
			if err != nil {
				t.Error(err)
				return
			}
			order <- lease
			if err := lease.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	serverstest.Eventually(t, fmt.Sprint(callers, " callers wait"), func() bool { return p.Waiting(queueKey) == callers })
}

func TestRedisQueueHandsOverInsideTheProcessWithoutACommand(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p := newQueueProcess(t, server, locks.Options{})
	p.TakeTime()
	var scripts atomic.Int64
	p.client.AddHook(hook{script: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		scripts.Add(1)
		return next(ctx, cmd)
	}})
	mustUnlock(t, mustLock(t, p, queueKey)) // loads the scripts
	holder := mustLock(t, p, queueKey)
	order := make(chan *locks.Lease, locks.TurnGrants)
	queueUp(t, p, locks.TurnGrants-1, order)
	scripts.Store(0)
	mustUnlock(t, holder)
	last := holder.Token()
	for range locks.TurnGrants - 1 {
		lease := <-order
		if lease.Token() != last+1 {
			t.Errorf("token %d after %d, want the next of the block", lease.Token(), last)
		}
		last = lease.Token()
	}
	serverstest.Eventually(t, "the last caller has released the lock", func() bool { return scripts.Load() > 0 })
	if n := scripts.Load(); n != 1 {
		t.Errorf("%d scripts for the rest of a turn, want only the release", n)
	}
}

func TestRedisQueueEndsATurnIfOtherProcessesWait(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	first, second := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{})
	observer := connect(t, server)
	holder := mustLock(t, first, queueKey)
	const callers = 2 * locks.TurnGrants
	order := make(chan *locks.Lease, callers)
	queueUp(t, first, callers, order)
	other := lockLater(t, second, queueKey)
	awaitQueue(t, observer, 1)

	mustUnlock(t, holder)
	lease := <-other
	if before := len(order); before >= locks.TurnGrants {
		t.Errorf("%d callers of the first process were granted the lock before the second process, want fewer than %d",
			before, locks.TurnGrants)
	}
	mustUnlock(t, lease)
	for range callers {
		<-order
	}
}

func TestRedisQueueDoesNotWaitForAHolderThatLostItsLock(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"an earlier caller": true, "a later caller": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := shared.Redis(t)
			p, observer := newQueueProcess(t, server, locks.Options{Lease: time.Second}), connect(t, server)
			lost := mustLock(t, p, queueKey)
			var next <-chan *locks.Lease
			if waits {
				next = lockLater(t, p, queueKey)
				serverstest.Eventually(t, "the caller waits", func() bool { return p.Waiting(queueKey) == 1 })
			}
			del(t, observer, queueKey)
			<-lost.Context().Done()
			if !waits {
				next = lockLater(t, p, queueKey)
			}
			lease := <-next
			wantLeaseLost(t, lost.Unlock())
			if !exists(t, observer, queueKey) {
				t.Error("Unlock of the lost lock released that of the next holder")
			}
			mustUnlock(t, lease)
			mustUnlock(t, mustLock(t, p, queueKey))
		})
	}
}

// passOn passes a key from one process to another, which waits for it.
func passOn(t *testing.T, from, to *locks.RedisQueue, key string) {
	t.Helper()
	holder := mustLock(t, from, key)
	granted := lockLater(t, to, key)
	serverstest.Eventually(t, "the other process waits", func() bool { return to.Waiting(key) == 1 })
	mustUnlock(t, holder)
	next := <-granted
	if next.Token() <= holder.Token() {
		t.Errorf("%s: token %d after %d, want a greater one", key, next.Token(), holder.Token())
	}
	mustUnlock(t, next)
}

// newQueues makes two processes.
func newQueues(t *testing.T, newClient func() redis.UniversalClient) (queues [2]*locks.RedisQueue) {
	for i := range queues {
		client := newClient()
		queues[i] = locks.NewRedisQueue(client, locks.Options{})
		t.Cleanup(func() {
			queues[i].Close()
			client.Close()
		})
	}
	return queues
}

func TestRedisQueueWorksOnACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	queues := newQueues(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs, ContextTimeoutEnabled: true})
	})
	for i := range 6 { // in different hash slots, with a hash tag and without
		passOn(t, queues[0], queues[1], fmt.Sprintf("lock:{%d}", i))
		passOn(t, queues[1], queues[0], fmt.Sprintf("lock-%d", i))
	}
}

// After a failover, the next waiter is granted the lock by the new master, with a greater token. The old holder may
// have lost its lock.
func TestRedisQueueFollowsTheMasterOfASentinel(t *testing.T) {
	t.Parallel()
	sentinel := serverstest.StartSentinel(t)
	queues := newQueues(t, func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sentinel.MasterName, SentinelAddrs: sentinel.SentinelAddrs, ContextTimeoutEnabled: true, MaxRetries: -1,
		})
	})
	passOn(t, queues[0], queues[1], queueKey)

	holder := mustLock(t, queues[0], queueKey)
	waiting := lockLater(t, queues[1], queueKey)
	serverstest.Eventually(t, "the second process waits", func() bool { return queues[1].Waiting(queueKey) == 1 })
	sentinel.Master.Kill()
	_ = holder.Unlock() // on the new master, which may not know the lock
	next := <-waiting
	if next.Token() <= holder.Token() || next.Context().Err() != nil {
		t.Errorf("token %d after %d, %v, want a greater one", next.Token(), holder.Token(), context.Cause(next.Context()))
	}
	mustUnlock(t, next)
}
