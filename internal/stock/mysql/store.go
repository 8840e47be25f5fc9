// Package mysql deducts from stock that is kept in MySQL, MariaDB or TiDB: one file for each strategy.
package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
)

// Store keeps the stock in the table good_stock. Every write increments the version, so that strategies can be mixed on
// one row without optimistic locking missing a change.
type Store struct{ DB *sqlx.DB }

const (
	selectSQL    = "SELECT stock FROM good_stock WHERE goods_id = ?"
	epochSQL     = "SELECT epoch FROM good_stock WHERE goods_id = ?"
	overwriteSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ?"
	setSQL       = `INSERT INTO good_stock (goods_id, stock, epoch) VALUES (?, ?, ?)
		ON DUPLICATE KEY UPDATE stock = VALUES(stock), version = version + 1, fence = 0, fence_issuer = '',
		epoch = GREATEST(epoch + 1, VALUES(epoch))`
	// LAST_INSERT_ID(expr) returns the units in the reply itself. It is unsigned, and the stock of an item that
	// `decrement` has oversold may still be negative.
	restockSQL = `UPDATE good_stock SET stock = CAST(LAST_INSERT_ID(stock + ?) AS SIGNED), version = version + 1,
		fence = 0, fence_issuer = '' WHERE goods_id = ? AND stock <= ?`
)

// Read implements stock.ReadWriter.
func (s Store) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.DB.GetContext(ctx, &units, selectSQL, goodsID)
	return units, classifyRead(goodsID, err)
}

// Write implements stock.ReadWriter.
func (s Store) Write(ctx context.Context, goodsID, units int64) error {
	result, err := s.exec(ctx, overwriteSQL, units, goodsID)
	if err != nil {
		return err
	}
	return checkFound(result, goodsID)
}

// Set implements stock.AdminStore. It makes the epoch from the time, so that a database that is created anew does not
// start from zero, and from the last and the given epoch, so that it grows even if the clock is set back.
func (s Store) Set(ctx context.Context, goodsID, units, last int64) (epoch int64, err error) {
	err = s.InTx(ctx, nil, nil, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, setSQL, goodsID, units, max(time.Now().UnixMicro(), last+1)); err != nil {
			return Refusal(err)
		}
		return classifyRead(goodsID, tx.GetContext(ctx, &epoch, epochSQL, goodsID))
	})
	return epoch, err
}

// Restock implements stock.AdminStore.
func (s Store) Restock(ctx context.Context, goodsID, units int64) (int64, error) {
	for {
		result, err := s.exec(ctx, restockSQL, units, goodsID, stock.MaxStock-units)
		if err != nil {
			return 0, err
		}
		if rows, err := result.RowsAffected(); err != nil {
			return 0, err
		} else if rows == 1 {
			return result.LastInsertId()
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
	err = s.DB.GetContext(ctx, &epoch, epochSQL, goodsID)
	return epoch, classifyRead(goodsID, err)
}

// Items lists the ids of all items.
func (s Store) Items(ctx context.Context) (ids []int64, err error) {
	if err := s.DB.SelectContext(ctx, &ids, "SELECT goods_id FROM good_stock"); err != nil {
		return nil, Refusal(err)
	}
	return ids, nil
}

// Atomic implements stock.Lockable.
func (Store) Atomic() bool { return true }

// WriteAll implements stock.Lockable.
func (s Store) WriteAll(ctx context.Context, pause stock.PauseFunc, stocks []stock.ItemStock) error {
	return s.InTx(ctx, nil, pause, func(tx *sqlx.Tx) error { return Tx{tx}.writeAll(ctx, stocks) })
}

// exec runs one writing statement that commits by itself. It takes the connection in a separate step: a wait for the
// pool that ends has sent nothing, but database/sql returns the same error for it as for a reply that did not arrive.
//
// The statement does not end with ctx. Once it is sent, giving up would not stop it but only hide what it did, and a
// lock around it would be released while the statement is still under way. The server ends it in time, with an
// answer, by its innodb_lock_wait_timeout; the readTimeout of the DSN ends it if the server is silent.
func (s Store) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, classifyConnect(err)
	}
	defer conn.Close()
	result, err := conn.ExecContext(context.WithoutCancel(ctx), query, args...)
	return result, classifyWrite(err)
}

// checkFound fails with ErrUnknownItem if a statement matched no row. The DSN must have clientFoundRows=true, or else a
// row whose value did not change would not count.
func checkFound(result sql.Result, goodsID int64) error {
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		err = missing(goodsID)
	}
	return err
}

func missing(goodsID int64) error { return stock.UnknownItem(goodsID, "MySQL") }
