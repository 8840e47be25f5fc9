package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"stock/internal/stock"
)

// unitRows locks as many rows as are wanted, passes over those that others have locked (SKIP LOCKED), and deletes them.
// So buyers of one item do not wait for each other, as the workers of a queue in a database do not.
//
// A search is slow if it passes over rows that were deleted and are not purged yet, or are not committed yet. So a
// replica begins behind the unit that it sold last, and ends at the last unit of which it knows that its row is
// committed. If too few rows are free there, it makes rows of unmade units (see UnitStore), and only if there are none,
// it begins at the first.
//
// A row that is locked may become free again: its buyer may give up, or die. If too few rows are free, that does not
// prove that the item is sold out. So the request looks once more, without SKIP LOCKED: it reads the stock, which
// includes locked rows, and is refused only if that is too small. Otherwise it waits for locked rows. Without this
// look, buyers are refused while stock is left.
//
// MariaDB has SKIP LOCKED from 10.6, MySQL from 8.0. TiDB accepts it and locks nothing, which would sell units twice:
// the strategy refuses to sell there.
type unitRows struct {
	UnitStore
	stock.Canceller
	locks *atomic.Bool // the server is known to lock rows with SKIP LOCKED
	known *[256]atomic.Pointer[knownUnits]
}

// knownUnits is where a replica looks for free units of an item: behind the one that it sold last, up to the last one
// whose row is committed.
type knownUnits struct{ goodsID, sold, made int64 }

// place is where the replica keeps what it knows of an item. Items may share a place: the next buyer of the one that is
// displaced begins at the first unit.
func (u unitRows) place(goodsID int64) *atomic.Pointer[knownUnits] {
	return &u.known[uint64(goodsID)%uint64(len(u.known))]
}

// NewUnits makes the strategy `units`.
func NewUnits(d stock.Deps) stock.Deducter {
	store := newStore(d, stock.Units)
	return unitRows{UnitStore{store}, store, new(atomic.Bool), new([256]atomic.Pointer[knownUnits])}
}

func (u unitRows) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	if err := u.checkSkipLocked(ctx, req); err != nil {
		return stock.Receipt{}, err
	}
	return u.MySQL.Once(ctx, req, func() (stock.Receipt, error) {
		return u.MySQL.sellInTries(ctx, req, func(section stock.Section) (stock.Receipt, error) {
			for {
				receipt, err := u.try(ctx, req, section)
				if !errors.Is(err, errNoMatch) {
					return receipt, err
				}
				// There are new rows now. If others take them all, as many units are sold: this ends with the stock.
			}
		})
	})
}

// checkSkipLocked fails on TiDB. It asks the server once.
func (u unitRows) checkSkipLocked(ctx context.Context, req stock.Request) error {
	if u.locks.Load() {
		return nil
	}
	var version string
	err := u.MySQL.get(ctx, ShareOf(req), &version, "SELECT VERSION()")
	switch {
	case err != nil:
		return err
	case strings.Contains(version, "TiDB"):
		return fmt.Errorf("%w: SKIP LOCKED locks nothing on TiDB: use another strategy", stock.ErrUnavailable)
	}
	u.locks.Store(true)
	return nil
}

// try sells units that are free. If too few are, it makes rows of unmade units and fails with errNoMatch. If no units
// are unmade, and the item is not sold out, it looks from the first unit, and at last waits for rows that others have
// locked.
func (u unitRows) try(ctx context.Context, req stock.Request, section stock.Section) (stock.Receipt, error) {
	if req.Count > unitChunk {
		return u.takeAny(ctx, req, section)
	}
	known := knownUnits{goodsID: req.GoodsID}
	if kept := u.place(req.GoodsID).Load(); kept != nil && kept.goodsID == req.GoodsID {
		known = *kept
	}
	receipt, err := u.takeFree(ctx, req, section, known)
	if !errors.Is(err, errNoMatch) {
		return receipt, err
	}
	var item unitItem
	if err := u.MySQL.get(ctx, req.GoodsID, &item, unitItemSQL, req.GoodsID); err != nil {
		return stock.Receipt{}, err
	}
	if item.Made != known.made {
		if item.Made < known.made { // the item was deleted, and added again
			known.sold = 0
		}
		known.made = item.Made
		if receipt, err := u.takeFree(ctx, req, section, known); !errors.Is(err, errNoMatch) {
			return receipt, err
		}
	}
	if item.Unmade > 0 {
		if known.made, err = u.makeRows(ctx, req, item); err != nil {
			return stock.Receipt{}, err
		}
		u.place(req.GoodsID).Store(&known)
		return stock.Receipt{}, errNoMatch
	}
	if left, err := u.Read(ctx, req.GoodsID); err != nil {
		return stock.Receipt{}, err
	} else if left < int64(req.Count) {
		return stock.Receipt{}, soldOut(req, left)
	}
	if known.sold > 0 {
		known.sold = 0
		if receipt, err := u.takeFree(ctx, req, section, known); !errors.Is(err, errNoMatch) {
			return receipt, err
		}
	}
	return u.takeAny(ctx, req, section)
}

// takeFree sells units that nobody else has locked. It fails with errNoMatch if there are too few.
func (u unitRows) takeFree(
	ctx context.Context, req stock.Request, section stock.Section, in knownUnits,
) (stock.Receipt, error) {
	if in.made-in.sold < int64(req.Count) {
		return stock.Receipt{}, errNoMatch
	}
	receipt, err := u.MySQL.DeductInTx(ctx, req, ReadCommitted, func(tx Tx) (stock.Receipt, error) {
		free, err := lockFree(ctx, tx, in, req.Count)
		if err != nil {
			return stock.Receipt{}, err
		}
		if len(free) < req.Count {
			return stock.Receipt{}, errNoMatch
		}
		in.sold = free[len(free)-1]
		return u.sell(ctx, req, section, func() error { return deleteUnits(ctx, tx, req.GoodsID, free) })
	})
	if err == nil {
		u.place(req.GoodsID).Store(&in)
	}
	return receipt, err
}

// takeAny sells unmade units first, and then rows, and waits for those that are locked. Because it has locked the row
// of the item in unit_stock, no unit can be added meanwhile: what it finds is the whole stock.
func (u unitRows) takeAny(ctx context.Context, req stock.Request, section stock.Section) (stock.Receipt, error) {
	return u.MySQL.DeductInTx(ctx, req, ReadCommitted, func(tx Tx) (stock.Receipt, error) {
		item, err := lockUnitItem(ctx, tx, req.GoodsID)
		if err != nil {
			return stock.Receipt{}, err
		}
		unmade := min(item.Unmade, int64(req.Count))
		rows, err := lockUnits(ctx, tx, req.GoodsID, req.Count-int(unmade))
		if err != nil {
			return stock.Receipt{}, err
		}
		if found := unmade + int64(len(rows)); found < int64(req.Count) {
			return stock.Receipt{}, soldOut(req, found)
		}
		return u.sell(ctx, req, section, func() error {
			item.Unmade -= unmade
			if err := item.write(ctx, tx, req.GoodsID); err != nil {
				return err
			}
			return deleteUnits(ctx, tx, req.GoodsID, rows)
		})
	})
}

// sell takes units that are locked. Their locks are the critical section.
func (u unitRows) sell(
	ctx context.Context, req stock.Request, section stock.Section, take func() error,
) (stock.Receipt, error) {
	section.Enter()
	if err := stock.Work(ctx, req.Hold); err != nil {
		return stock.Receipt{}, err
	}
	err := take()
	section.Leave()
	return section.Receipt(0, 1), err
}
