package mysql

import (
	"context"
	"fmt"
	"math"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/share"
)

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
