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

// fairChannel carries the id of every waiter whose turn it is.
const fairChannel = "locks:redis-fair:next"

// fairHeartbeat is how long a waiter is taken for alive after it has last asked, or as long as the lease, where that is
// shorter: a dead waiter should not keep the others out for longer than a dead holder. It asks every third of that.
const fairHeartbeat = 3 * time.Second

// RedisFair is RedisPubSub with a queue in Redis: the lock is granted in order of arrival.
//
// What it adds: who comes first is served first (TestRedisFairGrantsInOrderOfArrival), and a release wakes only the first
// (TestRedisFairWakesOnlyTheHead). A waiter that gives up leaves the queue (TestRedisFairForgetsAWaiterThatGaveUp).
//
// What breaks: a waiter that dies at the head of the queue keeps back all others until its heartbeat has run out, a few
// seconds (TestRedisFairPassesADeadHead). Where a waiter gives up while Redis is silent, its last question may be carried out
// after its leave, and then stays in the queue as dead for as long. Order costs speed: between a release and the next
// grant there is always a message to a waiter, while the lock lies idle. And like every rung so far, it does not stop a
// holder that was paused past its lease from writing: see RedisFenced.
type RedisFair struct {
	client    redis.UniversalClient
	options   Options
	heartbeat time.Duration
	waiters   wakeups // by id
	turns     *subscription
}

// NewRedisFair makes the lock on one Redis. Of the options it does without Poll.
func NewRedisFair(client redis.UniversalClient, options Options) *RedisFair {
	l := &RedisFair{client: client, options: options.withDefaults()}
	l.heartbeat = min(fairHeartbeat, l.options.Lease)
	l.turns = newSubscription(client, fairChannel, l.waiters.wake, l.waiters.wakeAll)
	return l
}

// Close ends the subscription.
func (l *RedisFair) Close() error { return l.turns.close() }

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost: also after ctx has ended.
func (l *RedisFair) Lock(ctx context.Context, key string) (*Lease, error) {
	id := rand.Text()
	release := l.leave(key, id)
	woken, leave := l.waiters.join(id)
	defer leave()
	for {
		sent := time.Now()
		pause, err := l.acquire(ctx, key, id)
		if err == nil && pause == 0 {
			lease := newLease(ctx, l.options.guaranteed(sent), 0, release.unlock(key))
			lease.keepAlive(l.options, renewOwned(l.client, key, id, l.options.Lease))
			return lease, nil
		}
		if err == nil {
			l.turns.start()
			err = await(ctx, woken, min(pause, l.heartbeat/3))
		}
		if err != nil {
			takeBack(ctx, l.options.Lease, release.undo) // from the queue, too
			return nil, notAcquired(key, errors.Join(ended(ctx), err))
		}
	}
}

// acquire returns when to ask again without a message, or 0 where the lock was granted.
func (l *RedisFair) acquire(ctx context.Context, key, id string) (pause time.Duration, err error) {
	ms, err := fairAcquireScript.Run(ctx, l.client, fairKeys(key), id, fairChannel,
		l.options.Lease.Milliseconds(), l.heartbeat.Milliseconds()).Int64()
	return time.Duration(ms) * time.Millisecond, err
}

// leave gives the lock back, or the place in the queue.
func (l *RedisFair) leave(key, id string) giveBack {
	return func(ctx context.Context) (ours bool, err error) {
		held, err := fairLeaveScript.Run(ctx, l.client, fairKeys(key), id, fairChannel).Int()
		return held == 1, err
	}
}

func fairKeys(key string) []string {
	return []string{key, sibling(key, ":waiters"), sibling(key, ":alive")}
}
