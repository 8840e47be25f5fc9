package mysql

import (
	"cmp"
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
	known *knownUnits
}

// knownUnits is where a replica looks for free units of each item. An item may displace another one, whose next buyer
// then begins at the first unit.
type knownUnits [256]atomic.Pointer[unitRange]

// unitRange are the units of an item behind sold, which was sold last, up to made, the last one whose row is committed.
type unitRange struct{ goodsID, sold, made int64 }

func (k *knownUnits) of(goodsID int64) unitRange {
	if known := k.slot(goodsID).Load(); known != nil && known.goodsID == goodsID {
		return *known
	}
	return unitRange{goodsID: goodsID}
}

// extend keeps the larger limits of a range and of what was known.
func (k *knownUnits) extend(r unitRange) {
	for slot := k.slot(r.goodsID); ; {
		known, next := slot.Load(), r
		if known != nil && known.goodsID == r.goodsID {
			next.sold, next.made = max(r.sold, known.sold), max(r.made, known.made)
		}
		if slot.CompareAndSwap(known, &next) {
			return
		}
	}
}

func (k *knownUnits) forget(goodsID int64) { k.slot(goodsID).Store(nil) }

func (k *knownUnits) slot(goodsID int64) *atomic.Pointer[unitRange] {
	return &k[uint64(goodsID)%uint64(len(k))]
}

// NewUnits makes the strategy `units`.
func NewUnits(d stock.Deps) stock.Deducter {
	store := newStore(d, stock.Units)
	return unitRows{UnitStore{store}, store, new(atomic.Bool), new(knownUnits)}
}

func (u unitRows) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	if err := u.checkSkipLocked(ctx, req); err != nil {
		return stock.Receipt{}, err
	}
	return u.MySQL.Once(ctx, req, func() (stock.Receipt, error) {
		return u.MySQL.sellInTries(ctx, req, func(section stock.Section) (stock.Receipt, error) {
			return u.try(ctx, req, section)
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

// try sells units that are free. If too few are, it makes rows for another try. If it cannot, and the item is not sold
// out, it sells what is left.
func (u unitRows) try(ctx context.Context, req stock.Request, section stock.Section) (stock.Receipt, error) {
	if req.Count <= unitChunk {
		known := u.known.of(req.GoodsID)
		receipt, err := u.takeFree(ctx, req, section, known)
		if !errors.Is(err, errNoMatch) {
			return receipt, err
		}
		item, err := u.item(ctx, req.GoodsID)
		if err != nil {
			return stock.Receipt{}, err
		}
		if item.Made != known.made {
			known = u.learn(known, item)
			if receipt, err := u.takeFree(ctx, req, section, known); !errors.Is(err, errNoMatch) {
				return receipt, err
			}
		}
		if item.Unmade > 0 {
			return stock.Receipt{}, cmp.Or(u.makeFree(ctx, req, item), errNoMatch)
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
	}
	return u.takeAny(ctx, req, section)
}

// learn returns the range of units of an item that has been read.
func (u unitRows) learn(known unitRange, item unitItem) unitRange {
	if item.Made < known.made { // the item was deleted, and added again
		u.known.forget(known.goodsID)
		known.sold = 0
	}
	known.made = item.Made
	u.known.extend(known)
	return known
}

// takeFree sells units of a range that nobody else has locked. It fails with errNoMatch if there are too few.
func (u unitRows) takeFree(
	ctx context.Context, req stock.Request, section stock.Section, in unitRange,
) (stock.Receipt, error) {
	if in.made-in.sold < int64(req.Count) {
		return stock.Receipt{}, errNoMatch
	}
	sold := in.sold
	receipt, err := u.MySQL.DeductInTx(ctx, req, ReadCommitted, func(tx Tx) (stock.Receipt, error) {
		free, err := lockFree(ctx, tx, in, req.Count)
		if err != nil {
			return stock.Receipt{}, err
		}
		if len(free) < req.Count {
			return stock.Receipt{}, errNoMatch
		}
		sold = free[len(free)-1]
		return u.sell(ctx, req, section, func() error { return deleteUnits(ctx, tx, req.GoodsID, free) })
	})
	if err == nil {
		u.known.extend(unitRange{in.goodsID, sold, in.made})
	}
	return receipt, err
}

// makeFree makes rows for another try. It makes none if another request has made some since the item was read.
func (u unitRows) makeFree(ctx context.Context, req stock.Request, item unitItem) error {
	return u.MySQL.use(ctx, []int64{ShareOf(req)}, func(conn *conn) error {
		if err := conn.endBefore(ctx, conn.Conn); err != nil {
			return err
		}
		made, err := item.makeRows(ctx, conn, req.GoodsID)
		if err == nil {
			u.known.extend(unitRange{goodsID: req.GoodsID, made: made})
		}
		return err
	})
}

// takeAny sells unmade units, and rows for which it waits. Because it has locked the item's row in unit_stock, no unit
// can be added meanwhile: what it finds is the whole stock.
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
