package mysql

import (
	"context"
	"errors"

	"stock/internal/stock"
)

// holderStore is the store as seen by one holder of a lock who carries out a request. With a fence, the holder is known
// by the lock's token (Kleppmann, "How to do distributed locking", 2016). The columns fence and fence_issuer of the
// item's row hold the token of the last sale. Write is refused if a later holder of the same issuer has written, or if
// the stock is no longer what Read returned.
//
// To check the token alone would not be enough. A holder that was stopped for longer than its lease may wake up and
// write between the next holder's read and write. No later token has been written yet, so the store accepts the write,
// and the next holder's write would undo it. As that one finds another stock than it has read, its write is refused,
// and it reads again.
//
// To check the stock alone would lose nothing either, but a holder whose turn has ended could still sell after a later
// holder has.
//
// Tokens of two issuers cannot be compared, so two kinds of fenced locks on one item do not exclude each other, but
// lose nothing. If a lock service loses its data and starts to count anew, its holders are refused until Store.Set
// resets the fence.
type holderStore struct {
	Store
	holder stock.Holder
	req    stock.Request
	read   readStock
}

const (
	fencedOverwriteSQL = `UPDATE good_stock SET stock = ?, version = version + 1, fence = ?, fence_issuer = ?
		WHERE goods_id = ? AND stock = ? AND (fence_issuer <> ? OR fence < ?)`
	fenceSQL = "SELECT fence, fence_issuer FROM good_stock WHERE goods_id = ?"
)

// As implements stock.Lockable.
func (s Store) As(holder stock.Holder, req stock.Request) stock.ReadWriter {
	if holder.Issuer == "" && req.Key == "" {
		return s
	}
	return &holderStore{Store: s, holder: holder, req: req}
}

// Read implements stock.ReadWriter.
func (s *holderStore) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.use(ctx, []int64{goodsID}, func(conn *conn) error {
		s.read, err = conn.readStock(ctx, goodsID)
		return err
	})
	return s.read.Units, err
}

// Write implements stock.ReadWriter.
func (s *holderStore) Write(ctx context.Context, goodsID, units int64) error {
	written := stock.ItemStock{GoodsID: goodsID, Units: units, Read: s.read.Units, Holder: s.holder}
	fenced := s.holder.Issuer != ""
	query, args := overwriteSQL, []any{units, goodsID}
	if fenced {
		query, args = fencedOverwriteSQL, fencedArgs(written)
	}
	rows := s.rowsOf(s.req, units)
	query, args = s.read.only(rows, query, args)
	return s.use(ctx, []int64{goodsID}, func(conn *conn) error {
		_, err := conn.execAndRecord(ctx, rows, query, args...)
		switch {
		case !errors.Is(err, errNoMatch):
			return err
		case fenced:
			return whyRefused(ctx, conn, written)
		}
		return stock.ErrChanged // or the item is gone, as the next read finds
	})
}

// writeFenced is holderStore.Write inside a transaction.
func (tx Tx) writeFenced(ctx context.Context, s stock.ItemStock) error {
	_, err := matched(tx.ExecContext(ctx, fencedOverwriteSQL, fencedArgs(s)...))
	if errors.Is(err, errNoMatch) {
		err = whyRefused(ctx, tx, s)
	}
	return err
}

func fencedArgs(s stock.ItemStock) []any {
	return []any{s.Units, s.Holder.Token, s.Holder.Issuer, s.GoodsID, s.Read, s.Holder.Issuer, s.Holder.Token}
}

// whyRefused returns the error of a write that found no row: ErrFenced after the sale of a later holder, and otherwise
// ErrChanged. Only refusals pay for this query.
func whyRefused(ctx context.Context, in session, s stock.ItemStock) error {
	var last struct {
		Token  uint64 `db:"fence"`
		Issuer string `db:"fence_issuer"`
	}
	if err := in.GetContext(ctx, &last, fenceSQL, s.GoodsID); err != nil {
		return orMissing(s.GoodsID, err)
	}
	if last.Issuer == s.Holder.Issuer && last.Token >= s.Holder.Token {
		return s.Holder.RefusedBy(s.GoodsID, stock.Holder(last))
	}
	return stock.ErrChanged
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

// writeAll overwrites the stock of several items. Stocks with a holder are written through the fence.
func (tx Tx) writeAll(ctx context.Context, stocks []stock.ItemStock) error {
	for _, s := range stocks {
		var err error
		if s.Holder.Issuer == "" {
			err = tx.Write(ctx, s.GoodsID, s.Units)
		} else {
			err = tx.writeFenced(ctx, s)
		}
		if err != nil {
			return &stock.LineError{GoodsID: s.GoodsID, Err: err}
		}
	}
	return nil
}
