package mysql

import (
	"context"
	"database/sql"

	"stock/internal/stock"
)

// fencedStore is the store of one holder of a lock, known by the lock's token (Kleppmann, "How to do distributed
// locking", 2016). The columns fence and fence_issuer of the item's row hold the registered holder. Read registers
// the holder, unless a later one of the same issuer has registered; Write is refused once another holder has
// registered.
//
// To check the token in Write alone would not be enough. A holder that was stopped for longer than its lease may wake
// up and write between the next holder's read and write: the fence has not seen a later token yet, so it accepts the
// write, and the next holder's write undoes it.
//
// An item that is sold out registers nobody: nothing will be written, and most requests of a flash sale are of that
// kind.
//
// A holder of another issuer registers whatever its token is, since tokens of two issuers cannot be compared. So two
// kinds of fenced locks on one item hold each other up but lose nothing: only the holder that registered last can
// write. If a lock service loses its data and starts to count anew, its holders are refused until Store.Set resets
// the fence.
type fencedStore struct {
	Store
	holder stock.Holder
	count  int
}

const (
	// LAST_INSERT_ID(expr) returns the stock in the reply itself, in one round trip.
	registerSQL = `UPDATE good_stock SET fence = ?, fence_issuer = ?, stock = LAST_INSERT_ID(stock)
		WHERE goods_id = ? AND stock >= ? AND (fence_issuer <> ? OR fence < ?)`
	fencedOverwriteSQL = `UPDATE good_stock SET stock = ?, version = version + 1
		WHERE goods_id = ? AND fence_issuer = ? AND fence = ?`
	registeredSQL = "SELECT stock, fence, fence_issuer FROM good_stock WHERE goods_id = ?"
)

// WithFence implements stock.Lockable.
func (s Store) WithFence(holder stock.Holder, count int) stock.ReadWriter {
	return fencedStore{s, holder, count}
}

// Read registers the holder and reads the stock. A registration whose reply is lost has deducted nothing, and is in
// nobody's way but this holder's.
func (s fencedStore) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.use(ctx, []int64{goodsID}, func(conn *conn) error {
		units, err = s.register(ctx, conn, goodsID)
		return err
	})
	return units, err
}

func (s fencedStore) register(ctx context.Context, conn *conn, goodsID int64) (int64, error) {
	own := s.holder
	if err := conn.endBefore(ctx, conn); err != nil {
		return 0, Refusal(err)
	}
	running, cancel := untilDeadline(ctx)
	defer cancel()
	result, err := conn.ExecContext(running, registerSQL, own.Token, own.Issuer, goodsID, s.count, own.Issuer, own.Token)
	if err != nil {
		return 0, Refusal(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	if rows == 0 {
		// Sold out, a later holder, or no such item. Only refusals pay for the second query.
		units, registered, err := readRegistered(ctx, conn, goodsID)
		if err == nil && units >= int64(s.count) {
			err = own.RefusedBy(goodsID, registered)
		}
		return units, err
	}
	return result.LastInsertId()
}

// Write overwrites the stock if the holder is still registered.
func (s fencedStore) Write(ctx context.Context, goodsID, units int64) error {
	return s.use(ctx, []int64{goodsID}, func(conn *conn) error {
		result, err := conn.exec(ctx, fencedOverwriteSQL, units, goodsID, s.holder.Issuer, s.holder.Token)
		if err != nil {
			return err
		}
		return checkFence(ctx, conn, result, goodsID, s.holder)
	})
}

// writeFenced overwrites the stock if the holder is still registered.
func (tx Tx) writeFenced(ctx context.Context, s stock.ItemStock) error {
	result, err := tx.ExecContext(ctx, fencedOverwriteSQL, s.Units, s.GoodsID, s.Holder.Issuer, s.Holder.Token)
	if err != nil {
		return Refusal(err)
	}
	return checkFence(ctx, tx, result, s.GoodsID, s.Holder)
}

// checkFence fails with ErrFenced if a write found another holder registered.
func checkFence(
	ctx context.Context, in session, result sql.Result, goodsID int64, holder stock.Holder,
) error {
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		// Nothing was written, even if the query for the reason fails.
		_, registered, _ := readRegistered(ctx, in, goodsID)
		err = holder.RefusedBy(goodsID, registered)
	}
	return err
}

// readRegistered reads the stock and the registered holder.
func readRegistered(
	ctx context.Context, in session, goodsID int64,
) (units int64, registered stock.Holder, err error) {
	var row struct {
		Stock  int64
		Token  uint64 `db:"fence"`
		Issuer string `db:"fence_issuer"`
	}
	err = in.GetContext(ctx, &row, registeredSQL, goodsID)
	return row.Stock, stock.Holder{Token: row.Token, Issuer: row.Issuer}, classifyRead(goodsID, err)
}
