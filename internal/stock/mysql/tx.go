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

// InTx runs work between BEGIN and COMMIT, on a connection that counts against the given shares, and pauses at
// BeforeCommit. If anything fails before COMMIT, it rolls back: a statement that failed by a lock wait (1205) leaves
// its transaction open, and earlier changes would be committed later. Work must use nothing but the transaction: see
// use.
func (s Store) InTx(
	ctx context.Context, shares []int64, options *sql.TxOptions, pause stock.PauseFunc, work func(*sqlx.Tx) error,
) error {
	return s.use(ctx, shares, func(conn *conn) error {
		if err := conn.endBefore(ctx); err != nil {
			return err
		}
		tx, err := conn.BeginTxx(ctx, options)
		if err != nil {
			return Refusal(err)
		}
		defer tx.Rollback()
		if err := work(tx); err != nil {
			return err
		}
		if err := pause.At(ctx, stock.BeforeCommit); err != nil {
			return err
		}
		return classifyCommit(tx.Commit())
	})
}

// Tx is the store inside a transaction: nothing is written before COMMIT.
type Tx struct{ *sqlx.Tx }

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
	err = tx.GetContext(ctx, &units, selectSQL+" FOR UPDATE", goodsID)
	return units, classifyRead(goodsID, err)
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
