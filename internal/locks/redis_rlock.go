package locks

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/rlock_pass.lua
var rlockPassLua string

var rlockPassScript = redis.NewScript(rlockPassLua)

// passesInARow is how many times in a row a process may pass the lock to its own next caller.
const passesInARow = 7

// RedisRLock is RedisPubSub with a queue in each process, after Redisson's RLock: of the callers of a process that want
// a key, only the first asks Redis and waits there.
//
// What it adds: a release wakes one waiter of each process, not all of them, and those of one process are granted the
// lock in their order (TestRedisRLockWakesOneWaiterPerProcess). Unlike Redisson, a process passes the lock on to its
// next caller in one command, which wakes nobody else, up to seven times in a row
// (TestRedisRLockPassesTheLockOnInsideItsProcess).
//
// What still breaks: processes are granted it in no order. One that has released the lock may be granted it again and
// again while others wait. RedisFair makes them queue. As with RedisWatchdog, a holder that was stopped past its lease
// can still write. Unlike Redisson's, it is not re-entrant: see RedisReentrant.
type RedisRLock struct {
	*RedisPubSub
	turns Mutex
}

// NewRedisRLock makes the lock on one Redis. It does not use Options.Poll. The client should not retry (MaxRetries
// -1): see NewRedisOwner.
func NewRedisRLock(client redis.UniversalClient, options Options) *RedisRLock {
	return &RedisRLock{RedisPubSub: NewRedisPubSub(client, options)}
}

// passed is a lock that the last holder of a process has passed to the next.
type passed struct {
	owner  string    // the holder in Redis now
	sent   time.Time // when that was asked for
	passes int       // how many times since the process got it from Redis
	undo   func()    // releases the lock, if nobody is left to take it
}

// Lock implements Locker. The lease is renewed until it is unlocked, abandoned or lost, even after ctx has ended.
func (l *RedisRLock) Lock(ctx context.Context, key string) (*Lease, error) {
	turn, err := l.turns.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	got := turn.passed
	turn.passed = nil
	if got == nil {
		got = &passed{owner: rand.Text()}
		if got.sent, err = l.lockAs(ctx, key, got.owner); err != nil {
			l.turns.exit(key, turn)
			return nil, err
		}
	}
	lease := l.lease(ctx, key, got.owner, got.sent)
	// The turn ends with the release. If the lock is lost or abandoned, it ends at once: the next caller should wait for
	// it in Redis.
	endTurn := sync.OnceFunc(func() { l.turns.exit(key, turn) })
	lease.abandoned = endTurn
	stop := context.AfterFunc(lease.ctx, endTurn)
	inTurn := true
	lease.stopWatching = func() { inTurn = stop() }
	release := lease.release
	lease.release = func(ctx context.Context) error {
		defer endTurn()
		if inTurn && got.passes < passesInARow && l.turns.wanted(turn) {
			return l.pass(ctx, key, got, turn)
		}
		return release(ctx)
	}
	return lease, nil
}

// pass passes the lock to the next caller of this process.
func (l *RedisRLock) pass(ctx context.Context, key string, from *passed, turn *keyMutex) error {
	to := &passed{owner: rand.Text(), sent: time.Now(), passes: from.passes + 1}
	release := l.deleteAndPublish(key, to.owner)
	to.undo = func() { l.undos.takeBack(context.Background(), release.undo) }
	ms := l.options.Lease.Milliseconds()
	switch ours, err := rlockPassScript.Run(ctx, l.client, []string{key}, from.owner, to.owner, ms).Bool(); {
	case err != nil:
		l.undos.takeBackLater(func(ctx context.Context) error {
			return errors.Join(l.deleteAndPublish(key, from.owner).undo(ctx), release.undo(ctx))
		})
		return fmt.Errorf("unlock %s: %w", key, err)
	case !ours:
		return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
	}
	turn.passed = to
	return nil
}
