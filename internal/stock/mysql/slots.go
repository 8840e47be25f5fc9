package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"stock/internal/stock"
	"stock/internal/stock/retry"
)

// slots deducts from one row of several, so that not all buyers of an item wait for the same lock.
//
// It picks a row blindly, since most rows have enough as long as there is plenty. A miss proves nothing. Nor do
// misses in all rows one after another, because units may be moved from a row that is yet to be tried into one that
// has been. So after a miss, one statement reads all rows, and that decides: if their sum is too small, the item is
// sold out; if one row has enough, it is tried next; and if only all together do, they are locked, and what is left
// is spread anew.
//
// SKIP LOCKED would find a row that nobody waits for, but would make one statement a transaction of four round trips.
// TiDB does not have it.
type slots struct {
	SlotStore
	stock.Canceller
}

// NewSlots makes the strategy `slots`.
func NewSlots(d stock.Deps) stock.Deducter {
	store := newStore(d, stock.Slots)
	return slots{SlotStore{store}, store}
}

// allSlots stands for the rows of an item together.
const allSlots = -1

func (s slots) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	// Random, not in turn: with a counter that all items share, the buyers of one item might use only some of its rows.
	next := rand.N(slotCount)
	return s.MySQL.Once(ctx, req, func() (stock.Receipt, error) {
		return s.MySQL.sellInTries(ctx, req, func(section stock.Section) (stock.Receipt, error) {
			receipt, err := s.try(ctx, req, section, next)
			if errors.Is(err, errNoMatch) {
				next, err = s.findSlot(ctx, req, next)
				err = cmp.Or(err, errNoMatch)
			}
			return receipt, err
		})
	})
}

// sellInTries sells units that are spread over several rows. A try that fails with errNoMatch has found too few where
// it looked, and the next one looks elsewhere at once. One that the server rolled back is followed by a pause.
func (s Store) sellInTries(
	ctx context.Context, req stock.Request, try func(stock.Section) (stock.Receipt, error),
) (stock.Receipt, error) {
	section := stock.Arrive()
	for attempt := 1; ; attempt++ {
		receipt, err := try(section)
		missed := errors.Is(err, errNoMatch)
		switch {
		case err == nil:
			receipt.Attempts = attempt
			return receipt, nil
		case !missed && !isRolledBack(err):
			return stock.Receipt{}, err
		case section.Elapsed() > stock.LongestWait(ctx, s.wait) && (!missed || attempt > 1):
			// A first try that found too few is no conflict: it looked blindly.
			return stock.Receipt{}, fmt.Errorf("%w: others took units of item %d during each of %d tries",
				stock.ErrBusy, req.GoodsID, attempt)
		case !missed:
			if err := retry.BackOff(ctx, attempt); err != nil {
				return stock.Receipt{}, stock.Interrupted(err)
			}
		}
	}
}

// try deducts from one slot, or from allSlots.
func (s slots) try(
	ctx context.Context, req stock.Request, section stock.Section, slot int,
) (stock.Receipt, error) {
	if slot == allSlots {
		return s.deductFromAll(ctx, req, section)
	}
	in := s.MySQL.at(slot)
	return in.execDeduct(ctx, req, section, takeSlotSQL, req.Count, req.GoodsID, slot, req.Count)
}

// findSlot picks one of the slots that have enough, at random, or allSlots if none has. If it fails, it returns the
// last slot.
func (s slots) findSlot(ctx context.Context, req stock.Request, last int) (int, error) {
	all, units, err := s.read(ctx, req.GoodsID)
	if err != nil {
		return last, err
	}
	if units < int64(req.Count) {
		return last, soldOut(req, units)
	}
	for _, i := range rand.Perm(len(all)) {
		if all[i].Stock >= int64(req.Count) {
			return all[i].Slot, nil
		}
	}
	return allSlots, nil
}

// deductFromAll deducts from all slots together. Their locks are the critical section.
func (s slots) deductFromAll(
	ctx context.Context, req stock.Request, section stock.Section,
) (stock.Receipt, error) {
	err := s.rearrange(ctx, req, func(units int64) (int64, error) {
		section.Enter()
		remaining, err := req.Decide(ctx, units)
		section.Leave()
		return remaining, err
	})
	return section.Receipt(0, 1), err
}
