package mysql

import (
	"context"
	"fmt"

	"stock/internal/stock"
)

// unitChunk is how many rows are made at a time. Buyers who find no free row wait while they are made.
const unitChunk = 1000

// UnitStore keeps the stock of an item in the table good_unit, with one row for each unit. Setting a stock of millions
// would take minutes, so rows are made when buyers need them: the table unit_stock has the units that have no row yet.
// The stock of an item is the sum of both, which takes a statement that reads all rows.
//
// Rows are only added under the lock of the item's row in unit_stock. A transaction that locks this row and rows of
// good_unit locks this row first, so that no two wait for each other.
type UnitStore struct{ MySQL Store }

// unitItem is an item's row in unit_stock.
type unitItem struct{ Unmade, Made int64 }

const (
	unitItemSQL    = "SELECT unmade, made FROM unit_stock WHERE goods_id = ?"
	setUnitItemSQL = "UPDATE unit_stock SET unmade = ?, made = ? WHERE goods_id = ?"
	// With few rows in the table, the server might otherwise scan it, and lock the rows of other items.
	findUnitsSQL   = "SELECT unit FROM good_unit FORCE INDEX (PRIMARY) WHERE goods_id = ?"
	deleteUnitsSQL = "DELETE good_unit FROM good_unit FORCE INDEX (PRIMARY) WHERE goods_id = ?"
)

// Read implements stock.AdminStore. It reads both tables in one statement, so that they are of one moment.
func (s UnitStore) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.MySQL.get(ctx, goodsID, &units, `SELECT unmade +
		(SELECT COUNT(*) FROM good_unit WHERE goods_id = ?) FROM unit_stock WHERE goods_id = ?`, goodsID, goodsID)
	return units, err
}

// Set implements stock.AdminStore. The store makes no epochs of its own.
func (s UnitStore) Set(ctx context.Context, goodsID, units, epoch int64) (int64, error) {
	return epoch, s.MySQL.InTx(ctx, []int64{goodsID}, ReadCommitted, func(tx Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO unit_stock (goods_id, unmade, epoch) VALUES (?, ?, ?)
			ON DUPLICATE KEY UPDATE unmade = VALUES(unmade), epoch = VALUES(epoch)`, goodsID, units, epoch)
		if err == nil {
			_, err = tx.ExecContext(ctx, deleteUnitsSQL, goodsID)
		}
		return err
	})
}

// Restock implements stock.AdminStore.
func (s UnitStore) Restock(ctx context.Context, goodsID, units int64) (left int64, err error) {
	err = s.MySQL.InTx(ctx, []int64{goodsID}, ReadCommitted, func(tx Tx) error {
		item, err := lockUnitItem(ctx, tx, goodsID)
		if err != nil {
			return err
		}
		var rows int64
		if err := tx.GetContext(ctx, &rows, "SELECT COUNT(*) FROM good_unit WHERE goods_id = ?", goodsID); err != nil {
			return err
		}
		if present := item.Unmade + rows; present > stock.MaxStock-units {
			return stock.Overstocked(goodsID, present, units)
		}
		item.Unmade += units
		left = item.Unmade + rows
		return item.write(ctx, tx, goodsID)
	})
	return left, err
}

// lockUnitItem locks an item's row in unit_stock. Nobody else can then add units, with or without a row.
func lockUnitItem(ctx context.Context, tx Tx, goodsID int64) (item unitItem, err error) {
	err = tx.GetContext(ctx, &item, unitItemSQL+forUpdateSQL(ctx), goodsID)
	return item, orMissing(goodsID, err)
}

func (i unitItem) write(ctx context.Context, tx Tx, goodsID int64) error {
	_, err := tx.ExecContext(ctx, setUnitItemSQL, i.Unmade, i.Made, goodsID)
	return err
}

// makeRows makes rows for some of the unmade units of an item, and returns the last unit that has one. If the item has
// changed since it was read, it makes none, and returns item.Made. Buyers who find no free row wait meanwhile, so it
// sends its transaction in one message.
func (s UnitStore) makeRows(ctx context.Context, req stock.Request, item unitItem) (made int64, err error) {
	err = s.MySQL.use(ctx, []int64{ShareOf(req)}, func(conn *conn) error {
		if err := conn.endBefore(ctx, conn.Conn); err != nil {
			return err
		}
		n := min(item.Unmade, unitChunk)
		_, err := conn.together(ctx, "UPDATE unit_stock SET unmade = unmade - ?, made = made + ? "+
			"WHERE goods_id = ? AND made = ? AND unmade >= ?; "+expectOneRow+"; "+
			"INSERT INTO good_unit (goods_id, unit) SELECT ?, ? + n FROM ("+numbersSQL+") numbers "+
			"WHERE n <= ?", n, n, req.GoodsID, item.Made, n, req.GoodsID, item.Made, n)
		switch {
		case err == nil:
			made = item.Made + n
		case otherRowCount(err):
			made, err = item.Made, nil
		}
		return err
	})
	return made, err
}

// numbersSQL selects the numbers n from 1 to unitChunk.
var numbersSQL = func() string {
	const digits = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4" +
		" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) "
	return "SELECT 1 + a.d + 10 * b.d + 100 * c.d AS n FROM " + digits + "a JOIN " + digits + "b JOIN " + digits + "c"
}()

// lockFree locks up to n rows of known units. It passes over rows that others have locked.
func lockFree(ctx context.Context, in session, of knownUnits, n int) (units []int64, err error) {
	query := findUnitsSQL + " AND unit > ? AND unit <= ? LIMIT ? FOR UPDATE SKIP LOCKED"
	if stock.TriesOnce(ctx) {
		query = mayWait + query
	}
	err = in.SelectContext(ctx, &units, query, of.goodsID, of.sold, of.made, n)
	return units, err
}

// lockUnits locks up to n rows of an item. It waits for rows that others have locked. With a condition on the unit, the
// server would also wait for the row behind the last one, which is of another item.
func lockUnits(ctx context.Context, in session, goodsID int64, n int) (units []int64, err error) {
	if n == 0 {
		return nil, nil
	}
	err = in.SelectContext(ctx, &units, findUnitsSQL+" LIMIT ?"+forUpdateSQL(ctx), goodsID, n)
	return units, err
}

// mayWait makes MariaDB 10.11 pass over locked rows in a session that does not wait for rows. Otherwise the first
// locked row makes it roll the transaction back (error 1180). Other servers see a comment.
const mayWait = "/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ "

// deleteUnits deletes rows that are locked. It fails if one of them is gone: that was sold to another buyer.
func deleteUnits(ctx context.Context, tx Tx, goodsID int64, units []int64) error {
	if len(units) == 0 {
		return nil
	}
	done, err := tx.ExecContext(ctx, deleteUnitsSQL+" AND unit IN "+list(len(units)),
		append([]any{goodsID}, params(units)...)...)
	if err == nil && done.Rows != int64(len(units)) {
		err = fmt.Errorf("%w: %d of %d locked units of item %d were deleted: something else deletes rows of good_unit, "+
			"or the server does not keep row locks", stock.ErrUnavailable, done.Rows, len(units), goodsID)
	}
	return err
}
