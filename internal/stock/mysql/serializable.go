package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"stock/internal/stock"
	"stock/internal/stock/retry"
)

// serializable relies on the isolation level. InnoDB implements it with locks: a SELECT takes a shared lock on the
// row. Of two transactions that have both read it and want to write, one is rolled back as the victim of a deadlock
// and starts anew. TiDB does not have this level and refuses it.
type serializable struct {
	Store
	retries *retry.Retries
}

// NewSerializable makes the strategy `serializable`.
func NewSerializable(d stock.Deps) stock.Deducter {
	return serializable{New(d), &retry.Retries{Wait: d.LockWait}}
}

func (s serializable) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return s.Once(ctx, req, func() (stock.Receipt, error) {
		return s.retries.Deduct(ctx, req, func(section *stock.Section) (stock.Receipt, error) {
			return s.try(ctx, req, section)
		})
	})
}

// try sets the level in BeginTx: set on the session, it would leak to the next user of the connection.
func (s serializable) try(
	ctx context.Context, req stock.Request, section *stock.Section,
) (receipt stock.Receipt, err error) {
	options := &sql.TxOptions{Isolation: sql.LevelSerializable}
	receipt, err = s.DeductInTx(ctx, req, options, func(tx Tx) (stock.Receipt, error) {
		units, err := tx.Read(ctx, req.GoodsID)
		if err != nil {
			return stock.Receipt{}, err
		}
		section.Enter()
		return stock.ReadModifyWrite(ctx, readRow{tx, units}, req, *section)
	})
	if isRolledBack(err) {
		err = fmt.Errorf("%w: %w", retry.ErrConflict, err)
	}
	return receipt, err
}
