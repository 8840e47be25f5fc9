// Package mysql deducts from stock that is kept in MySQL, MariaDB or TiDB: one file for each strategy.
package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
	"stock/internal/stock/share"
)

// Store keeps the stock in the table good_stock. Every write increments the version, so that strategies can be mixed on
// one row without optimistic locking missing a change.
//
// With DB alone, a Store waits for connections and rows as long as the pool and the server let it.
type Store struct {
	DB *sqlx.DB

	name   stock.Store // in the ledger
	slot   int         // in the ledger: that of a sale from slots whose epoch is read
	shares *share.Limiter
	tidb   bool
	upkeep bool          // its connections count against Upkeep, whatever they are used for
	wait   time.Duration // longest wait for a connection, and then for a row; 0 for no limit
	reply  time.Duration // longest wait for a reply: see stock.Deps
}

// New makes the store for strategies.
func New(d stock.Deps) Store {
	return newStore(d, stock.MySQL)
}

func newStore(d stock.Deps, name stock.Store) Store {
	return Store{
		DB: d.MySQL, name: name, shares: d.MySQLShares, tidb: d.TiDB, wait: d.LockWait,
		reply: d.MySQLReply,
	}
}

// at is the store for sales from a slot, whose row they lock.
func (s Store) at(slot int) Store {
	s.slot = slot
	return s
}

// NewAdmin makes the store for administration. Its connections count against Upkeep: the stock of an item can be read
// and set while the item's buyers use its share.
func NewAdmin(d stock.Deps) Store {
	s := New(d)
	s.upkeep = true
	return s
}

const (
	selectSQL    = "SELECT stock FROM good_stock WHERE goods_id = ?"
	epochSQL     = "SELECT epoch FROM good_stock WHERE goods_id = ?"
	overwriteSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ?"
	setSQL       = `INSERT INTO good_stock (goods_id, stock, epoch) VALUES (?, ?, ?)
		ON DUPLICATE KEY UPDATE stock = VALUES(stock), version = version + 1, fence = 0, fence_issuer = '',
		epoch = GREATEST(epoch + 1, VALUES(epoch))`
	// LAST_INSERT_ID(expr) returns the units in the reply itself. It is unsigned, and the stock of an item that
	// `decrement` has oversold may still be negative.
	restockSQL = `UPDATE good_stock SET stock = CAST(LAST_INSERT_ID(stock + ?) AS SIGNED), version = version + 1
		WHERE goods_id = ? AND stock <= ?`
)

// Read implements stock.ReadWriter.
func (s Store) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.get(ctx, goodsID, &units, selectSQL, goodsID)
	return units, err
}

// get reads one row about an item, or something else that has a share of the connections.
func (s Store) get(ctx context.Context, goodsID int64, dest any, query string, args ...any) error {
	return s.use(ctx, []int64{goodsID}, func(conn *conn) error {
		return orMissing(goodsID, conn.GetContext(ctx, dest, query, args...))
	})
}

// readStock is the stock of an item as it was read.
type readStock struct {
	Units int64 `db:"stock"`
	Epoch int64
}

func (c *conn) readStock(ctx context.Context, goodsID int64) (read readStock, err error) {
	err = c.GetContext(ctx, &read, "SELECT stock, epoch FROM good_stock WHERE goods_id = ?", goodsID)
	return read, orMissing(goodsID, err)
}

// only makes a statement match only a stock of the epoch that was read. So the rows that record what it sells can have
// that epoch, and the server need not read it while the item is locked.
func (r readStock) only(rows []ledgerRow, query string, args []any) (string, []any) {
	if len(rows) == 0 {
		return query, args
	}
	for i := range rows {
		rows[i].Epoch = r.Epoch
	}
	return query + " AND epoch = ?", append(args, r.Epoch)
}

// Write implements stock.ReadWriter.
func (s Store) Write(ctx context.Context, goodsID, units int64) error {
	_, err := s.execAndRecord(ctx, []int64{goodsID}, nil, overwriteSQL, units, goodsID)
	return orMissing(goodsID, err)
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

// WriteAll overwrites the stock of the items of an order, all or none, and records its key. Where a stock has a holder,
// it is written through the fence. It fails as Write does, with a *stock.LineError if one item is to blame.
func (s Store) WriteAll(ctx context.Context, req stock.OrderRequest, stocks []stock.ItemStock) error {
	ids := make([]int64, len(stocks))
	for i, s := range stocks {
		ids[i] = s.GoodsID
	}
	return s.InTx(ctx, ids, nil, func(tx Tx) error {
		if err := tx.writeAll(ctx, stocks); err != nil {
			return err
		}
		return tx.record(ctx, s.rowsOfOrder(req, req.Receipts(stocks)))
	})
}
