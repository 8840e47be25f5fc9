package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A turn begins when Redis grants a process the lock. In it, the process runs at most turnGrants critical sections, and
// starts none after turnTime. So for each process before it, a process waits at most turnTime and one critical section,
// or until the lease of a dead one ends.
const (
	turnGrants = 16
	turnTime   = 100 * time.Millisecond
)

// queueHeartbeat is how long a waiting process counts as alive after its last request. Then it is skipped. It asks
// three times in that time.
const queueHeartbeat = 3 * time.Second

// queueOutage is how long Redis may be away before those who wait are refused: a failover takes seconds.
const queueOutage = 5 * time.Second

// RedisQueue is a fair, fenced lock for many contenders in few processes. For each key, Redis keeps one queue of
// processes, and each process keeps a queue of its own callers. A process hands the lock over from caller to caller
// for a bounded turn, so that most grants cost no command (lock cohorting: Dice, Marathe and Shavit, "Lock Cohorting",
// PPoPP 2012).
//
// What it adds to RedisFenced: order without polling; a waiter that died is passed over within seconds; every command
// may be carried out twice, or late, without harm; one subscription per process, however many locks.
//
//   - A release sends the grant to the process whose turn has come. The message may be lost or late: a waiter also
//     asks three times per heartbeat, when the holder's lease ends, and after its subscription was broken.
//   - A turn has a block of tokens. Each critical section has its own token, greater than all before it.
//   - The lease's context ends at the deadline that is certain on the client's clock, whatever becomes of a renewal.
//   - A waiter that gives up leaves a mark in Redis, so that a late command of its own is refused, not granted.
//
// What still breaks:
//
//   - It is not re-entrant: a holder that asks again waits for itself. See RedisReentrant.
//   - A holder can be stopped past its lease, as with every lock: the store must check the token.
//   - It depends on a single Redis, or on the replica that Sentinel or Cluster promotes, which may have missed the
//     last grants. Two clients then hold the lock until the earlier one's next renewal. The later one has the greater
//     token as long as the servers' clocks agree.
//   - A lock that nobody else wants is slower than RedisLua: tokens and marks cost three calls inside the scripts.
//
// redis_queue_waiters.go holds the callers that wait in this process, redis_queue_turns.go the hand-over inside the
// process, and redis_queue_protocol.go the requests to Redis.
type RedisQueue struct {
	redisLock
	heartbeat time.Duration
	turnTime  time.Duration
	process   string // names this process in the queues in Redis, and its channel
	// The arguments that all scripts have in common.
	leaseArg, processArg any
	messages             *subscription

	mu      sync.Mutex
	closed  bool
	cohorts map[string]*cohort // by key, while somebody in this process holds or wants it
	turns   uint64             // started so far
}

// NewRedisQueue makes the lock on one Redis, the master of a Sentinel group, or a Cluster.
func NewRedisQueue(client redis.UniversalClient, options Options) *RedisQueue {
	q := &RedisQueue{
		redisLock: newRedisLock(client, options),
		turnTime:  turnTime,
		process:   options.ChannelPrefix + "locks:" + rand.Text(),
		cohorts:   map[string]*cohort{},
	}
	q.leaseArg, q.processArg = q.options.Lease.Milliseconds(), q.process
	q.heartbeat = min(queueHeartbeat, q.options.Lease)
	q.messages = newSubscription(client, q.process, q.onMessage, q.askAll)
	return q
}

// Close ends the subscription and the renewals, and stops the background retries of failed Locks and Unlocks. A lock
// that is not released by then lasts until its lease ends.
func (q *RedisQueue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	return errors.Join(q.redisLock.Close(), q.messages.close())
}

// Lock implements Locker. Within one process, the lock is granted in the order of the calls.
func (q *RedisQueue) Lock(ctx context.Context, key string) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, notAcquired(key, err)
	}
	if err := q.undos.full(); err != nil {
		return nil, notAcquired(key, err)
	}
	once := triesOnce(ctx)
	q.mu.Lock()
	c, shared := q.cohorts[key]
	switch {
	case shared && !c.turn.lost && once: // refused without asking Redis
		q.mu.Unlock()
		return nil, notAcquired(key, ErrHeld)
	case shared && !c.turn.lost:
		w := newWaiter(ctx)
		w.place = c.waiting.PushBack(w)
		q.mu.Unlock()
		return q.wait(c, w)
	case !shared:
		c = q.newCohort(key)
	}
	t := q.newTurn(c)
	t.once = once
	q.mu.Unlock()
	return q.askFirst(ctx, t)
}
