package mysql

import (
	"context"
	"database/sql"
	"errors"

	"stock/internal/stock"
)

// updateCheckFirst is an update that looks up what the buyer has bought before it locks anything, and counts the units
// after the sale. Requests of one buyer at the same time all pass the check, each before the others are counted.
type updateCheckFirst struct {
	stock.Canceller
	stock.Deducter
}

// NewUpdateCheckFirst makes the control `update-check-first`.
func NewUpdateCheckFirst(d stock.Deps) stock.Deducter {
	store := New(d)
	return updateCheckFirst{store, update{store, checkThenSell}}
}

func checkThenSell(ctx context.Context, tx Tx, req stock.Request) (remaining int64, err error) {
	line, buyer := stock.Line{GoodsID: req.GoodsID, Count: req.Count}, req.Buyer
	var bought int64
	err = tx.GetContext(ctx, &bought, `SELECT b.units FROM buyer_units b JOIN good_stock s
		ON s.goods_id = b.goods_id AND s.epoch = b.epoch WHERE b.goods_id = ? AND b.buyer = ?`,
		line.GoodsID, []byte(buyer.Name))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if err := buyer.Check(line, bought); err != nil {
		return 0, err
	}
	if remaining, err = tx.deduct(ctx, line, tx.Read); err != nil {
		return remaining, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO buyer_units (goods_id, buyer, epoch, units, created_at)
		SELECT goods_id, ?, epoch, ?, UTC_TIMESTAMP(6) FROM good_stock WHERE goods_id = ?
		ON DUPLICATE KEY UPDATE units = IF(buyer_units.epoch = VALUES(epoch), units, 0) + VALUES(units),
		epoch = VALUES(epoch), created_at = VALUES(created_at)`, []byte(buyer.Name), line.Count, line.GoodsID)
	return remaining, err
}
