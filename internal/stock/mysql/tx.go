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
		if err := conn.endBefore(ctx, conn.Conn); err != nil {
			return err
		}
		running, cancel := s.untilDeadline(ctx)
		defer cancel()
		return conn.inTx(running, options, func(tx Tx) error {
			err := work(tx)
			if err == nil && ctx.Err() != nil {
				err = stock.Interrupted(context.Cause(ctx))
			}
			return err
		})
	})
}

// inTx runs work between BEGIN and COMMIT. The statements run until ctx ends.
func (c *conn) inTx(ctx context.Context, options *sql.TxOptions, work func(Tx) error) error {
	tx, err := c.BeginTxx(ctx, options)
	if err != nil {
		return refusal(err)
	}
	defer tx.Rollback()
	if err := work(Tx{tx, c, ctx}); err != nil {
		return err
	}
	return classifyCommit(tx.Commit())
}

// Tx is the store inside a transaction: nothing is written before COMMIT.
//
// A statement is not sent if its ctx has ended, but once it is sent, the request waits for the answer: see
// untilDeadline.
type Tx struct {
	tx      *sqlx.Tx
	conn    *conn
	running context.Context // for statements under way
}

// ExecContext runs a statement.
func (tx Tx) ExecContext(ctx context.Context, query string, args ...any) (done Changed, err error) {
	err = tx.send(ctx, func(running context.Context) error {
		done, err = changed(tx.tx.ExecContext(running, query, args...))
		return err
	})
	return done, err
}

// GetContext reads one row.
func (tx Tx) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return tx.send(ctx, func(running context.Context) error {
		return tx.tx.GetContext(running, dest, query, args...)
	})
}

// SelectContext reads any number of rows.
func (tx Tx) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	return tx.send(ctx, func(running context.Context) error {
		return tx.tx.SelectContext(running, dest, query, args...)
	})
}

// send sends a statement, unless its request has ended. If the context of the transaction can end, its statements end
// with that one.
func (tx Tx) send(ctx context.Context, statement func(running context.Context) error) error {
	if ctx.Err() != nil {
		return stock.Interrupted(context.Cause(ctx))
	}
	if err := tx.conn.endBefore(ctx, tx.tx); err != nil {
		return err
	}
	running := tx.running
	if running.Done() == nil {
		var cancel context.CancelFunc
		running, cancel = tx.conn.store.untilDeadline(ctx)
		defer cancel()
	}
	return refusal(statement(running))
}
