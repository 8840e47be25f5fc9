package stream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"stock/internal/stock/mysql"
	"stock/internal/stock/share"
)

// locking is what a transaction does when a row is locked.
type locking string

const (
	waitForRows  locking = ""
	failIfLocked locking = " NOWAIT" // fail with stock.ErrBusy
)

// record writes sales to MySQL in one transaction, except for those that are there already.
func (w *writeBehind) record(ctx context.Context, sales []sale, delivered time.Time, locked locking) error {
	if len(sales) == 0 {
		return nil
	}
	err := w.db.InTx(ctx, sharesOf(sales, locked), mysql.ReadCommitted, func(tx mysql.Tx) error {
		return w.deduct(ctx, tx, sales, delivered, locked)
	})
	if !mysql.IsDuplicate(err) {
		return err
	}
	var recorded map[saleKey]bool
	failed := w.db.InTx(ctx, []int64{share.Upkeep}, mysql.ReadCommitted, func(tx mysql.Tx) (err error) {
		recorded, err = findRecorded(ctx, tx, sales)
		return err
	})
	if failed != nil {
		return failed
	}
	left := slices.DeleteFunc(slices.Clone(sales), func(s sale) bool { return recorded[s.saleKey] })
	if len(left) == len(sales) {
		return err
	}
	return w.record(ctx, left, delivered, locked)
}

// sharesOf returns what the connection of a transaction counts against: the items if it may wait for their rows.
func sharesOf(sales []sale, locked locking) []int64 {
	if locked == failIfLocked {
		return []int64{share.Upkeep}
	}
	return slices.Sorted(maps.Keys(byItem(sales)))
}

// deduct locks the rows of the items, in ascending order, so that no two replicas wait for each other; inserts the
// sales; and deducts those that were made from the stock that MySQL has, even below zero: the sale was made.
//
// It fails if the sales were delivered too long ago: another replica may have written them since, and Prune may have
// deleted their records. The clock is read after the INSERT: after that no other replica can write them, however
// long this one is suspended.
func (w *writeBehind) deduct(
	ctx context.Context, tx mysql.Tx, sales []sale, delivered time.Time, locked locking,
) error {
	epochs, err := mysql.LockItems(ctx, tx, slices.Sorted(maps.Keys(byItem(sales))), string(locked))
	if err != nil {
		return err
	}
	sold, stale := map[int64]int64{}, map[int64]int64{}
	var args []any
	for _, s := range sales {
		epoch, known := epochs[s.goodsID]
		deducted := known && epoch == s.epoch
		if deducted {
			sold[s.goodsID] += s.units
		} else {
			stale[s.goodsID] += s.units
		}
		args = append(args, s.goodsID, s.entry, s.nonce, s.units, s.epoch, deducted)
	}
	const insert = "INSERT INTO stream_sale (goods_id, entry, nonce, units, epoch, deducted, written) VALUES "
	rows := strings.Repeat(", (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))", len(sales))[2:]
	if _, err := tx.ExecContext(ctx, insert+rows, args...); err != nil {
		return err
	}
	if held := time.Now().Round(0).Sub(delivered); held > w.maxAge {
		return fmt.Errorf("the sales were delivered %v ago, too long to write them now: they will be delivered again", held)
	}
	const update = "UPDATE good_stock SET stock = stock - ?, version = version + 1 WHERE goods_id = ?"
	for id, units := range sold {
		if _, err := tx.ExecContext(ctx, update, units, id); err != nil {
			return err
		}
	}
	for id, units := range stale {
		w.log.Warn("sales were made from a stock other than MySQL's: recorded in stream_sale, but not deducted",
			"goods_id", id, "units", units)
	}
	return nil
}

// findRecorded returns which of the sales are in stream_sale.
func findRecorded(ctx context.Context, tx mysql.Tx, sales []sale) (map[saleKey]bool, error) {
	recorded := map[saleKey]bool{}
	for chunk := range slices.Chunk(sales, 1000) {
		args := make([]any, 0, 3*len(chunk))
		for _, s := range chunk {
			args = append(args, s.goodsID, s.entry, s.nonce)
		}
		keys := strings.Repeat(", (?, ?, ?)", len(chunk))[2:]
		var rows []struct {
			GoodsID int64 `db:"goods_id"`
			Entry   string
			Nonce   int64
		}
		err := tx.SelectContext(ctx, &rows,
			"SELECT goods_id, entry, nonce FROM stream_sale WHERE (goods_id, entry, nonce) IN ("+keys+")", args...)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			recorded[saleKey{row.GoodsID, row.Entry, row.Nonce}] = true
		}
	}
	return recorded, nil
}
