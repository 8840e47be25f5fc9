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
// Deleted rows stay in the index until the server purges them, and a search that begins at the first would read all of
// them. So a replica begins behind the unit that it sold last, and at the first only if it finds too few there.
//
// A row that is locked may become free again: its buyer may give up, or die. If too few rows are free, that does not
// prove that the item is sold out. So the request looks once more, without SKIP LOCKED: it reads the stock, which
// includes locked rows, and is refused only if that is too small. Otherwise it makes rows of unmade units (see
// UnitStore), or waits for locked rows. Without this look, buyers are refused while stock is left.
//
// MariaDB has SKIP LOCKED from 10.6, MySQL from 8.0. TiDB accepts it and locks nothing, which would sell units twice:
// the strategy refuses to sell there.
type unitRows struct {
	UnitStore
	stock.Canceller
	locks *atomic.Bool // the server is known to lock rows with SKIP LOCKED
	sold  *lastUnits
}

// lastUnits is the unit of each item that the replica sold last. An item may displace another one, which costs the next
// buyer of that item a longer search.
type lastUnits [256]atomic.Pointer[lastUnit]

type lastUnit struct{ goodsID, unit int64 }

func (l *lastUnits) slot(goodsID int64) *atomic.Pointer[lastUnit] {
	return &l[uint64(goodsID)%uint64(len(l))]
}

// of returns the unit of an item that was sold last, or 0.
func (l *lastUnits) of(goodsID int64) int64 {
	if last := l.slot(goodsID).Load(); last != nil && last.goodsID == goodsID {
		return last.unit
	}
	return 0
}

func (l *lastUnits) set(goodsID, unit int64) { l.slot(goodsID).Store(&lastUnit{goodsID, unit}) }

// NewUnits makes the strategy `units`.
func NewUnits(d stock.Deps) stock.Deducter {
	store := newStore(d, stock.Units)
	return unitRows{UnitStore{store}, store, new(atomic.Bool), new(lastUnits)}
}

// skipLocked is the end of a SELECT that locks the rows that nobody else has locked.
const skipLocked = " FOR UPDATE SKIP LOCKED"

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

// try sells units that are free. If too few are, and the item is not sold out, it makes rows for another try, or sells
// what is left.
func (u unitRows) try(ctx context.Context, req stock.Request, section stock.Section) (stock.Receipt, error) {
	if req.Count <= unitChunk {
		last := u.sold.of(req.GoodsID)
		receipt, err := u.takeFree(ctx, req, section, last)
		if errors.Is(err, errNoMatch) && last > 0 {
			receipt, err = u.takeFree(ctx, req, section, 0)
		}
		if !errors.Is(err, errNoMatch) {
			return receipt, err
		}
		if left, err := u.Read(ctx, req.GoodsID); err != nil {
			return stock.Receipt{}, err
		} else if left < int64(req.Count) {
			return stock.Receipt{}, soldOut(req, left)
		}
		if made, err := u.makeFree(ctx, req); made || err != nil {
			return stock.Receipt{}, cmp.Or(err, errNoMatch)
		}
	}
	return u.takeAny(ctx, req, section)
}

// takeFree sells units behind another one that nobody else has locked. It fails with errNoMatch if there are too few.
func (u unitRows) takeFree(
	ctx context.Context, req stock.Request, section stock.Section, after int64,
) (stock.Receipt, error) {
	last := int64(0)
	receipt, err := u.MySQL.DeductInTx(ctx, req, ReadCommitted, func(tx Tx) (stock.Receipt, error) {
		free, err := lockUnits(ctx, tx, req.GoodsID, after, req.Count, skipLocked)
		if err != nil {
			return stock.Receipt{}, err
		}
		if len(free) < req.Count {
			return stock.Receipt{}, errNoMatch
		}
		last = free[len(free)-1]
		return u.sell(ctx, req, section, func() error { return deleteUnits(ctx, tx, req.GoodsID, free) })
	})
	if err == nil && last > 0 {
		u.sold.set(req.GoodsID, last)
	}
	return receipt, err
}

// makeFree makes rows if too few are free and units are unmade. It reports whether enough may be free now.
func (u unitRows) makeFree(ctx context.Context, req stock.Request) (made bool, err error) {
	err = u.MySQL.use(ctx, []int64{ShareOf(req)}, func(conn *conn) error {
		if err := conn.endBefore(ctx, conn.Conn); err != nil {
			return err
		}
		// The item comes first: if rows are made between the two statements, the second finds them.
		var item unitItem
		if err := conn.GetContext(ctx, &item, unitItemSQL, req.GoodsID); err != nil {
			return orMissing(req.GoodsID, err)
		}
		// The rows are locked only until the statement ends.
		free, err := lockUnits(ctx, conn, req.GoodsID, u.sold.of(req.GoodsID), req.Count, skipLocked)
		if err != nil {
			return err
		}
		if made = len(free) == req.Count; made || item.Unmade == 0 {
			return nil // another request has made them, or there are none to make
		}
		made = true
		return item.makeRows(ctx, conn, req.GoodsID)
	})
	return made && err == nil, err
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
		rows, err := lockUnits(ctx, tx, req.GoodsID, 0, req.Count-int(unmade), forUpdateSQL(ctx))
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
