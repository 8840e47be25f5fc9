package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxConfirm is the longest time in which a Redis replica must confirm a grant. With a short lease it is half of the
// lease: the rest is for the work.
const maxConfirm = time.Second

// RedisWait is RedisLua on a master with Redis replicas. The lock is granted only after a Redis replica has confirmed
// that it has the key (WAIT 1). An unconfirmed grant is given back, and Lock fails.
//
// WAIT is sent on the connection of the grant, because Redis waits for the last write of the connection that asks. On
// another connection, it may count Redis replicas that have not seen the grant.
//
// What it adds: if the master dies and the Redis replica is promoted, the lock is still held
// (TestRedisWaitOutlivesAFailover).
//
// What still breaks: while no Redis replica is connected, no lock is granted (TestRedisWaitIsGrantedOnlyIfCopied). WAIT
// is not consensus: the lock is lost if another Redis replica is promoted than the one that has confirmed, or if it
// restarts without its data first. The lease can end during the work, as with RedisLua, and waiters poll.
type RedisWait struct{ redisLock }

// NewRedisWait makes the lock on one server, a Sentinel group or a Cluster. The client should not retry (MaxRetries
// -1): see NewRedisOwner.
func NewRedisWait(client redis.UniversalClient, options Options) *RedisWait {
	return &RedisWait{newRedisLock(client, options)}
}

// Lock implements Locker.
func (l *RedisWait) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	release := l.deleteOwned(key, owner)
	ask := func() (granted bool, err error) {
		if granted, err = l.ask(ctx, key, owner); err != nil && (granted || !notDone(l.client, err)) {
			l.undos.takeBack(ctx, release.undo)
		}
		return granted, err
	}
	sent, err := l.poll(ctx, key, ask, nil)
	if err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, l.unlock(key, release)), nil
}

// ask asks for the key, and waits until a Redis replica has it. If it returns granted and an error, the key was granted
// but not confirmed.
func (l *RedisWait) ask(ctx context.Context, key, owner string) (granted bool, err error) {
	master, err := masterOf(ctx, l.client, key)
	if err != nil {
		return false, err
	}
	conn := master.Conn()
	defer conn.Close()
	if granted, err = setNX(ctx, conn, key, owner, l.options.Lease); !granted {
		return false, err
	}
	limit := max(min(l.options.Lease/2, maxConfirm), time.Millisecond) // WAIT takes whole milliseconds; 0 is for ever
	switch copies, err := conn.Wait(ctx, 1, limit).Result(); {
	case err != nil:
		return true, fmt.Errorf("wait for a Redis replica: %w", err)
	case copies == 0:
		return true, fmt.Errorf("no Redis replica has confirmed the grant within %v", limit)
	}
	return true, nil
}

// masterOf returns the client of the server that has the key.
func masterOf(ctx context.Context, client redis.UniversalClient, key string) (*redis.Client, error) {
	switch client := client.(type) {
	case *redis.Client:
		return client, nil
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	}
	return nil, errors.New("this client does not give out connections: use one of a server, a Sentinel group or a Cluster")
}
