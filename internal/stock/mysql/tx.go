package mysql

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
)

// ReadCommitted is the isolation level that locks no gaps. At REPEATABLE READ, two requests that look for a key that
// does not exist would both lock the gap in which it belongs, and each would wait for the other to insert it.
var ReadCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// InTx runs work between BEGIN and COMMIT, on a connection that counts against the given shares. If anything fails
// before COMMIT, it rolls back: a statement that timed out waiting for a row (1205) leaves its transaction open, and
// earlier changes would be committed later. Work must not take a second connection: see use.
func (s Store) InTx(
	ctx context.Context, shares []int64, options *sql.TxOptions, work func(Tx) error,
) error {
	return s.use(ctx, shares, func(conn *conn) error {
		if err := conn.endBefore(ctx, conn); err != nil {
			return Refusal(err)
		}
		running, cancel := s.untilDeadline(ctx)
		defer cancel()
		tx, err := conn.begin(running, options)
		if err != nil {
			return err
		}
		defer tx.tx.Rollback()
		if err := work(tx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return stock.Interrupted(context.Cause(ctx))
		}
		return classifyCommit(tx.tx.Commit())
	})
}

// begin begins a transaction whose statements run until ctx ends.
func (c *conn) begin(ctx context.Context, options *sql.TxOptions) (Tx, error) {
	tx, err := c.BeginTxx(ctx, options)
	return Tx{tx, c, ctx}, Refusal(err)
}

// Tx is the store inside a transaction: nothing is written before COMMIT.
//
// A statement is not sent if its ctx has ended, but once it is sent, the request waits for the answer: see
// untilDeadline. The errors of statements are for Refusal.
type Tx struct {
	tx      *sqlx.Tx
	conn    *conn
	running context.Context // for statements under way
}

// ExecContext runs a statement.
func (tx Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := tx.prepare(ctx); err != nil {
		return nil, err
	}
	running, cancel := tx.until(ctx)
	defer cancel()
	return tx.tx.ExecContext(running, query, args...)
}

// GetContext reads one row.
func (tx Tx) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	if err := tx.prepare(ctx); err != nil {
		return err
	}
	running, cancel := tx.until(ctx)
	defer cancel()
	return tx.tx.GetContext(running, dest, query, args...)
}

// SelectContext reads any number of rows.
func (tx Tx) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	if err := tx.prepare(ctx); err != nil {
		return err
	}
	running, cancel := tx.until(ctx)
	defer cancel()
	return tx.tx.SelectContext(running, dest, query, args...)
}

// until returns the context of a statement under way. If the transaction has one that ends, that one ends them all.
func (tx Tx) until(ctx context.Context) (context.Context, context.CancelFunc) {
	if tx.running.Done() != nil {
		return tx.running, func() {}
	}
	return tx.conn.store.untilDeadline(ctx)
}

// prepare refuses a statement whose request has ended, and makes the server answer any other one in time.
func (tx Tx) prepare(ctx context.Context) error {
	if ctx.Err() != nil {
		return stock.Interrupted(context.Cause(ctx))
	}
	return tx.conn.endBefore(ctx, tx.tx)
}

// Read implements stock.ReadWriter.
func (tx Tx) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = tx.GetContext(ctx, &units, selectSQL, goodsID)
	return units, classifyRead(goodsID, err)
}

// Write implements stock.ReadWriter.
func (tx Tx) Write(ctx context.Context, goodsID, units int64) error {
	result, err := tx.ExecContext(ctx, overwriteSQL, units, goodsID)
	if err != nil {
		return Refusal(err)
	}
	return checkFound(result, goodsID)
}

// readForUpdate reads the current stock and locks the row.
func (tx Tx) readForUpdate(ctx context.Context, goodsID int64) (units int64, err error) {
	err = tx.GetContext(ctx, &units, selectSQL+forUpdateSQL(ctx), goodsID)
	return units, classifyRead(goodsID, err)
}

// forUpdateSQL is the end of a SELECT that locks its rows. A server that cannot be told to wait for less than a second
// knows at least NOWAIT, though not for an UPDATE.
func forUpdateSQL(ctx context.Context) string {
	if stock.TriesOnce(ctx) {
		return " FOR UPDATE NOWAIT"
	}
	return " FOR UPDATE"
}

// writeAll overwrites the stock of several items. Stocks with a holder are written through the fence.
func (tx Tx) writeAll(ctx context.Context, stocks []stock.ItemStock) error {
	for _, s := range stocks {
		var err error
		if s.Holder.Issuer == "" {
			err = tx.Write(ctx, s.GoodsID, s.Units)
		} else {
			err = tx.writeFenced(ctx, s)
		}
		if err != nil {
			return &stock.LineError{GoodsID: s.GoodsID, Err: err}
		}
	}
	return nil
}

// readRow is a row whose stock was read already: reading it again would cost a round trip.
type readRow struct {
	Tx
	units int64
}

func (r readRow) Read(context.Context, int64) (int64, error) { return r.units, nil }
