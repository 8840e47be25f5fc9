package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
	"stock/internal/stock/share"
)

// ShareOf returns the key that a request's connection counts against.
func ShareOf(req stock.Request) int64 {
	if req.Hold > 0 {
		return share.HeldWork
	}
	return req.GoodsID
}

// sharesOf is ShareOf for an order.
func sharesOf(req stock.OrderRequest) []int64 {
	if req.Hold > 0 {
		return []int64{share.HeldWork}
	}
	lines := req.Lines()
	ids := make([]int64, len(lines))
	for i, line := range lines {
		ids[i] = line.GoodsID
	}
	return ids
}

// conn is a connection that a Store uses for one request.
type conn struct {
	*sqlx.Conn
	store  Store
	shares []int64 // what it counts against

	// How long its server waits for a row, in seconds: usually, now, and at least. All are 0 until the wait is first
	// shortened.
	usualRowWait, rowWait, minRowWait int
	broken                            bool // not to be used again
}

// session is a connection, or a transaction on it. Its errors are refusals, or sql.ErrNoRows.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (Changed, error)
	GetContext(ctx context.Context, dest any, query string, args ...any) error
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
}

// Changed is what a statement has done.
type Changed struct {
	Rows int64 // that it matched, or deleted
	ID   int64 // that it has set by LAST_INSERT_ID
}

func changed(result sql.Result, err error) (c Changed, _ error) {
	if err == nil {
		c.Rows, err = result.RowsAffected()
	}
	if err == nil {
		c.ID, err = result.LastInsertId()
	}
	return c, err
}

// matched is the id of a statement that must match a row. It fails with errNoMatch if there was none.
func matched(c Changed, err error) (id int64, _ error) {
	if err == nil && c.Rows == 0 {
		err = errNoMatch
	}
	return c.ID, err
}

// use runs work on a connection that counts against the given shares. It waits for the connection no longer than the
// Store allows, and fails with ErrBusy or ErrUnavailable if there is none. Work must not call use again: two requests
// that each have a connection could wait for a second one.
func (s Store) use(ctx context.Context, shares []int64, work func(*conn) error) (err error) {
	c, err := s.take(ctx, shares)
	if err != nil {
		return err
	}
	defer func() { c.release(ctx, err) }()
	return work(c)
}

// take is use without the work. The caller must call release.
func (s Store) take(ctx context.Context, shares []int64) (*conn, error) {
	if s.upkeep {
		shares = []int64{share.Upkeep}
	}
	if err := s.acquire(ctx, shares); err != nil {
		return nil, err
	}
	taken, err := s.DB.Connx(ctx)
	if err != nil {
		s.shares.Release(shares...)
		return nil, classifyConnect(err)
	}
	return &conn{Conn: taken, store: s, shares: shares}, nil
}

// release returns the connection to the pool as it was. err is the error of the work.
func (c *conn) release(ctx context.Context, err error) {
	defer c.store.shares.Release(c.shares...)
	if c.shortened() && !c.broken {
		_ = c.setRowWait(context.WithoutCancel(ctx), c.Conn, c.usualRowWait)
	}
	if c.broken || isRejected(err) { // refused by this server; a new connection may reach another
		_ = c.Raw(func(any) error { return driver.ErrBadConn }) // the pool closes it
	}
	_ = c.Close()
}

// acquire waits for a share of the pool.
func (s Store) acquire(ctx context.Context, shares []int64) error {
	if s.shares.TryAcquire(shares...) {
		return nil
	}
	began := time.Now()
	if s.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, stock.LongestWait(ctx, s.wait))
		defer cancel()
	}
	if err := s.shares.Acquire(ctx, shares...); err != nil {
		return fmt.Errorf("%w: %s already uses its share of the connections to MySQL, and none became free within %v: %w",
			stock.ErrBusy, share.Describe(shares), time.Since(began).Round(time.Millisecond), err)
	}
	return nil
}

