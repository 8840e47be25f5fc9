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

// getLockSlice is how long one GET_LOCK waits in the server. MySQL knows whole seconds only, and a wait that nobody
// listens to any more cannot be ended from outside except by another connection.
const getLockSlice = time.Second

// MySQLGetLock is GET_LOCK of MySQL and MariaDB, the user-level lock. It belongs to a connection, which is pinned from
// GET_LOCK to RELEASE_LOCK. Waiters of one process queue up in front of it, so that only one of them occupies a connection,
// which it gives back every second: with few connections and many keys, waiters must not keep one from who could go on.
//
// What it adds: no further server where there is a database already, a server that queues the waiters instead of polling,
// and a lock that is free the moment its holder dies: there is no lease to wait for.
//
// What breaks: the lock ends with its connection while the work, on another connection, goes on: a KILL, an idle timeout,
// or a proxy in between frees it, and the next one is granted at once. The holder learns late, at most one
// options.Renew later, when it asks whether its connection still holds the lock. The reverse is bad too: a holder that
// is cut off without a word, or stopped, holds the lock until the server gives its connection up. There is no token to
// refuse a late write by. The lock is not replicated: it lives and dies with one server, and a failover frees all. It is
// known to all databases of the server under one name.
// TestAKilledConnectionFreesItsGetLockWhileTheWorkGoesOn shows the first.
type MySQLGetLock struct {
	db      *sqlx.DB
	options Options
	local   Mutex
}

// NewMySQLGetLock makes the lock on one server. db must be a pool of its own, apart from the one that the work under the
// lock uses: every holder and every key that is waited for occupies a connection, and holders that wait for a second one
// of the same pool wait for each other. It must keep as many idle connections as it may open. Its DSN must allow a reply to take a second and more (readTimeout).
//
// Of the options, Renew is the pause between two looks at whether the lock is still held, and Lease how long a server
// may take to answer that before its connection is given up.
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
			case <-ctx.Done(): // nobody listens any more
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
		// The slice under way is finished in the background: breaking off a query does not end it in the server.
		return nil, notAcquired(key, ctx.Err())
	}
}

// lockConn is the connection that a lock belongs to, or will.
type lockConn struct {
	db    *sqlx.DB
	conn  *sqlx.Conn
	name  string
	local *Lease
}

// wait waits until the lock is held. Where ctx ends it is late by the slice under way.
func (c *lockConn) wait(ctx context.Context) (held bool, err error) {
	for {
		held, err = c.waitOnce(context.WithoutCancel(ctx))
		if held || err != nil || ctx.Err() != nil {
			return held, err
		}
		// The place among the server's waiters is lost with the slice: another connection is as good.
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
	answer, err := c.ask(ctx, "SELECT GET_LOCK(?, ?)", c.name, int(getLockSlice/time.Second))
	if err == nil && !answer.Valid {
		err = errors.New("GET_LOCK was interrupted: somebody killed the query, or the server is out of memory")
	}
	return answer.Bool, err
}

// giveUp ends a wait that nobody listens to, whatever became of it.
func (c *lockConn) giveUp(ctx context.Context, held bool, err error) {
	if !held {
		c.close(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	_ = c.unlock(ctx)
}

// lease is the lease of the lock that is held, and looks after it.
func (c *lockConn) lease(ctx context.Context, key string, o Options) *Lease {
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	lease := newLease(ctx, time.Time{}, 0, func(ctx context.Context) error {
		// The connection answers one question at a time. One that a silent server leaves unanswered is broken off.
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

// watch asks now and then whether the connection still holds the lock. A connection that failed will never hold it again.
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

// unlock gives the lock back, and the connection.
func (c *lockConn) unlock(ctx context.Context) error {
	ours, err := c.ask(ctx, "SELECT RELEASE_LOCK(?)", c.name)
	c.close(err)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the server is silent; it frees the lock when it finds the connection closed
	case err != nil:
		return fmt.Errorf("%w with its connection: %w", ErrLeaseLost, err)
	case !ours.Bool:
		return ErrLeaseLost
	}
	return nil
}

// ask runs a query that is answered by yes, no or NULL. The driver closes the connection where ctx ends first.
func (c *lockConn) ask(ctx context.Context, query string, args ...any) (answer sql.NullBool, err error) {
	err = c.conn.GetContext(ctx, &answer, query, args...)
	return answer, err
}

// close gives the connection back to its pool. One that failed is closed: the server then frees what it may hold.
func (c *lockConn) close(failed error) {
	if failed != nil {
		_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = c.conn.Close()
	_ = c.local.Unlock()
}

// userLockName is the name of a key's lock. Servers allow 64 characters and do not tell upper from lower case, nor some
// letters from their accented ones: a key that is not safe from that is known by its hash.
func userLockName(key string) string {
	safe := func(r rune) bool { return r > ' ' && r < 0x7f && (r < 'A' || r > 'Z') }
	if key != "" && len(key) <= 64 && strings.IndexFunc(key, func(r rune) bool { return !safe(r) }) < 0 {
		return key
	}
	sum := sha256.Sum224([]byte(key))
	return "sha224:" + hex.EncodeToString(sum[:])
}
