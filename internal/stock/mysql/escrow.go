package mysql

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"stock/internal/stock"
	"stock/internal/stock/batching"
)

// escrow is a batch in which each replica sells from a row of its own, its home, so that the commits of two replicas
// do not wait for the same row. When the home cannot cover a batch, the replica locks all rows of the item and moves
// units to its home (O'Neil, "The Escrow Transactional Method", TODS 1986).
//
// A home is only a preference: every replica may sell the units of every row. So a replica that died keeps no units
// from the others, there is no lease to wait for, and a late write is a conditional UPDATE like any other. A request is
// refused only if one statement has read all rows and their sum is too small.
//
// Units are moved in proportion to what was sold from each row since the last move: rows without a seller become empty,
// and the rows of all sellers run out at about the same time. So units seldom move, however many replicas sell.
//
// Requests that do not join a batch are carried out by slots. Like slots, escrow takes no orders.
type escrow struct {
	home atomic.Pointer[int] // slot; nil: not chosen yet
}

// NewEscrow makes the strategy `escrow`.
func NewEscrow(d stock.Deps) stock.Deducter {
	return newBatch(newStore(d, stock.Slots), NewSlots(d), withKeys(new(escrow).try))
}

const (
	sellHomeSQL = "UPDATE good_slot SET stock = stock - ?, sold = sold + ? WHERE goods_id = ? AND slot = ? AND stock >= ?"
	numberSQL   = "UPDATE slot_replica SET last = LAST_INSERT_ID(last + 1)"
)

// try needs one statement while the home has enough, and a second one to refuse a batch in which nothing fits.
func (e *escrow) try(ctx context.Context, conn *conn, b *batching.Batch) error {
	if len(b.Undecided) == 0 {
		return nil
	}
	home, err := e.findHome(ctx, conn)
	if err != nil {
		return err
	}
	sold, err := sellHome(ctx, conn, b, home)
	if sold || err != nil {
		return err
	}
	_, units, err := readSlots(ctx, conn, b.GoodsID, "")
	if err != nil {
		return err
	}
	if batching.Allot(b.Undecided, units) == units {
		return recordRefusals(ctx, conn, b.Undecided, conn.store.rowsOfBatch(b.Undecided)) // nothing fits
	}
	return draw(ctx, conn, b, home)
}

// findHome returns the slot that this replica sells from. The first call takes the next one in turn, so that up to
// slotCount replicas have different slots. Of two first calls at the same time, the later one prevails.
func (e *escrow) findHome(ctx context.Context, conn *conn) (int, error) {
	if home := e.home.Load(); home != nil {
		return *home, nil
	}
	numbered, err := conn.ExecContext(ctx, numberSQL)
	if err != nil {
		return 0, err
	}
	home := int(numbered.ID % slotCount)
	e.home.Store(&home)
	return home, nil
}

// sellHome grants a whole batch from the home, or nothing.
func sellHome(ctx context.Context, conn *conn, b *batching.Batch, home int) (sold bool, err error) {
	asked := batching.Total(b.Undecided)
	for _, m := range b.Undecided {
		m.Grant(0)
	}
	rows := conn.store.at(home).rowsOfBatch(b.Undecided)
	_, err = conn.execAndRecord(ctx, rows, sellHomeSQL, asked, asked, b.GoodsID, home, asked)
	if errors.Is(err, errNoMatch) {
		return false, nil
	}
	return err == nil, err
}

// draw grants what fits of a batch from all rows together, under their locks, and shares out the units that are left.
func draw(ctx context.Context, conn *conn, b *batching.Batch, home int) error {
	err := conn.inTx(ctx, ReadCommitted, func(tx Tx) error {
		slots, units, err := readSlots(ctx, tx, b.GoodsID, forUpdateSQL(ctx))
		if err != nil {
			return err
		}
		left := batching.Allot(b.Undecided, units)
		if left == units {
			return errNoMatch
		}
		for _, m := range b.Undecided {
			m.Remaining = 0 // like slots, a sale does not tell what remains
		}
		if err := writeSlots(ctx, tx, b.GoodsID, shareOut(slots, home, left, units-left)); err != nil {
			return err
		}
		return tx.record(ctx, conn.store.rowsOfBatch(b.Undecided))
	})
	if errors.Is(err, errNoMatch) {
		// The units were sold since they were counted.
		return recordRefusals(ctx, conn, b.Undecided, conn.store.rowsOfBatch(b.Undecided))
	}
	return err
}

// shareOut divides units among the slots in proportion to what was sold from each of them. soldNow units were sold for
// the home just now. The home also gets the remainder of the division.
func shareOut(slots []slot, home int, units, soldNow int64) []slot {
	at := slices.IndexFunc(slots, func(s slot) bool { return s.Slot == home })
	if at < 0 {
		at, slots = len(slots), append(slots, slot{Slot: home})
	}
	slots[at].Sold += soldNow
	var sold int64
	for _, s := range slots {
		sold += s.Sold
	}
	rest := units
	for i := range slots {
		if i != at {
			// In floating point, because the product may be too large for an int64; the home makes up for the rounding.
			slots[i].Stock = min(rest, int64(float64(units)*(float64(slots[i].Sold)/float64(sold))))
			rest -= slots[i].Stock
		}
	}
	slots[at].Stock = rest
	return slots
}
