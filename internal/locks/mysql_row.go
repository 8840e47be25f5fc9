package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// Statements of MySQLRow. Only the server's clock decides when a lease has ended.
const (
	insertRowSQL = `INSERT IGNORE INTO lock_row (name, owner, expires)
		VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)`
	takeOverRowSQL = `UPDATE lock_row SET owner = ?, expires = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
		WHERE name = ? AND expires <= UTC_TIMESTAMP(6)`
	deleteRowSQL = "DELETE FROM lock_row WHERE name = ? AND owner = ?"
)

// lateReplyLimit is how long MySQLRow waits for the reply to a statement after its caller has given up.
const lateReplyLimit = time.Second

// MySQLRow is a row of a table whose unique key is the name of the lock. Whoever inserts it holds the lock, and deletes
// it, which the owner in the row allows to nobody else. When the lease has ended, another client takes the row over.
//
// What it adds: a lock without a server or a pinned connection of its own, in any database. It does what RedisLua does,
// and is as durable as the database.
//
// What still breaks:
//
//   - The lease can end during the work. It is not renewed, and there is no token by which a late write could be
//     refused.
//   - Waiters poll, in no order. Each lock costs two commits.
//   - A grant that reaches the server later than a second after its caller gave up lasts until its lease ends.
//   - If the server's clock jumps ahead, leases end early.
//   - The lock depends on one server. A failover to a replica that lags behind grants locks twice.
type MySQLRow struct {
	db      *sqlx.DB
	options Options
	undos   *undoer
}

// NewMySQLRow makes the lock on one server, which must have the table lock_row of package migrations. A name has at
// most 255 bytes.
func NewMySQLRow(db *sqlx.DB, options Options) *MySQLRow {
	options = options.withDefaults()
	return &MySQLRow{db: db, options: options, undos: newUndoer(options.Lease)}
}

// Close stops the background retries of failed Locks and Unlocks. A lock that is not released by then lasts until its
// lease ends.
func (l *MySQLRow) Close() error {
	l.undos.close()
	return nil
}

// Lock implements Locker.
func (l *MySQLRow) Lock(ctx context.Context, key string) (*Lease, error) {
	owner := rand.Text()
	release := l.deleteOwned(key, owner)
	r := request{
		ask:     func() (bool, error) { return l.ask(ctx, key, owner) },
		undo:    release.undo,
		notDone: isRefusedByMySQL,
		wait:    l.options.poll,
	}
	sent, err := r.await(ctx, key, l.undos)
	if err != nil {
		return nil, err
	}
	return newLease(ctx, l.options.guaranteed(sent), 0, release.unlock(key, l.undos)), nil
}

// ask inserts the row, or takes it over if its lease has ended. The victim of a deadlock asks again later: several
// waiters that insert the row when it is deleted may have to wait for each other.
func (l *MySQLRow) ask(ctx context.Context, key, owner string) (granted bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ctx, cancel := outlast(ctx, lateReplyLimit)
	defer cancel()
	lease := l.options.Lease.Microseconds()
	granted, err = l.exec(ctx, insertRowSQL, key, owner, lease)
	if !granted && err == nil {
		granted, err = l.exec(ctx, takeOverRowSQL, owner, lease, key)
	}
	if isMySQLConflict(err) {
		return false, nil
	}
	return granted, err
}

// outlast returns a context that ends when ctx has ended and d has passed since. The server carries out a statement
// that it has received even if its client hangs up, and perhaps only after a statement by which another connection
// undoes it. So the client had better wait for the reply.
func outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = sleep(longer, d)
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}

func (l *MySQLRow) deleteOwned(key, owner string) releaseFunc {
	return func(ctx context.Context) (ours bool, err error) { return l.exec(ctx, deleteRowSQL, key, owner) }
}

// exec runs a statement and reports whether it wrote the row.
func (l *MySQLRow) exec(ctx context.Context, query string, args ...any) (wrote bool, err error) {
	result, err := l.db.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows == 1, err
}

// isMySQLConflict reports whether the server ended a statement because of another transaction: a deadlock, or a wait
// for a row that took too long.
func isMySQLConflict(err error) bool {
	const lockWaitTimeout, deadlock = 1205, 1213
	server, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (server.Number == lockWaitTimeout || server.Number == deadlock)
}

// isRefusedByMySQL reports whether the server answered a statement with an error, and so wrote nothing.
func isRefusedByMySQL(err error) bool {
	_, answered := errors.AsType[*mysql.MySQLError](err)
	return answered
}
