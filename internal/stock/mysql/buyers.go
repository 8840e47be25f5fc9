package mysql

import (
	"context"
	"slices"
	"strings"

	"stock/internal/stock"
)

// buyers is what some buyers have bought of an item, in a transaction that has locked the item's row.
//
// The item's row is locked before the buyers' rows, so that the rows of an item have only one owner at a time. Nobody
// can then deadlock on the row of a buyer, and the stock cannot be set, which would begin a new epoch, between the
// check and the sale. The price is that a buyer who is refused has waited for the item, as one does who comes too late.
type buyers struct {
	goodsID int64
	units   int64            // in stock
	epoch   int64            // of the stock
	bought  map[string]int64 // units by buyer, in this epoch
	changed []string         // buyers whose units are not written yet
}

// The isolation level must be READ COMMITTED: at REPEATABLE READ, a buyer without a row would lock the gap in which the
// row belongs.
const (
	// The index is named because the server might otherwise read all buyers of the item.
	selectBuyersSQL = `SELECT s.stock, s.epoch, b.buyer, COALESCE(b.units, 0) AS units
		FROM good_stock s LEFT JOIN buyer_units b FORCE INDEX (PRIMARY)
		ON b.goods_id = s.goods_id AND b.epoch = s.epoch AND b.buyer IN `
	insertBuyersSQL = "INSERT INTO buyer_units (goods_id, buyer, epoch, units, created_at) VALUES "
	oneBuyerSQL     = "(?, ?, ?, ?, UTC_TIMESTAMP(6))"
)

// lockBuyers locks the row of an item, and reads what the named buyers have bought of it.
func (tx Tx) lockBuyers(ctx context.Context, goodsID int64, names ...string) (*buyers, error) {
	args := make([]any, 0, len(names)+1)
	for _, name := range names {
		args = append(args, []byte(name))
	}
	var rows []struct {
		Stock, Epoch, Units int64
		Buyer               []byte // nil if no buyer has a row
	}
	err := tx.SelectContext(ctx, &rows, selectBuyersSQL+list(len(names))+" WHERE s.goods_id = ?"+forUpdateSQL(ctx),
		append(args, goodsID)...)
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, orMissing(goodsID, errNoMatch)
	}
	b := &buyers{goodsID: goodsID, units: rows[0].Stock, epoch: rows[0].Epoch, bought: map[string]int64{}}
	for _, row := range rows {
		b.bought[string(row.Buyer)] = row.Units
	}
	return b, nil
}

// add counts units for a buyer.
func (b *buyers) add(name string, units int) {
	b.bought[name] += int64(units)
	if !slices.Contains(b.changed, name) {
		b.changed = append(b.changed, name)
	}
}

// writeBuyers writes what was added.
func (tx Tx) writeBuyers(ctx context.Context, b *buyers) error {
	if len(b.changed) == 0 {
		return nil
	}
	args := make([]any, 0, 4*len(b.changed))
	for _, name := range b.changed {
		args = append(args, b.goodsID, []byte(name), b.epoch, b.bought[name])
	}
	_, err := tx.ExecContext(ctx, insertBuyersSQL+oneBuyerSQL+strings.Repeat(", "+oneBuyerSQL, len(b.changed)-1)+
		` ON DUPLICATE KEY UPDATE epoch = VALUES(epoch), units = VALUES(units), created_at = VALUES(created_at)`, args...)
	return err
}

// sell is deduct for a line whose units may be limited for its buyer.
func (tx Tx) sell(
	ctx context.Context, line stock.Line, buyer stock.Buyer, reread readFunc,
) (remaining int64, err error) {
	if buyer.Name == "" {
		return tx.deduct(ctx, line, reread)
	}
	b, err := tx.lockBuyers(ctx, line.GoodsID, buyer.Name)
	if err != nil {
		return 0, err
	}
	if err := buyer.Check(line, b.bought[buyer.Name]); err != nil {
		return 0, err
	}
	if remaining, err = tx.deduct(ctx, line, reread); err != nil {
		return 0, err
	}
	b.add(buyer.Name, line.Count)
	return remaining, tx.writeBuyers(ctx, b)
}
