package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"

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

	// The usual, the present and the shortest wait of its server for a row, in seconds. All are 0 until the wait is
	// first shortened.
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

// GetContext reads one row. The statement is not sent if ctx has ended.
func (c *conn) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return c.read(ctx, c.Conn, dest, query, args...)
}

// sender is the transaction of a connection if it has one, and else the connection: during a transaction, a sql.Conn
// that finds its connection broken would close it, and wait for the transaction to end.
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

// ExecContext runs a statement that leaves nothing if it fails, or that may be repeated. See exec.
func (c *conn) ExecContext(ctx context.Context, query string, args ...any) (Changed, error) {
	done, err := changed(c.Conn.ExecContext(ctx, query, args...))
	return done, refusal(err)
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

// get reads one row about an item, or something else that has a share of the connections.
func (s Store) get(ctx context.Context, goodsID int64, dest any, query string, args ...any) error {
	return s.use(ctx, []int64{goodsID}, func(conn *conn) error {
		return orMissing(goodsID, conn.GetContext(ctx, dest, query, args...))
	})
}
