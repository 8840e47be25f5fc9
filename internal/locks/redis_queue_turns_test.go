package locks_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
)

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

func TestRedisQueueWaitsForAnAbandonedLockToEnd(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, observer := newQueueProcess(t, server, locks.Options{Lease: 300 * time.Millisecond}), connect(t, server)
	holder := mustLock(t, p, queueKey)
	order := make(chan *locks.Lease, 1)
	queueUp(t, p, 1, order)
	owner := observer.Get(t.Context(), queueKey).Val()
	deadline := holder.Deadline()
	holder.Abandon()
	lease := <-order
	if time.Now().Before(deadline) {
		t.Error("the lock was granted before the abandoned lease had ended")
	}
	if next := observer.Get(t.Context(), queueKey).Val(); next == owner {
		t.Error("the abandoned lock was handed over inside the process")
	}
	if lease.Token() <= holder.Token() {
		t.Errorf("token %d after %d, want a greater one", lease.Token(), holder.Token())
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

func TestRedisQueueReportsALostLockAfterTheNextHolderOfTheProcessReleased(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, observer := newQueueProcess(t, server, locks.Options{Lease: time.Second}), connect(t, server)
	lost := mustLock(t, p, queueKey)
	del(t, observer, queueKey)
	<-lost.Context().Done()
	mustUnlock(t, mustLock(t, p, queueKey))
	wantLeaseLost(t, lost.Unlock())
}
