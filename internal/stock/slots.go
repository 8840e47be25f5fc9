package stock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// slotCount is how many rows the stock of a goods is split over: so many buyers of it can be at their COMMIT at the same time. In
// return its sum is read from as many rows, and the tail locks them all.
const slotCount = 16

// slotStore keeps the stock of a goods split over several rows of the table good_slot: a striped counter, as is LongAdder in
// Java. What there is of a goods is the sum of its rows, and only a statement that reads all of them knows it.
//
// Whoever locks more than one row does so in ascending order, so that none of them wait for each other in a circle.
type slotStore struct{ mysql mysqlStore }

// slot is a row of a goods.
type slot struct {
	Slot  int
	Stock int64
}

const (
	slotsSQL    = "SELECT slot, stock FROM good_slot WHERE goods_id = ? ORDER BY slot"
	takeSlotSQL = "UPDATE good_slot SET stock = stock - ? WHERE goods_id = ? AND slot = ? AND stock >= ?"
)

// slotsOf reads all rows of a goods in one statement: they are of one moment, and so is their sum. Rows read one after another
// would not do: units that are put from one into another meanwhile would be counted twice, or not at all.
func slotsOf(ctx context.Context, from sqlx.QueryerContext, goodsID int64, locking string) (slots []slot, units int64, err error) {
	err = sqlx.SelectContext(ctx, from, &slots, slotsSQL+locking, goodsID)
	if err == nil && len(slots) == 0 {
		err = sql.ErrNoRows
	}
	for _, s := range slots {
		units += s.Stock
	}
	return slots, units, unwritten(goodsID, err)
}

func (s slotStore) read(ctx context.Context, goodsID int64) (int64, error) {
	_, units, err := slotsOf(ctx, s.mysql.db, goodsID, "")
	return units, err
}

func (s slotStore) set(ctx context.Context, goodsID, units, epoch int64) (int64, error) {
	return epoch, s.mysql.inTx(ctx, readCommitted, Request{}, func(tx *sqlx.Tx) error {
		slots := make([]slot, slotCount)
		for i := range slots {
			slots[i].Slot = i
		}
		if err := overwriteSlots(ctx, tx, goodsID, spread(slots, units, 1)); err != nil {
			return err
		}
		// Those of a time when goods were split over more.
		_, err := tx.ExecContext(ctx, "DELETE FROM good_slot WHERE goods_id = ? AND slot >= ?", goodsID, slotCount)
		return unwritten(goodsID, err)
	})
}

func (s slotStore) restock(ctx context.Context, goodsID, units int64) (left int64, err error) {
	err = s.settle(ctx, Request{GoodsID: goodsID, Count: 1}, func(present int64) (int64, error) {
		if present > MaxStock-units {
			return 0, overstocked(goodsID, present, units)
		}
		left = present + units
		return left, nil
	})
	return left, err
}

// settle locks all rows of a goods, so that their sum stands still, has change say how much it is to be, and spreads that
// evenly over as many of them as can hold the request's count each.
func (s slotStore) settle(ctx context.Context, req Request, change func(units int64) (int64, error)) error {
	return s.mysql.inTx(ctx, readCommitted, req, func(tx *sqlx.Tx) error {
		slots, units, err := slotsOf(ctx, tx, req.GoodsID, " FOR UPDATE")
		if err != nil {
			return err
		}
		if units, err = change(units); err != nil {
			return err
		}
		return overwriteSlots(ctx, tx, req.GoodsID, spread(slots, units, int64(req.Count)))
	})
}

// spread puts units evenly into the first slots, into so many that each gets count units at least, and empties the others.
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

// overwriteSlots writes rows, new or known, in one statement.
func overwriteSlots(ctx context.Context, tx *sqlx.Tx, goodsID int64, slots []slot) error {
	var args []any
	for _, s := range slots {
		args = append(args, goodsID, s.Slot, s.Stock)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO good_slot (goods_id, slot, stock) VALUES (?, ?, ?)"+strings.Repeat(", (?, ?, ?)", len(slots)-1)+
		" ON DUPLICATE KEY UPDATE stock = VALUES(stock)", args...)
	return unwritten(goodsID, err)
}

