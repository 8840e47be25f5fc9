package locks

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/fair_queue.lua
	fairQueueLua string
	//go:embed lua/fair_acquire.lua
	fairAcquireLua string
	//go:embed lua/fair_leave.lua
	fairLeaveLua string

	fairAcquireScript = redis.NewScript(fairQueueLua + fairAcquireLua)
	fairLeaveScript   = redis.NewScript(fairQueueLua + fairLeaveLua)
)

// fairChannel carries the id of every waiter whose turn has come.
const fairChannel = "locks:redis-fair:next"

// fairHeartbeat is how long a waiter counts as alive after its last request; the lease bounds it, so that a dead
// waiter does not block the others for longer than a dead holder. A waiter asks again every third of it.
const fairHeartbeat = 3 * time.Second

// RedisFair is RedisPubSub with a queue in Redis: the lock is granted in order of arrival.
//
// What it adds: the client that arrives first is served first (TestWaitersThatQueueAreGrantedTheLockInOrderOfArrival),
// and a release wakes only the first waiter (TestRedisFairWakesOnlyTheHead). A waiter that gives up leaves the queue.
//
// What still breaks:
//
//   - A waiter that dies at the head of the queue blocks the others until its heartbeat has expired, for a few seconds
//     (TestADeadWaiterIsPassedOver).
//   - If a waiter gives up while Redis does not answer, its last request may be carried out after its leave. Its entry
//     then stays in the queue for as long as a dead waiter's.
//   - Order costs speed: between a release and the next grant, the lock is idle while a message travels to a waiter.
//   - A holder that was stopped until its lease had ended can still write. RedisFenced has the cure.
type RedisFair struct {
	redisLock
	heartbeat time.Duration
	waiters   *wakeups // by id
}

// NewRedisFair makes the lock on one Redis. It does not use Options.Poll.
func NewRedisFair(client redis.UniversalClient, options Options) *RedisFair {
	waiters := newWakeups(client, options.ChannelPrefix+fairChannel)
	l := &RedisFair{redisLock: newRedisLock(client, options), waiters: waiters}
	l.heartbeat = min(fairHeartbeat, l.options.Lease)
	return l
}

// Close ends the subscription, and stops the background retries of failed Locks and Unlocks. A lock that is not
// released by then lasts until its lease ends.
func (l *RedisFair) Close() error { return errors.Join(l.redisLock.Close(), l.waiters.close()) }

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost, even after ctx has ended.
func (l *RedisFair) Lock(ctx context.Context, key string) (*Lease, error) {
	id := rand.Text()
	release := l.leave(key, id)
	woken, leave := l.waiters.join(id)
	defer leave()
	var pause time.Duration
	sent, err := l.await(ctx, key, request{
		ask: func() (granted bool, err error) {
			pause, err = l.acquire(ctx, key, id)
			return pause == 0, err
		},
		undo:   release.undo,
		wait:   func(ctx context.Context) error { return l.waiters.wait(ctx, woken, min(pause, l.heartbeat/3)) },
		queues: true,
	})
	if err != nil {
		return nil, err
	}
	lease := newLease(ctx, l.options.guaranteed(sent), 0, l.unlock(key, release))
	l.keepAlive(lease, key, id)
	return lease, nil
}

// acquire returns when to ask again if no message comes, or 0 if the lock was granted. Under TryOnce it does not queue.
func (l *RedisFair) acquire(ctx context.Context, key, id string) (pause time.Duration, err error) {
	ms, err := fairAcquireScript.Run(ctx, l.client, fairKeys(key), id, l.waiters.channel(),
		l.options.Lease.Milliseconds(), l.heartbeat.Milliseconds(), triesOnce(ctx)).Int64()
	return time.Duration(ms) * time.Millisecond, err
}

// leave releases the lock, or leaves the queue.
func (l *RedisFair) leave(key, id string) releaseFunc {
	return func(ctx context.Context) (ours bool, err error) {
		held, err := fairLeaveScript.Run(ctx, l.client, fairKeys(key), id, l.waiters.channel()).Int()
		return held == 1, err
	}
}

func fairKeys(key string) []string {
	return []string{key, sibling(key, ":waiters"), sibling(key, ":alive")}
}
