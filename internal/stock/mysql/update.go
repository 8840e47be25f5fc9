package mysql

import (
	"context"
	"database/sql"

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
func NewUpdate(d stock.Deps) stock.Deducter { return update{New(d)} }

func (u update) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	for {
		receipt, rows, err := u.execDeduct(ctx, req, stock.Arrive(), deductSQL, req.Count, req.GoodsID, req.Count)
		if err != nil || rows == 1 {
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
	receipt, rows, err := d.execDeduct(ctx, req, stock.Arrive(), decrementSQL, req.Count, req.GoodsID)
	if err == nil && rows == 0 {
		err = missing(req.GoodsID)
	}
	return receipt, err
}

// execDeduct runs a statement that deducts. By itself it is a transaction of one round trip. A request with work to do
// makes it BEGIN, statement, work, COMMIT, so that the work happens while the row is locked.
func (s Store) execDeduct(
	ctx context.Context, req stock.Request, section stock.Section, query string, args ...any,
) (stock.Receipt, int64, error) {
	if req.Hold > 0 {
		return s.execDeductInTx(ctx, req, section, query, args...)
	}
	result, err := s.exec(ctx, []int64{req.GoodsID}, query, args...)
	if err != nil {
		return stock.Receipt{}, 0, err
	}
	section.Enter()
	return confirm(result, &section)
}

func (s Store) execDeductInTx(
	ctx context.Context, req stock.Request, section stock.Section, query string, args ...any,
) (receipt stock.Receipt, rows int64, err error) {
	err = s.InTx(ctx, []int64{ShareOf(req)}, nil, func(tx Tx) error {
		result, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return Refusal(err)
		}
		section.Enter()
		if rows, err = result.RowsAffected(); err != nil || rows == 0 {
			return err
		}
		if err := stock.Work(ctx, req.Hold); err != nil {
			return err
		}
		section.Leave()
		receipt, rows, err = confirm(result, &section)
		return err
	})
	return receipt, rows, err
}

// confirm makes the receipt from the reply of a statement with LAST_INSERT_ID(units left).
func confirm(result sql.Result, section *stock.Section) (stock.Receipt, int64, error) {
	rows, err := result.RowsAffected()
	if err != nil || rows == 0 {
		return stock.Receipt{}, rows, err
	}
	remaining, err := result.LastInsertId()
	return section.Receipt(remaining, 1), rows, err
}

func soldOut(req stock.Request, units int64) error {
	return &stock.SoldOutError{GoodsID: req.GoodsID, Asked: req.Count, Remaining: units}
}
