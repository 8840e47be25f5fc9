package locks

import (
	"context"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
)

// Held says whether anybody holds or waits for key.
func (m *Mutex) Held(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[key] != nil
}

var (
	UserLockName  = userLockName
	NodeName      = nodeName
	NewPulse      = newPulse
	TakeBackLater = takeBackLater
)

// Watch is the watch of a pulse made by NewPulse.
func (p *pulse) Watch(ctx context.Context) (waiting context.Context, stop func()) {
	return p.watch(ctx)
}

// NewPatientRedlock is a Redlock that gives a master half of a lease to answer in, rather than a quarter of a second: on a busy
// machine all of them may be slower than that at once, and Unlock has to say so then.
func NewPatientRedlock(masters []redis.UniversalClient, options Options) (*Redlock, error) {
	l, err := NewRedlock(masters, options)
	if err == nil {
		l.nodeLimit = min(l.options.Lease/2, releaseLimit)
	}
	return l, err
}

// LeaseOfGetLock is the lease of a lock that the connection was granted, whether it was or not.
func LeaseOfGetLock(ctx context.Context, conn *sqlx.Conn, key string, o Options) (*Lease, error) {
	local, err := new(Mutex).Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return (&lockConn{conn: conn, name: userLockName(key), local: local}).lease(ctx, key, o.withDefaults()), nil
}

// EnqueueLate queues up for key after the waiter has given up, as a request does that the server carries out late.
func (e *Etcd) EnqueueLate(ctx context.Context, key string) error {
	session, err := e.open(ctx)
	if err != nil {
		return err
	}
	w := e.newWaiter(session, key, nil)
	w.takeBack(ctx)
	_, err = w.enqueue(ctx)
	return err
}
