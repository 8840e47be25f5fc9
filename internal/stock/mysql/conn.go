package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
)

// What a connection counts against besides items, whose ids are positive.
const (
	// HeldWork stands for all requests with work to do inside their transactions.
	HeldWork int64 = 0
	// Upkeep stands for administration and for work in the background.
	Upkeep int64 = -1
)

// ShareOf returns what a connection counts against that a request keeps while it works.
func ShareOf(req stock.Request) int64 {
	if req.Hold > 0 || req.Pause != nil {
		return HeldWork
	}
	return req.GoodsID
}

// sharesOf is ShareOf for an order.
func sharesOf(req stock.OrderRequest) []int64 {
	if req.Hold > 0 || req.Pause != nil {
		return []int64{HeldWork}
	}
	lines := req.Lines()
	ids := make([]int64, len(lines))
	for i, line := range lines {
		ids[i] = line.GoodsID
	}
	return ids
}

// sharesOfStocks is ShareOf for a write of several items.
func sharesOfStocks(stocks []stock.ItemStock, pause stock.PauseFunc) []int64 {
	if pause != nil {
		return []int64{HeldWork}
	}
	ids := make([]int64, len(stocks))
	for i, s := range stocks {
		ids[i] = s.GoodsID
	}
	return ids
}

// conn is a connection that a Store uses for one request.
type conn struct {
	*sqlx.Conn
	wait      time.Duration // of the Store
	shortened bool          // the server waits for rows for less time than it usually does on this connection
}

// use runs work on a connection that counts against the given shares. It waits for the connection no longer than the
// Store allows, and fails with ErrBusy or ErrUnavailable if there is none. Work must not call use again: two requests
// that each have a connection could wait for a second one.
func (s Store) use(ctx context.Context, shares []int64, work func(*conn) error) error {
	if s.upkeep {
		shares = []int64{Upkeep}
	}
	if err := s.acquire(ctx, shares); err != nil {
		return err
	}
	defer s.shares.Release(shares...)
	taken, err := s.DB.Connx(ctx)
	if err != nil {
		return classifyConnect(err)
	}
	c := &conn{Conn: taken, wait: s.wait}
	defer c.giveBack(ctx)
	err = work(c)
	if isRejected(err) {
		c.discard() // its address may lead to another server by now
	}
	return err
}

// acquire waits for a share of the pool.
func (s Store) acquire(ctx context.Context, shares []int64) error {
	if s.shares.TryAcquire(shares...) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if err := s.shares.Acquire(ctx, shares...); err != nil {
		return fmt.Errorf("%w: %s its share of the connections to MySQL; none became free in time, nothing was written: %w",
			stock.ErrBusy, describeShares(shares), err)
	}
	return nil
}

func describeShares(shares []int64) string {
	switch {
	case len(shares) > 1:
		return fmt.Sprintf("one of the items %d uses", shares)
	case shares[0] == HeldWork:
		return "work inside critical sections (hold_ms, X-Pause) uses"
	case shares[0] == Upkeep:
		return "administration uses"
	}
	return fmt.Sprintf("item %d uses", shares[0])
}

// exec runs one writing statement that commits by itself.
//
// The statement does not end with ctx. Once it is sent, giving up would not stop it but only hide what it did, and a
// lock around it would be released while the statement is still under way. The server ends it in time, with an answer:
// see endBefore. The readTimeout of the DSN ends it if the server is silent.
func (c *conn) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := c.endBefore(ctx); err != nil {
		return nil, err
	}
	result, err := c.ExecContext(context.WithoutCancel(ctx), query, args...)
	return result, classifyWrite(err)
}

// minRowWait is the shortest wait for a row that MySQL can be told, and the unit in which it is told.
const minRowWait = time.Second

// endBefore makes the server give up waiting for a row before ctx ends. That takes a round trip, but only if the
// request has waited before. If less than minRowWait is left, it fails with ErrBusy.
func (c *conn) endBefore(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		return c.limitRowWait(ctx, time.Until(deadline))
	}
	return nil
}

// limitRowWait makes the server wait for a row for less than left. Connections are opened with a longest wait of
// Store.wait, or less if the DSN says so.
func (c *conn) limitRowWait(ctx context.Context, left time.Duration) error {
	if left >= time.Duration(math.Ceil(c.wait.Seconds()))*time.Second {
		return nil
	}
	if left < minRowWait {
		return fmt.Errorf("%w: too little time is left to wait for a row of MySQL; nothing was written", stock.ErrBusy)
	}
	shorten := `SET @row_wait = @@innodb_lock_wait_timeout,
		innodb_lock_wait_timeout = LEAST(@@innodb_lock_wait_timeout, ?)`
	if c.shortened {
		shorten = "SET innodb_lock_wait_timeout = LEAST(@row_wait, ?)"
	}
	if _, err := c.ExecContext(ctx, shorten, int(left/minRowWait)); err != nil {
		c.discard() // it may have been shortened
		return Refusal(err)
	}
	c.shortened = true
	return nil
}

// giveBack returns the connection to the pool as it was.
func (c *conn) giveBack(ctx context.Context) {
	if c.shortened {
		_, err := c.ExecContext(context.WithoutCancel(ctx), "SET innodb_lock_wait_timeout = @row_wait")
		if err != nil {
			c.discard()
		}
	}
	_ = c.Close()
}

// discard makes the pool close the connection.
func (c *conn) discard() { _ = c.Raw(func(any) error { return driver.ErrBadConn }) }
