package mysql

import (
	"context"
	"errors"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/share"
)

const (
	setSQL = `INSERT INTO good_stock (goods_id, stock, epoch) VALUES (?, ?, ?)
		ON DUPLICATE KEY UPDATE stock = VALUES(stock), version = version + 1, fence = 0, fence_issuer = '',
		epoch = GREATEST(epoch + 1, VALUES(epoch))`
	// LAST_INSERT_ID(expr) returns the units in the reply itself. It is unsigned, and the stock of an item that
	// `decrement` has oversold may still be negative.
	restockSQL = `UPDATE good_stock SET stock = CAST(LAST_INSERT_ID(stock + ?) AS SIGNED), version = version + 1
		WHERE goods_id = ? AND stock <= ?`
)

// NewAdmin makes the store for administration. Its connections count against Upkeep: the stock of an item can be read
// and set while the item's buyers use its share.
func NewAdmin(d stock.Deps) Store {
	s := New(d)
	s.upkeep = true
	return s
}

// Set implements stock.AdminStore. It makes the epoch from the time, so that a database that is created anew does not
// start from zero, and from the last and the given epoch, so that it grows even if the clock is set back.
func (s Store) Set(ctx context.Context, goodsID, units, last int64) (epoch int64, err error) {
	return again(ctx, s, func() (epoch int64, err error) {
		err = s.InTx(ctx, []int64{goodsID}, nil, func(tx Tx) error {
			if _, err := tx.ExecContext(ctx, setSQL, goodsID, units, max(time.Now().UnixMicro(), last+1)); err != nil {
				return err
			}
			return orMissing(goodsID, tx.GetContext(ctx, &epoch, epochSQL, goodsID))
		})
		return epoch, err
	})
}

// Restock implements stock.AdminStore.
func (s Store) Restock(ctx context.Context, goodsID, units int64) (int64, error) {
	for {
		left, err := again(ctx, s, func() (int64, error) {
			return s.execAndRecord(ctx, []int64{goodsID}, nil, restockSQL, units, goodsID, stock.MaxStock-units)
		})
		if !errors.Is(err, errNoMatch) {
			return left, err
		}
		// No row matched: too many units, or no such item.
		present, err := s.Read(ctx, goodsID)
		if err != nil {
			return 0, err
		}
		if present > stock.MaxStock-units {
			return 0, stock.Overstocked(goodsID, present, units)
		}
		// Units were sold between the two statements: try again.
	}
}

// Epoch reads the epoch of an item's stock.
func (s Store) Epoch(ctx context.Context, goodsID int64) (epoch int64, err error) {
	err = s.get(ctx, goodsID, &epoch, epochSQL, goodsID)
	return epoch, err
}

// ItemsAfter lists up to limit ids of items that are greater than last, in ascending order.
func (s Store) ItemsAfter(ctx context.Context, last int64, limit int) (ids []int64, err error) {
	err = s.use(ctx, []int64{share.Upkeep}, func(conn *conn) error {
		return conn.SelectContext(ctx, &ids,
			"SELECT goods_id FROM good_stock WHERE goods_id > ? ORDER BY goods_id LIMIT ?", last, limit)
	})
	return ids, err
}
