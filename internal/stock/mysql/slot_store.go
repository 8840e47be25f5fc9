package mysql

import (
	"context"
	"database/sql"
	"strings"

	"stock/internal/stock"
)

// slotCount is the number of rows over which the stock of an item is split: as many buyers of it can commit at the same
// time. The price is that reading the stock reads as many rows, and that the last units are sold under the locks of all
// of them.
const slotCount = 16

// SlotStore keeps the stock of an item split over several rows of the table good_slot: a striped counter, like
// LongAdder in Java. The stock of an item is the sum of its rows, which only a statement that reads all of them
// knows.
//
// A transaction that locks more than one row locks them in ascending order, so that no two wait for each other.
type SlotStore struct{ MySQL Store }

// slot is one row of an item.
type slot struct {
	Slot  int
	Stock int64
	Sold  int64 // units sold in batches since the item's units were last spread: see escrow
}

const (
	slotsSQL    = "SELECT slot, stock, sold FROM good_slot WHERE goods_id = ? ORDER BY slot"
	takeSlotSQL = "UPDATE good_slot SET stock = stock - ? WHERE goods_id = ? AND slot = ? AND stock >= ?"
)

// readSlots reads all rows of an item in one statement, so that they are of one moment, and so is their sum. If the
// rows were read one after another, units moved between them meanwhile would be counted twice or not at all.
func readSlots(
	ctx context.Context, from session, goodsID int64, locking string,
) (slots []slot, units int64, err error) {
	err = from.SelectContext(ctx, &slots, slotsSQL+locking, goodsID)
	if err == nil && len(slots) == 0 {
		err = sql.ErrNoRows
	}
	for _, s := range slots {
		units += s.Stock
	}
	return slots, units, orMissing(goodsID, err)
}

// Read implements stock.AdminStore.
func (s SlotStore) Read(ctx context.Context, goodsID int64) (int64, error) {
	_, units, err := s.read(ctx, goodsID)
	return units, err
}

func (s SlotStore) read(ctx context.Context, goodsID int64) (slots []slot, units int64, err error) {
	err = s.MySQL.use(ctx, []int64{goodsID}, func(conn *conn) error {
		slots, units, err = readSlots(ctx, conn, goodsID, "")
		return err
	})
	return slots, units, err
}

// Set implements stock.AdminStore. The store makes no epochs of its own.
func (s SlotStore) Set(ctx context.Context, goodsID, units, epoch int64) (int64, error) {
	return epoch, s.MySQL.InTx(ctx, []int64{goodsID}, ReadCommitted, func(tx Tx) error {
		slots := make([]slot, slotCount)
		for i := range slots {
			slots[i].Slot = i
		}
		if err := writeSlots(ctx, tx, goodsID, spread(slots, units, 1)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE good_slot SET epoch = ? WHERE goods_id = ?", epoch, goodsID)
		return err
	})
}

// Restock implements stock.AdminStore.
func (s SlotStore) Restock(ctx context.Context, goodsID, units int64) (left int64, err error) {
	err = s.rearrange(ctx, stock.Request{GoodsID: goodsID, Count: 1}, func(present int64) (int64, error) {
		if present > stock.MaxStock-units {
			return 0, stock.Overstocked(goodsID, present, units)
		}
		left = present + units
		return left, nil
	})
	return left, err
}

// rearrange locks all rows of an item, so that their sum does not change, has change return the new sum, and spreads
// that evenly over as many rows as can hold the request's count each. If the request has a key, it is a deduction.
func (s SlotStore) rearrange(
	ctx context.Context, req stock.Request, change func(units int64) (int64, error),
) error {
	return s.MySQL.InTx(ctx, []int64{ShareOf(req)}, ReadCommitted, func(tx Tx) error {
		slots, units, err := readSlots(ctx, tx, req.GoodsID, forUpdateSQL(ctx))
		if err != nil {
			return err
		}
		if units, err = change(units); err != nil {
			return err
		}
		if err := writeSlots(ctx, tx, req.GoodsID, spread(slots, units, int64(req.Count))); err != nil {
			return err
		}
		return tx.record(ctx, s.MySQL.rowsOf(req, 0))
	})
}

// spread puts units evenly into the first slots, into as many as get at least count units each, and empties the others.
func spread(slots []slot, units, count int64) []slot {
	n := min(int64(len(slots)), max(1, units/count))
	for i := range slots {
		slots[i].Stock = 0
		if i := int64(i); i < n {
			slots[i].Stock = units / n
			if i < units%n {
				slots[i].Stock++
			}
		}
	}
	return slots
}

// writeSlots inserts or overwrites rows in one statement. Nothing was sold from them since.
func writeSlots(ctx context.Context, tx Tx, goodsID int64, slots []slot) error {
	var args []any
	for _, s := range slots {
		args = append(args, goodsID, s.Slot, s.Stock)
	}
	rows := "(?, ?, ?)" + strings.Repeat(", (?, ?, ?)", len(slots)-1)
	_, err := tx.ExecContext(ctx, "INSERT INTO good_slot (goods_id, slot, stock) VALUES "+rows+
		" ON DUPLICATE KEY UPDATE stock = VALUES(stock), sold = 0", args...)
	return err
}