// slots takes from one row of several, so that not all buyers of a goods wait for the same lock.
//
// A row is picked blindly: most have enough for as long as there is plenty. A miss proves nothing, nor do misses in all rows
// one after another, as units may be put from one that is yet to be tried into one that has been. So all rows are read in
// one statement, which decides: where their sum is too small, the goods is sold out; where one holds enough, it is tried
// next; and where only all together do, they are locked, taken from, and the rest is spread anew.
//
// SKIP LOCKED would find a row that nobody waits for, at the price of a transaction of four round trips in place of one
// statement, and TiDB does not have it.
type slots struct {
	slotStore
	wait time.Duration
}

func newSlots(d Deps, _ Store) (Deducter, error) {
	return slots{slotStore{mysqlStore{d.MySQL}}, d.LockWait}, nil
}

func (s slots) Deduct(ctx context.Context, req Request) (Receipt, error) {
	asked := arrive().asked
	// At random, not in turn: turns that all goods share would send the buyers of each to some of its rows only.
	next, found := rand.N(slotCount), true
	for attempt := 1; ; attempt++ {
		receipt, done, err := s.try(ctx, req, next, found)
		if err == nil && !done {
			next, found, err = s.look(ctx, req)
		}
		switch {
		case done:
			receipt.Untold, receipt.Attempts = true, attempt
			receipt.Waited = time.Duration(receipt.Entered - asked)
			return receipt, nil
		case err != nil && !undone(err):
			return Receipt{}, err
		case time.Duration(monotonic.now()-asked) > s.wait:
			return Receipt{}, fmt.Errorf("%w: the slots of goods %d changed under each of %d tries", ErrBusy, req.GoodsID, attempt)
		case err != nil:
			if err := backOff(ctx, attempt); err != nil {
				return Receipt{}, interrupted(err)
			}
		}
	}
}

// try takes from one slot, or from all where none was found that holds enough.
func (s slots) try(ctx context.Context, req Request, slot int, found bool) (receipt Receipt, done bool, err error) {
	if !found {
		receipt, err = s.takeAcross(ctx, req)
		return receipt, err == nil, err
	}
	receipt, rows, err := s.mysql.once(ctx, req, takeSlotSQL, req.Count, req.GoodsID, slot, req.Count)
	return receipt, rows == 1, err
}

// look finds a slot that holds enough, any of them with equal chances, if there is one.
func (s slots) look(ctx context.Context, req Request) (next int, found bool, err error) {
	all, units, err := slotsOf(ctx, s.mysql.db, req.GoodsID, "")
	if err != nil {
		return 0, false, err
	}
	if units < int64(req.Count) {
		return 0, false, &SoldOutError{req.GoodsID, req.Count, units}
	}
	for _, i := range rand.Perm(len(all)) {
		if all[i].Stock >= int64(req.Count) {
			return all[i].Slot, true, nil
		}
	}
	return 0, false, nil
}

// takeAcross takes from all slots together. Their locks are the critical section.
func (s slots) takeAcross(ctx context.Context, req Request) (Receipt, error) {
	section := arrive()
	err := s.settle(ctx, req, func(units int64) (int64, error) {
		section.enter()
		if err := req.pause(ctx, AfterLock); err != nil {
			return 0, interrupted(err)
		}
		if units < int64(req.Count) {
			return 0, &SoldOutError{req.GoodsID, req.Count, units}
		}
		if err := req.work(ctx); err != nil {
			return 0, interrupted(err)
		}
		if err := req.pause(ctx, BeforeWrite); err != nil {
			return 0, interrupted(err)
		}
		section.leave()
		return units - int64(req.Count), nil
	})
	return section.receipt(0, 1), err
}
