package mysql

import (
	"context"

	"stock/internal/stock"
)

// forUpdate is pessimistic locking: the row stays locked from the read to the COMMIT.
type forUpdate struct{ Store }

// NewForUpdate makes the strategy `for-update`.
func NewForUpdate(d stock.Deps) stock.Deducter { return forUpdate{New(d)} }

func (f forUpdate) Deduct(ctx context.Context, req stock.Request) (receipt stock.Receipt, err error) {
	section := stock.Arrive()
	err = f.InTx(ctx, []int64{ShareOf(req)}, nil, func(tx Tx) error {
		units, err := tx.readForUpdate(ctx, req.GoodsID)
		if err != nil {
			return err
		}
		section.Enter()
		receipt, err = stock.ReadModifyWrite(ctx, readRow{tx, units}, req, section)
		return err
	})
	return receipt, err
}

// Order locks one item after the other. A single SELECT of all items would lock them in the order in which the server
// happens to read them: with few items in the table it scans, and locks, the whole table.
func (f forUpdate) Order(ctx context.Context, req stock.OrderRequest) (receipt stock.OrderReceipt, err error) {
	section := stock.Arrive()
	err = f.InTx(ctx, sharesOf(req), nil, func(tx Tx) error {
		stocks, err := req.ReadAll(func(line stock.Line) (stock.ItemStock, error) {
			units, err := tx.readForUpdate(ctx, line.GoodsID)
			if err != nil {
				return stock.ItemStock{}, line.Refused(err)
			}
			return stock.ItemStock{GoodsID: line.GoodsID, Units: units}, nil
		})
		if err != nil {
			return err
		}
		section.Enter()
		receipt, err = req.DecideAndWrite(ctx, stocks, tx.writeAll, section)
		return err
	})
	return receipt, err
}
