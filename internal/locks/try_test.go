package locks_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// A try must not create a waiter even for a moment: whoever comes next would wait for its deletion.
func TestATryThatIsRefusedWritesNothingToEtcd(t *testing.T) {
	t.Parallel()
	d := ownEtcd(t).(onEtcd)
	l, contender := newEtcd(t, d.addr, locks.Options{}), newEtcd(t, d.addr, locks.Options{})
	mustUnlock(t, mustLock(t, contender, "other")) // opens the session
	holder := mustLock(t, l, "lock")
	revision := func() int64 {
		got, err := d.observer.Get(t.Context(), "locks/")
		must.Succeed(t, err)
		return got.Header.Revision
	}
	before := revision()
	_, err := contender.Lock(locks.TryOnce(patient(t)), "lock")
	wantNotAcquired(t, err, locks.ErrHeld)
	if after := revision(); after != before {
		t.Errorf("the revision rose from %d to %d", before, after)
	}
	mustUnlock(t, holder)
}

// The holder has lost its lock, but has not unlocked it yet: the lock is free in Redis.
func TestRedisQueueTriesALockThatItsProcessHasLost(t *testing.T) {
	t.Parallel()
	p := newQueueProcess(t, shared.Redis(t), locks.Options{Renew: 10 * time.Millisecond})
	lost := mustLock(t, p, queueKey)
	del(t, p.client, queueKey)
	awaitLoss(t, lost)
	next := mustLockOnce(t, p)
	wantLeaseLost(t, lost.Unlock())
	_, err := p.Lock(locks.TryOnce(patient(t)), queueKey)
	wantNotAcquired(t, err, locks.ErrHeld)
	mustUnlock(t, next)
}

func mustLockOnce(t *testing.T, l locks.Locker) *locks.Lease {
	t.Helper()
	lease, err := l.Lock(locks.TryOnce(patient(t)), queueKey)
	if err != nil {
		t.Fatalf("a try of a free lock: %v", err)
	}
	return lease
}

// Callers that arrive while a try is under way are granted the lock, whatever becomes of the try.
func TestRedisQueueCallersDoNotDependOnATryBeforeThem(t *testing.T) {
	t.Parallel()
	for name, cancelled := range map[string]bool{"refused": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := shared.Redis(t)
			holder := mustLock(t, newQueueProcess(t, server, locks.Options{}), queueKey)
			p := newQueueProcess(t, server, locks.Options{})
			sent, goOn := make(chan struct{}), make(chan struct{})
			var passed atomic.Bool
			p.client.AddHook(hook{script: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
				if passed.Swap(true) {
					return next(ctx, cmd)
				}
				close(sent)
				<-goOn
				return next(ctx, cmd)
			}})
			ctx, cancel := context.WithCancel(patient(t))
			defer cancel()
			_, tried := startLock(locks.TryOnce(ctx), p, queueKey)
			<-sent
			granted := lockLater(t, p, queueKey)
			serverstest.Eventually(t, "a caller waits", func() bool { return p.Waiting(queueKey) == 1 })
			cause := locks.ErrHeld
			if cancelled {
				cause = context.Canceled
				cancel()
			}
			close(goOn)
			wantNotAcquired(t, <-tried, cause)
			mustUnlock(t, holder)
			mustUnlock(t, <-granted)
		})
	}
}

// The lock is free, but somebody is in the queue.
func TestATryPassesOverDeadWaitersOnly(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(time.Hour).UnixMilli()
	for name, enqueue := range map[string]func(ctx context.Context, client redis.UniversalClient, aliveUntil int64){
		"redis-fair": func(ctx context.Context, client redis.UniversalClient, aliveUntil int64) {
			client.RPush(ctx, queueKey+":waiters", "waiter")
			client.HSet(ctx, queueKey+":alive", "waiter", aliveUntil)
		},
		"redis-queue": func(ctx context.Context, client redis.UniversalClient, aliveUntil int64) {
			client.ZAdd(ctx, queueKey+":queue", redis.Z{Score: 1, Member: "waiter/1"})
			client.ZAdd(ctx, queueKey+":heard", redis.Z{Score: float64(aliveUntil), Member: "waiter/1"})
			client.HSet(ctx, queueKey+":memory", "waits", 1)
			client.HDel(ctx, queueKey+":memory", "token") // it exists only while nobody waits
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := subjects[name].Shared(t).(onRedis)
			l := newLock(t, d)
			enqueue(t.Context(), d.observers[0], 1)
			mustUnlock(t, mustLockOnce(t, l))
			enqueue(t.Context(), d.observers[0], long)
			_, err := l.Lock(locks.TryOnce(patient(t)), queueKey)
			wantNotAcquired(t, err, locks.ErrHeld)
		})
	}
}