// exec runs one writing statement that commits by itself.
//
// The statement does not end with ctx. Once it is sent, giving up would not stop it but only hide what it did, and a
// lock around it would be released while the statement is still under way. The server ends it in time, with an answer:
// see endBefore. The readTimeout of the DSN ends it if the server is silent.
func (c *conn) exec(ctx context.Context, query string, args ...any) (Changed, error) {
	if err := c.endBefore(ctx, c.Conn); err != nil {
		return Changed{}, err
	}
	done, err := changed(c.Conn.ExecContext(context.WithoutCancel(ctx), query, args...))
	return done, classifyWrite(err)
}

// together sends the statements of a transaction in one message, so that the server ends the transaction even if the
// replica is stopped. As with exec, they do not end with ctx. The results include that of START TRANSACTION.
func (c *conn) together(ctx context.Context, statements string, args ...any) (all results, err error) {
	if err := c.endBefore(ctx, c.Conn); err != nil {
		return results{}, err
	}
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i].Ordinal = i + 1
		if values[i].Value, err = driver.DefaultParameterConverter.ConvertValue(arg); err != nil {
			return results{}, err
		}
	}
	ctx = context.WithoutCancel(ctx)
	statements = "START TRANSACTION; " + statements + "; COMMIT"
	err = c.Raw(func(raw any) error {
		message, err := raw.(driver.ExecerContext).ExecContext(ctx, statements, values)
		if err != nil {
			return err
		}
		of := message.(mysql.Result)
		all = results{of.AllRowsAffected(), of.AllLastInsertIds()}
		return nil
	})
	if err != nil {
		_, rollback := c.ExecContext(ctx, "ROLLBACK") // the statement that failed has left the transaction open
		c.broken = c.broken || rollback != nil
		return results{}, classifyTogether(err)
	}
	return all, nil
}

// results are what the statements of a transaction have done.
type results struct{ rows, ids []int64 }

func (r *results) of(statement int) Changed { return Changed{r.rows[statement], r.ids[statement]} }

// expectOneRow ends a transaction that is sent in one message with an error if its last statement has not changed
// exactly one row. It does not only compare with 0: the server goes on with a message whose sender has died, and
// ROW_COUNT() is -1 after a statement whose answer could not be sent. The variable has no other value than 0 and 1.
const expectOneRow = "SET foreign_key_checks = IF(ROW_COUNT() = 1, 1, 2)"

// expectNoRow is like expectOneRow for a statement that must not match a row.
const expectNoRow = "SET foreign_key_checks = IF(ROW_COUNT() = 0, 1, 2)"

// otherRowCount reports whether expectOneRow or expectNoRow has ended a transaction.
func otherRowCount(err error) bool { return hasNumber(err, erWrongValueForVar) }

// untilDeadline returns a context for statements that may wait for a row but write nothing yet. They end at ctx's
// deadline, but not when the client hangs up. If the connection were closed then, the server would go on waiting and
// keep its session, while the pool opened a new one. Enough such clients would use up the server's connections.
func (s Store) untilDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	running := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok && !s.repliesBefore(deadline) {
		return context.WithDeadline(running, deadline)
	}
	return running, func() {}
}

// repliesBefore reports whether the connection itself notices before the deadline that the server is silent. A context
// that ends would be of no use then, but costs CPU time: the driver has a goroutine for each connection that watches
// the context of each statement.
func (s Store) repliesBefore(deadline time.Time) bool {
	return s.reply > 0 && time.Until(deadline) > s.reply
}

// GetContext reads one row. The statement is not sent if ctx has ended.
func (c *conn) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return c.read(ctx, c.Conn, dest, query, args...)
}

// sender is the connection itself or, while it has a transaction, only that. A sql.Conn that finds the connection
// broken closes it, and would wait for the transaction to end.
type sender interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	GetContext(ctx context.Context, dest any, query string, args ...any) error
}

func (c *conn) read(ctx context.Context, in sender, dest any, query string, args ...any) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && c.store.repliesBefore(deadline) {
		ctx = context.WithoutCancel(ctx)
	}
	return refusal(in.GetContext(ctx, dest, query, args...))
}

