package locks

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// getLockSlice is how long one GET_LOCK waits in the server. MySQL accepts whole seconds only, and only another
// connection can cancel a wait whose caller has given up.
const getLockSlice = time.Second

// MySQLGetLock is GET_LOCK, the user-level lock of MySQL and MariaDB. It belongs to a connection, which is pinned from
// GET_LOCK to RELEASE_LOCK. For each key, only one waiter of a process occupies a connection; the others queue in
// front of it. That waiter returns its connection every second: with few connections and many keys, waiters must not
// use up the connections that holders need to go on.
//
// What it adds: no other server is needed if there is a database already; the server queues the waiters, so nobody
// polls; and the lock is free as soon as its holder dies, since there is no lease to wait for.
//
// What still breaks:
//
//   - The lock ends with its connection, while the work on another connection goes on: a KILL, an idle timeout, or a
//     proxy in between frees it, and the next waiter is granted it at once
//     (TestAKilledConnectionFreesItsGetLockWhileTheWorkGoesOn). The holder learns of it up to Options.Renew later,
//     when it asks whether its connection still holds the lock.
//   - A holder that is stopped, or cut off without a FIN or RST, holds the lock until the server gives up its
//     connection (wait_timeout).
//   - There is no token by which a late write could be refused.
//   - The lock is not replicated: it depends on one server, and a failover frees all locks.
//   - Lock names are global to the server: all of its databases share them.
type MySQLGetLock struct {
	db      *sqlx.DB
	options Options
	local   Mutex
}

// NewMySQLGetLock makes the lock on one server. db must be a pool of its own, not the one that the work under the lock
// uses: every holder and every key that is waited for occupies a connection, and holders that wait for a second
// connection of the same pool deadlock. It must keep as many idle connections as it may open. Its DSN must allow a
// reply to take more than a second (readTimeout).
//
// Options.Renew is the pause between two checks that the lock is still held, and Options.Lease how long the server may
// take to answer one before the connection is closed and the lock lost.
func NewMySQLGetLock(db *sqlx.DB, options Options) *MySQLGetLock {
	return &MySQLGetLock{db: db, options: options.withDefaults()}
}

// Lock implements Locker. The lease has no deadline and no token.
func (l *MySQLGetLock) Lock(ctx context.Context, key string) (*Lease, error) {
	local, err := l.local.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	conn, err := l.db.Connx(ctx)
	if err != nil {
		_ = local.Unlock()
		return nil, notAcquired(key, errors.Join(ended(ctx), err))
	}
	c := &lockConn{db: l.db, conn: conn, name: userLockName(key), local: local}
	granted := make(chan error)
	go func() {
		held, err := c.wait(ctx)
		if held || err != nil {
			select {
			case granted <- err:
				return
			case <-ctx.Done(): // the caller has gone
			}
		}
		c.giveUp(ctx, held, err)
	}()
	select {
	case err := <-granted:
		if err != nil {
			c.close(err)
			return nil, notAcquired(key, errors.Join(ended(ctx), err))
		}
		return c.lease(ctx, key, l.options), nil
	case <-ctx.Done():
		// GET_LOCK goes on in the background: cancelling a query does not end it in the server.
		return nil, notAcquired(key, ctx.Err())
	}
}

// lockConn is the connection that holds a lock, or waits for it.
type lockConn struct {
	db    *sqlx.DB
	conn  *sqlx.Conn
	name  string
	local *Lease
}

// wait waits until the lock is held. When ctx ends, it returns at the end of the current slice.
func (c *lockConn) wait(ctx context.Context) (held bool, err error) {
	for {
		held, err = c.waitOnce(context.WithoutCancel(ctx))
		if held || err != nil || ctx.Err() != nil {
			return held, err
		}
		if triesOnce(ctx) {
			return false, ErrHeld
		}
		// The place in the server's queue is lost with the slice, so another connection will do.
		_ = c.conn.Close()
		conn, err := c.db.Connx(ctx)
		if err != nil {
			return false, err
		}
		c.conn = conn
	}
}

func (c *lockConn) waitOnce(ctx context.Context) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, getLockSlice+releaseLimit)
	defer cancel()
	slice := getLockSlice
	if triesOnce(ctx) {
		slice = 0
	}
	answer, err := c.ask(ctx, "SELECT GET_LOCK(?, ?)", c.name, int(slice/time.Second))
	if err == nil && !answer.Valid {
		err = errors.New("GET_LOCK returned NULL: the query was killed, or the server is out of memory")
	}
	return answer.Bool, err
}

// giveUp ends a wait whose caller has gone.
func (c *lockConn) giveUp(ctx context.Context, held bool, err error) {
	if !held {
		c.close(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	_ = c.unlock(ctx)
}

// lease makes the lease of the held lock, and watches that it stays held.
func (c *lockConn) lease(ctx context.Context, key string, o Options) *Lease {
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	lease := newLease(ctx, time.Time{}, 0, func(ctx context.Context) error {
		// The connection answers one query at a time. If the server does not answer, the query is cancelled.
		select {
		case <-watched:
		case <-ctx.Done():
		}
		stop()
		<-watched
		if err := c.unlock(ctx); err != nil {
			return fmt.Errorf("unlock %s: %w", key, err)
		}
		return nil
	})
	go func() {
		defer close(watched)
		c.watch(watch, lease, o)
	}()
	return lease
}

// watch checks at intervals that the connection still holds the lock. After any error it does not: the connection is
// broken.
func (c *lockConn) watch(ctx context.Context, lease *Lease, o Options) {
	tick := time.NewTicker(o.Renew)
	defer tick.Stop()
	for {
		select {
		case <-lease.over:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(ctx, o.Lease)
		ours, err := c.ask(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", c.name)
		cancel()
		if err != nil || !ours.Bool {
			lease.lose()
			return
		}
	}
}

// unlock releases the lock and closes c.
func (c *lockConn) unlock(ctx context.Context) error {
	ours, err := c.ask(ctx, "SELECT RELEASE_LOCK(?)", c.name)
	c.close(err)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the server does not answer; it frees the lock once it notices that the connection is closed
	case err != nil:
		return fmt.Errorf("%w with its connection: %w", ErrLeaseLost, err)
	case !ours.Bool:
		return ErrLeaseLost
	}
	return nil
}

// ask runs a query whose answer is yes, no or NULL. If ctx ends first, the driver closes the connection.
func (c *lockConn) ask(ctx context.Context, query string, args ...any) (answer sql.NullBool, err error) {
	err = c.conn.GetContext(ctx, &answer, query, args...)
	return answer, err
}

// close returns the connection to its pool, or closes it if it failed: the server then frees the lock that it may hold.
func (c *lockConn) close(failed error) {
	if failed != nil && !errors.Is(failed, ErrHeld) {
		_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = c.conn.Close()
	_ = c.local.Unlock()
}

// userLockName returns the name of a key's lock. Servers allow 64 characters, and do not distinguish upper from lower
// case or some accented letters from plain ones. The name of a key to which that matters is its hash.
func userLockName(key string) string {
	safe := func(r rune) bool { return r > ' ' && r < 0x7f && (r < 'A' || r > 'Z') }
	if key != "" && len(key) <= 64 && strings.IndexFunc(key, func(r rune) bool { return !safe(r) }) < 0 {
		return key
	}
	sum := sha256.Sum224([]byte(key))
	return "sha224:" + hex.EncodeToString(sum[:])
}
