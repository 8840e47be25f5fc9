package mysql

import (
	"context"

	"stock/internal/stock"
)

// forUpdate is pessimistic locking: the row stays locked from the read to the COMMIT.
type forUpdate struct{ Store }

// NewForUpdate makes the strategy `for-update`.
func NewForUpdate(d stock.Deps) stock.Deducter { return forUpdate{New(d)} }

func (f forUpdate) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return f.Once(ctx, req, func() (stock.Receipt, error) { return f.deduct(ctx, req) })
}

func (f forUpdate) deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	section := stock.Arrive()
	return f.DeductInTx(ctx, req, nil, func(tx Tx) (stock.Receipt, error) {
		units, err := tx.readForUpdate(ctx, req.GoodsID)
		if err != nil {
			return stock.Receipt{}, err
		}
		section.Enter()
		return stock.ReadModifyWrite(ctx, readRow{tx, units}, req, section)
	})
}

// Order locks one item after the other. A single SELECT of all items would lock them in the order in which the server
// happens to read them: with few items in the table it scans, and locks, the whole table.
func (f forUpdate) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return f.OrderOnce(ctx, req, func() (stock.OrderReceipt, error) { return f.order(ctx, req) })
}

func (f forUpdate) order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	section := stock.Arrive()
	return f.orderInTx(ctx, req, nil, func(tx Tx) (stock.OrderReceipt, error) {
		stocks, err := req.ReadAll(func(line stock.Line) (stock.ItemStock, error) {
			units, err := tx.readForUpdate(ctx, line.GoodsID)
			if err != nil {
				return stock.ItemStock{}, line.Refused(err)
			}
			return stock.ItemStock{GoodsID: line.GoodsID, Units: units}, nil
		})
		if err != nil {
			return stock.OrderReceipt{}, err
		}
		section.Enter()
		return req.DecideAndWrite(ctx, stocks, tx.writeAll, section)
	})
}
