package locks

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
)

// InUse reports whether anybody holds key or waits for it.
func (m *Mutex) InUse(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[key] != nil
}

var (
	UserLockName = userLockName
	NodeName     = nodeName
	NewUndoer    = newUndoer
	NotDone      = notDone
)

// MaxUndos is the most that may be pending in an undoer.
const MaxUndos = maxUndos

// TakeBack is undoer.takeBack.
func (u *undoer) TakeBack(ctx context.Context, undo func(context.Context) error) {
	u.takeBack(ctx, undo)
}

// TakeBackLater is undoer.takeBackLater.
func (u *undoer) TakeBackLater(undo func(context.Context) error) { u.takeBackLater(undo) }

// Undos returns the undoer of the lock.
func (l *redisLock) Undos() *undoer { return l.undos }

// PassesInARow is how often a process passes redis-rlock on before other processes have a chance.
const PassesInARow = passesInARow

// InTurn returns how many callers of this process hold key or wait for it.
func (l *RedisRLock) InTurn(key string) int {
	l.turns.mu.Lock()
	defer l.turns.mu.Unlock()
	if l.turns.keys[key] == nil {
		return 0
	}
	return l.turns.keys[key].refs
}

// Undos returns the undoer of the lock.
func (e *Etcd) Undos() *undoer { return e.undos }

// Close is undoer.close.
func (u *undoer) Close() { u.close() }

// Pending returns how many undos are pending.
func (u *undoer) Pending() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pending.Len()
}

// NewPatientRedlock makes a Redlock that gives a master half of a lease to answer, at most 2 s: on a busy machine all
// of them may be slower than a Redlock allows, and Unlock would fail.
func NewPatientRedlock(masters []redis.UniversalClient, options Options) (*Redlock, error) {
	l, err := NewRedlock(masters, options)
	if err == nil {
		l.nodeLimit = min(l.options.Lease/2, releaseLimit)
	}
	return l, err
}

// LeaseOfGetLock makes a lease as if the connection held the lock.
func LeaseOfGetLock(ctx context.Context, conn *sqlx.Conn, key string, o Options) (*Lease, error) {
	local, err := new(Mutex).Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return (&lockConn{conn: conn, name: userLockName(key), local: local}).lease(ctx, key, o.withDefaults()), nil
}

// EnqueueLate asks for a waiter that has given up, as a request does that the server carries out late. It must fail.
func (e *Etcd) EnqueueLate(ctx context.Context, key string) error {
	session, err := e.open(ctx)
	if err != nil {
		return err
	}
	w := e.newWaiter(session, key)
	w.takeBack(ctx)
	_, err = w.enqueue(ctx)
	return err
}

// Undos returns the undoer of the lock.
func (z *ZooKeeper) Undos() *undoer { return z.undos }

// TurnGrants is the most critical sections of a turn.
const TurnGrants = turnGrants

// Waiting returns how many callers of this process wait for key.
func (q *RedisQueue) Waiting(key string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.cohorts[key]; c != nil {
		return c.waiting.Len()
	}
	return 0
}

// Deafen ends the subscription for good.
func (q *RedisQueue) Deafen() { _ = q.messages.close() }

// TakeTime lets a turn last until its tokens are used up.
func (q *RedisQueue) TakeTime() { q.turnTime = time.Hour }

// Hear delivers a message, as the subscription does.
func (q *RedisQueue) Hear(message string) { q.onMessage(message) }

// Hinted reports whether a message came before the reply that tells the process to wait for key.
func (q *RedisQueue) Hinted(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.cohorts[key]
	return c != nil && c.turn.hinted
}

// Process returns the name of the process in Redis.
func (q *RedisQueue) Process() string { return q.process }

// AskAll makes the process ask again, as it does after its subscription was broken.
func (q *RedisQueue) AskAll() { q.askAll() }

// After returns the last token that had been given out when the process was told to wait for key.
func (q *RedisQueue) After(key string) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.cohorts[key]; c != nil {
		return c.turn.after
	}
	return 0
}
