package mysql

import (
	"context"
	"errors"

	"stock/internal/stock"
)

// Both statements return the units left in the reply itself: LAST_INSERT_ID(expr) hands expr to the client, on MySQL,
// MariaDB and TiDB alike.
const (
	deductSQL = `UPDATE good_stock SET stock = LAST_INSERT_ID(stock - ?), version = version + 1
		WHERE goods_id = ? AND stock >= ?`
	// LAST_INSERT_ID is unsigned: a negative value must be cast back.
	decrementSQL = `UPDATE good_stock SET stock = CAST(LAST_INSERT_ID(stock - ?) AS SIGNED), version = version + 1
		WHERE goods_id = ?`
)

// update is one conditional UPDATE. The row lock of the database is the critical section.
type update struct{ Store }

// NewUpdate makes the strategy `update`.
func NewUpdate(d stock.Deps) stock.Deducter { return newUpdate(d) }

func newUpdate(d stock.Deps) update { return update{New(d)} }

func (u update) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return u.Once(ctx, req, func() (stock.Receipt, error) { return u.deduct(ctx, req) })
}

func (u update) deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	for {
		receipt, err := u.execDeduct(ctx, req, stock.Arrive(), deductSQL, req.Count, req.GoodsID, req.Count)
		if !errors.Is(err, errNoMatch) {
			return receipt, err
		}
		// No row matched: too few units, or no such item. Only refusals pay for the second query.
		units, err := u.Read(ctx, req.GoodsID)
		if err != nil {
			return stock.Receipt{}, err
		}
		if units < int64(req.Count) {
			return stock.Receipt{}, soldOut(req, units)
		}
		// Units were added between the two statements: try again.
	}
}

// decrement is an UPDATE without the condition that there is enough. It oversells without any race.
type decrement struct{ Store }

// NewDecrement makes the control `decrement`.
func NewDecrement(d stock.Deps) stock.Deducter { return decrement{New(d)} }

func (d decrement) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return again(ctx, d.Store, func() (stock.Receipt, error) {
		receipt, err := d.execDeduct(ctx, req, stock.Arrive(), decrementSQL, req.Count, req.GoodsID)
		return receipt, orMissing(req.GoodsID, err)
	})
}

// execDeduct runs a statement that deducts and returns LAST_INSERT_ID(units left). It fails with errNoMatch if that
// matches no row. By itself it is a transaction of one round trip, also if it records a key. A request with work to do
// makes it BEGIN, statement, work, COMMIT, so that the work happens while the row is locked.
func (s Store) execDeduct(
	ctx context.Context, req stock.Request, section stock.Section, query string, args ...any,
) (stock.Receipt, error) {
	if req.Hold > 0 {
		return s.execDeductInTx(ctx, req, section, query, args...)
	}
	remaining, err := s.execAndRecord(ctx, []int64{req.GoodsID}, s.rowsOfStatement(req), query, args...)
	if err != nil {
		return stock.Receipt{}, err
	}
	section.Enter()
	return section.Receipt(remaining, 1), nil
}

func (s Store) execDeductInTx(
	ctx context.Context, req stock.Request, section stock.Section, query string, args ...any,
) (stock.Receipt, error) {
	return s.DeductInTx(ctx, req, nil, func(tx Tx) (stock.Receipt, error) {
		remaining, err := matched(tx.ExecContext(ctx, query, args...))
		if err != nil {
			return stock.Receipt{}, err
		}
		section.Enter()
		if err := stock.Work(ctx, req.Hold); err != nil {
			return stock.Receipt{}, err
		}
		section.Leave()
		return section.Receipt(remaining, 1), nil
	})
}

func soldOut(req stock.Request, units int64) error {
	return &stock.SoldOutError{GoodsID: req.GoodsID, Asked: req.Count, Remaining: units}
}
