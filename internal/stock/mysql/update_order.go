package mysql

import (
	"context"
	"errors"

	"stock/internal/stock"
)

// Order locks each item by the UPDATE that deducts from it, and rolls all of them back if one has too few units.
func (u update) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return u.OrderOnce(ctx, req, func() (stock.OrderReceipt, error) { return u.order(ctx, req) })
}

func (u update) order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	section := stock.Arrive()
	return u.orderInTx(ctx, req, nil, func(tx Tx) (stock.OrderReceipt, error) {
		lines, err := tx.deductAll(ctx, req, &section)
		if err != nil {
			return stock.OrderReceipt{}, err
		}
		if req.Hold > 0 {
			section.Leave()
		}
		return section.OrderReceipt(lines), nil
	})
}

// deductAll deducts every line by a conditional UPDATE, and then spends the order's hold. Nothing stands before COMMIT.
func (tx Tx) deductAll(
	ctx context.Context, req stock.OrderRequest, section *stock.Section,
) ([]stock.LineReceipt, error) {
	var receipts []stock.LineReceipt
	for _, line := range req.Lines() {
		remaining, err := tx.deduct(ctx, line)
		if err != nil {
			return nil, line.Refused(err)
		}
		receipts = append(receipts, stock.LineReceipt{Line: line, Remaining: remaining})
	}
	section.Enter()
	if err := stock.Work(ctx, req.Hold); err != nil {
		return nil, err
	}
	return receipts, nil
}

// deduct deducts the units of one line, and keeps the row locked.
func (tx Tx) deduct(ctx context.Context, line stock.Line) (remaining int64, err error) {
	for {
		remaining, err := matched(tx.ExecContext(ctx, deductSQL, line.Count, line.GoodsID, line.Count))
		if !errors.Is(err, errNoMatch) {
			return remaining, err
		}
		// No row matched: too few units, or no such item. Only refusals pay for the second query. A plain read may show
		// a snapshot older than what the UPDATE saw (in TiDB, that of BEGIN), so the read must lock.
		units, err := tx.readForUpdate(ctx, line.GoodsID)
		if err != nil {
			return 0, err
		}
		if units < int64(line.Count) {
			return 0, &stock.SoldOutError{GoodsID: line.GoodsID, Asked: line.Count, Remaining: units}
		}
		// Units were added between the two statements: try again.
	}
}
