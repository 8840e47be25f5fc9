package locks_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
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

// loseReply breaks the connection after the next script that is carried out while armed is true, and resets armed.
func loseReply(armed *atomic.Bool) hook {
	return hook{script: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && armed.CompareAndSwap(true, false) {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}}
}

func TestRedisQueueGrantsProcessesInOrderOfArrival(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	observer := connect(t, server)
	p := newQueueProcess(t, server, locks.Options{})
	mustUnlock(t, mustLock(t, p, queueKey))
	holder := mustLock(t, p, queueKey) // by the fast path, which its release must not take
	var waiters []<-chan *locks.Lease
	for i := range int64(5) {
		waiters = append(waiters, lockLater(t, newQueueProcess(t, server, locks.Options{}), queueKey))
		awaitQueue(t, observer, i+1)
	}
	mustUnlock(t, holder)
	last := holder.Token()
	for i, waiter := range waiters {
		lease := <-waiter
		if lease.Token() <= last {
			t.Errorf("waiter %d: token %d after %d, want a greater one", i, lease.Token(), last)
		}
		if waiting := observer.ZCard(t.Context(), queueKey+":queue").Val(); waiting != int64(len(waiters)-i-1) {
			t.Errorf("after grant %d, %d processes wait, want %d", i, waiting, len(waiters)-i-1)
		}
		last = lease.Token()
		mustUnlock(t, lease)
	}
}

func TestRedisQueuePassesOverADeadWaiter(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"silent before its turn": true, "dead when granted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := shared.Redis(t)
			observer := connect(t, server)
			holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
			dead := newQueueProcess(t, server, locks.Options{Lease: time.Second})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = dead.Lock(ctx, queueKey) // never granted
			}()
			t.Cleanup(func() {
				cancel()
				<-ended
			})
			awaitQueue(t, observer, 1)
			living := lockLater(t, newQueueProcess(t, server, locks.Options{}), queueKey)
			awaitQueue(t, observer, 2)
			if err := dead.client.Close(); err != nil {
				t.Fatal(err)
			}
			if silent {
				head := observer.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0]
				serverstest.Eventually(t, "the dead waiter counts as silent", func() bool {
					now := observer.Time(context.Background()).Val().UnixMilli()
					return observer.ZScore(context.Background(), queueKey+":heard", head).Val() < float64(now)
				})
			}
			mustUnlock(t, holder)
			mustUnlock(t, <-living)
		})
	}
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
	if err := observer.ZIncrBy(t.Context(), queueKey+":queue", float64(time.Hour.Microseconds()), head).Err(); err != nil {
		t.Fatal(err)
	}
	second := waitFor(t, newQueueProcess(t, server, locks.Options{}), observer, 2)
	if now := observer.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0]; now != head {
		t.Errorf("%s overtook %s", now, head)
	}
	mustUnlock(t, holder)
	mustUnlock(t, <-first)
	mustUnlock(t, <-second)
}
