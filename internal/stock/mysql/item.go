package mysql

import (
	"context"

	"stock/internal/stock"
)

const (
	selectSQL    = "SELECT stock FROM good_stock WHERE goods_id = ?"
	overwriteSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ?"
)

// Read implements stock.ReadWriter.
func (s Store) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.get(ctx, goodsID, &units, selectSQL, goodsID)
	return units, err
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

// Read implements stock.ReadWriter.
func (tx Tx) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = tx.GetContext(ctx, &units, selectSQL, goodsID)
	return units, orMissing(goodsID, err)
}

// Write implements stock.ReadWriter.
func (tx Tx) Write(ctx context.Context, goodsID, units int64) error {
	_, err := matched(tx.ExecContext(ctx, overwriteSQL, units, goodsID))
	return orMissing(goodsID, err)
}

// readForUpdate reads the current stock and locks the row.
func (tx Tx) readForUpdate(ctx context.Context, goodsID int64) (units int64, err error) {
	err = tx.GetContext(ctx, &units, selectSQL+forUpdateSQL(ctx), goodsID)
	return units, orMissing(goodsID, err)
}

// forUpdateSQL is the end of a SELECT that locks its rows. A server that cannot be told to wait for less than a second
// knows at least NOWAIT, though not for an UPDATE.
func forUpdateSQL(ctx context.Context) string {
	if stock.TriesOnce(ctx) {
		return " FOR UPDATE NOWAIT"
	}
	return " FOR UPDATE"
}

// readRow is a row whose stock was read already: reading it again would cost a round trip.
type readRow struct {
	Tx
	units int64
}

func (r readRow) Read(context.Context, int64) (int64, error) { return r.units, nil }
