package locks

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"
)

const (
	// maxConfirm is the longest time in which a Redis replica must confirm a grant. With a short lease it is half of the
	// lease: the rest is for the work.
	maxConfirm = time.Second
	// confirmStep is how long one WAIT lasts at most: go-redis does not notice during a command that ctx was cancelled.
	confirmStep = 50 * time.Millisecond
)

// RedisWait is RedisLua on a master with Redis replicas. The lock is granted only after a Redis replica has confirmed
// that it has the key (WAIT 1). An unconfirmed grant is given back, and Lock fails.
//
// WAIT is sent on the connection of the grant, because Redis waits for the last write of the connection that asks. On
// another connection, it may count Redis replicas that have not seen the grant. While they wait, all attempts together
// keep at most half of the connections that the client may have to one server, so that the others stay free for other
// users of the client.
//
// What it adds: if the master dies and the Redis replica is promoted, the lock is still held
// (TestRedisWaitOutlivesAFailover).
//
// What still breaks: while no Redis replica is connected, no lock is granted (TestRedisWaitIsGrantedOnlyIfCopied). WAIT
// is not consensus: the lock is lost if another Redis replica is promoted than the one that has confirmed, or if it
// restarts without its data first. The lease can end during the work, as with RedisLua, and waiters poll.
type RedisWait struct {
	redisLock
	masterOf func(ctx context.Context, key string) (*redis.Client, error)
	attempts *semaphore.Weighted // that may be under way at once
}

// NewRedisWait makes the lock on one server, a Sentinel group or a Cluster. It fails for other types of clients.
//
// The client should not retry (MaxRetries -1): see NewRedisOwner. It should set ContextTimeoutEnabled: otherwise Lock
// may wait 10 s too long for a master that does not answer. It must disable MaintNotificationsConfig: with go-redis
// 9.23, Conns of one client otherwise race.
func NewRedisWait(client redis.UniversalClient, options Options) (*RedisWait, error) {
	l := &RedisWait{redisLock: newRedisLock(client, options)}
	var conns int
	switch client := client.(type) {
	case *redis.Client:
		conns = client.Options().PoolSize
		l.masterOf = func(context.Context, string) (*redis.Client, error) { return client, nil }
	case *redis.ClusterClient:
		conns = client.Options().PoolSize
		l.masterOf = client.MasterForKey
	default:
		return nil, fmt.Errorf("RedisWait needs a client of a server, a Sentinel group or a Cluster: got a %T", client)
	}
	l.attempts = semaphore.NewWeighted(int64(max(conns/2, 1)))
	return l, nil
}

// Lock implements Locker.
func (l *RedisWait) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	release := l.deleteOwned(key, owner)
	var sent time.Time
	ask := func() (granted bool, err error) {
		sent, granted, err = l.ask(ctx, key, owner)
		if err != nil && (granted || !sent.IsZero() && !notDone(l.client, err)) {
			l.undos.takeBack(ctx, release.undo)
		}
		return granted, err
	}
	if _, err := l.await(ctx, key, request{ask: ask, wait: l.options.poll}); err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, l.unlock(key, release)), nil
}

// ask asks for the key, and waits until a Redis replica has it. It returns when it asked, zero if it did not. If it
// returns granted and an error, the key was granted but not confirmed.
func (l *RedisWait) ask(ctx context.Context, key, owner string) (sent time.Time, granted bool, err error) {
	if err := l.attempts.Acquire(ctx, 1); err != nil {
		return sent, false, err
	}
	defer l.attempts.Release(1)
	master, err := l.masterOf(ctx, key)
	if err != nil {
		return sent, false, err
	}
	conn := master.Conn()
	defer conn.Close()
	sent = time.Now()
	if granted, err = setNX(ctx, conn, key, owner, l.options.Lease); granted {
		err = confirm(ctx, conn, min(l.options.Lease/2, maxConfirm))
	}
	return sent, granted, err
}

// confirm waits until a Redis replica has the last write of conn. It fails after limit, or if the master does not
// answer.
func confirm(ctx context.Context, conn *redis.Conn, limit time.Duration) error {
	for until := time.Now().Add(limit); ; {
		step := max(min(time.Until(until), confirmStep), time.Millisecond) // whole milliseconds; 0 would be for ever
		answering, cancel := context.WithTimeout(ctx, step+releaseLimit)
		copies, err := conn.Wait(answering, 1, step).Result()
		cancel()
		switch {
		case err != nil:
			return fmt.Errorf("wait for a Redis replica: %w", err)
		case copies > 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !time.Now().Before(until):
			return fmt.Errorf("no Redis replica has confirmed the grant within %v", limit)
		}
	}
}