// SelectContext reads any number of rows.
func (c *conn) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	return refusal(c.Conn.SelectContext(ctx, dest, query, args...))
}

// ExecContext runs a statement after which nothing is kept if it fails, or that may be repeated. See exec.
func (c *conn) ExecContext(ctx context.Context, query string, args ...any) (Changed, error) {
	done, err := changed(c.Conn.ExecContext(ctx, query, args...))
	return done, refusal(err)
}

const (
	// rowWaitUnit is the unit in which MySQL is told how long to wait for a row.
	rowWaitUnit = time.Second
	// rowWaitMargin is how late MySQL may answer: only once a second does it look for waits that have timed out.
	rowWaitMargin = time.Second
	// minTimeLeft is how much time a request needs to wait for a row.
	minTimeLeft = rowWaitUnit + rowWaitMargin
)

// endBefore makes the server give up a wait for a row before ctx ends, and when the limit of stock.LimitWait has
// passed, rounded up to seconds. Where the wait must be shortened, this costs up to two round trips now and one when
// the connection is given back. If less than minTimeLeft is left, it fails with ErrBusy. An error is a refusal.
func (c *conn) endBefore(ctx context.Context, in sender) error {
	left := time.Duration(math.MaxInt64)
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return c.limitRowWait(ctx, in, left)
}

// limitRowWait makes the server wait for a row no longer than LongestWait allows, and answer within the time left. A
// new connection waits for a row for at most Store.wait, or less if the DSN says so.
func (c *conn) limitRowWait(ctx context.Context, in sender, left time.Duration) error {
	longest := rowWaitUnits(c.store.wait)
	if longest == 0 {
		return nil
	}
	if left < minTimeLeft {
		return fmt.Errorf("%w: too little time is left to wait for a row of MySQL; nothing was written", stock.ErrBusy)
	}
	wait := rowWaitUnits(stock.LongestWait(ctx, c.store.wait))
	if left < time.Duration(longest)*rowWaitUnit+rowWaitMargin {
		wait = min(wait, int((left-rowWaitMargin)/rowWaitUnit))
	}
	if wait >= longest {
		return nil
	}
	if c.usualRowWait == 0 {
		if err := c.readRowWait(ctx, in); err != nil {
			return err
		}
	}
	if wait = max(wait, c.minRowWait); wait < c.rowWait {
		return c.setRowWait(ctx, in, wait)
	}
	return nil
}

// rowWaitUnits rounds up: a request that may wait for less than a second would otherwise not wait at all.
func rowWaitUnits(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// readRowWait reads how long the server waits for a row. The shortest wait is 0 in MariaDB, and 1 in MySQL and TiDB.
func (c *conn) readRowWait(ctx context.Context, in sender) error {
	var row struct{ Usual, Least int }
	err := c.read(ctx, in, &row,
		"SELECT @@innodb_lock_wait_timeout AS usual, IF(VERSION() LIKE '%MariaDB%', 0, 1) AS least")
	c.usualRowWait, c.rowWait, c.minRowWait = row.Usual, row.Usual, row.Least
	return err
}

// setRowWait uses a literal: MySQL refuses arithmetic with the variable, which is unsigned.
func (c *conn) setRowWait(ctx context.Context, in sender, seconds int) error {
	_, err := in.ExecContext(ctx, fmt.Sprintf("SET innodb_lock_wait_timeout = %d", seconds))
	c.rowWait, c.broken = seconds, err != nil
	return refusal(err)
}

// shortened reports whether the server waits for rows for less time than it usually does.
func (c *conn) shortened() bool { return c.rowWait < c.usualRowWait }

// mayRetry reports whether a batch was not written and a retry may succeed: because of another transaction, or because
// the server waited for a row only until the first of the requests had to be answered.
func (c *conn) mayRetry(err error) bool {
	return overtaken(err) || c.shortened() && hasNumber(err, erLockWaitTimeout)
}

// params are values as parameters of a statement.
func params[T any](values []T) []any {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return args
}

// list is a list of n parameters of a statement.
func list(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }
