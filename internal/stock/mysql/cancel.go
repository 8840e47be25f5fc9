package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"stock/internal/stock"
	"stock/internal/stock/retry"
	"stock/internal/stock/share"
)

// A sale is cancelled in two messages. The first reads its rows of the ledger, and the epochs of its stocks. The second
// is a transaction that puts units back and counts them in the ledger, each statement on the condition that what it
// changes is as it was read. So units come back once, no replica can be stopped while it has an item locked, and an
// item is locked before the key, as by a sale.
//
// If the key is not in the ledger, a cancellation of everything inserts a row of its own, a tombstone. As the key is
// unique, either the sale or the tombstone is committed first. The other one waits for it, and then finds the key
// taken: the sale is rolled back, and the cancellation begins anew, and cancels the sale. The key of a hold is refused
// then.

// soldRow is a row of the ledger, and the epoch and the units of the stock as it is now: none if the item is gone.
type soldRow struct {
	ledgerRow
	GivenBack int `db:"given_back"`
	Present   sql.NullInt64
	Units     sql.NullInt64
}

// presentSQL reads the epoch of the stock of a row of the ledger, and unitsSQL its units.
const (
	presentSQL = `CASE store
		WHEN 'slots' THEN (SELECT epoch FROM good_slot WHERE goods_id = ledger.goods_id AND slot = 0)
		WHEN 'units' THEN (SELECT epoch FROM unit_stock WHERE goods_id = ledger.goods_id)
		ELSE (SELECT epoch FROM good_stock WHERE goods_id = ledger.goods_id) END`
	unitsSQL = `CASE store
		WHEN 'slots' THEN (SELECT SUM(stock) FROM good_slot WHERE goods_id = ledger.goods_id)
		WHEN 'units' THEN (SELECT unmade FROM unit_stock WHERE goods_id = ledger.goods_id) +
			(SELECT COUNT(*) FROM good_unit WHERE goods_id = ledger.goods_id)
		ELSE (SELECT stock FROM good_stock WHERE goods_id = ledger.goods_id) END`
)

// giveBackSQL puts units back into an item's stock if its epoch is still that of the sale.
var giveBackSQL = map[stock.Store]string{
	stock.MySQL: "UPDATE good_stock SET stock = stock + ?, version = version + 1 WHERE goods_id = ? AND epoch = ?",
	stock.Slots: "UPDATE good_slot SET stock = stock + ? WHERE goods_id = ? AND epoch = ? AND slot = ?",
	stock.Units: "UPDATE unit_stock SET unmade = unmade + ? WHERE goods_id = ? AND epoch = ?",
}

// Sale implements stock.Canceller.
func (s Store) Sale(ctx context.Context, id stock.SaleID) (stock.Sale, error) {
	rows, err := s.findSale(ctx, id.Key)
	if err == nil && len(rows) == 0 {
		err = s.whyUnknown(ctx, id.Key)
	} else if err == nil {
		err = s.refuseForeign(rows)
	}
	if err != nil {
		return stock.Sale{}, err
	}
	sale := saleOf(id.Key, rows)
	return sale, sale.Check(id)
}

// CancelSale implements stock.Canceller.
func (s Store) CancelSale(ctx context.Context, req stock.CancelRequest) (sale stock.Sale, err error) {
	err = retry.While(ctx, s.wait, overtaken, func() error {
		sale, err = s.tryCancel(ctx, req)
		return err
	})
	return sale, err
}

func (s Store) tryCancel(ctx context.Context, req stock.CancelRequest) (stock.Sale, error) {
	rows, err := s.findSale(ctx, req.Key)
	switch {
	case err != nil:
		return stock.Sale{}, err
	case len(rows) == 0 && req.Lines != nil:
		return stock.Sale{}, s.whyUnknown(ctx, req.Key)
	case len(rows) == 0:
		return stock.Sale{Key: req.Key, State: stock.SaleNeverSold}, s.insertTombstone(ctx, req.Key)
	}
	if err := s.refuseForeign(rows); err != nil {
		return stock.Sale{}, err
	}
	sale := saleOf(req.Key, rows)
	if changed, err := sale.Cancel(req); err != nil || !changed {
		sale.Replayed = true
		return sale, err
	}
	query, args, err := cancelSQL(rows, &sale)
	if err != nil {
		return stock.Sale{}, err
	}
	return sale, s.use(ctx, []int64{share.Sales}, func(conn *conn) error {
		_, err := conn.together(ctx, query, args...)
		if otherRowCount(err) {
			return fmt.Errorf("the sale %w", stock.ErrChanged)
		}
		return err
	})
}

// findSale reads the rows of a key, and the epochs of their stocks, in one statement.
func (s Store) findSale(ctx context.Context, key string) (rows []soldRow, err error) {
	err = s.use(ctx, []int64{share.Sales}, func(conn *conn) error {
		return conn.SelectContext(ctx, &rows, "SELECT "+ledgerColumns+", cancelled, given_back, epoch, "+
			presentSQL+" AS present, "+unitsSQL+" AS units "+
			"FROM ledger FORCE INDEX (PRIMARY) WHERE order_key = ? ORDER BY line", []byte(key))
	})
	return rows, err
}

// refuseForeign refuses the rows of a sale from another store, and the row of a hold. A tombstone is of no store.
func (s Store) refuseForeign(rows []soldRow) error {
	switch first := &rows[0]; {
	case first.Outcome == ledgerHeld:
		return fmt.Errorf("%w: %q is the key of the reservation %s: name that by its id",
			stock.ErrKeyReused, first.Key, stock.ReservationID(first.Reservation))
	case first.Store != s.name && !first.isTombstone():
		return fmt.Errorf("%w: %q is the key of a sale from the store %s: name a strategy of it",
			stock.ErrKeyReused, first.Key, first.Store)
	}
	return nil
}

// whyUnknown is the error for a key that is not in the ledger: it may be about to be.
func (s Store) whyUnknown(ctx context.Context, key string) error {
	return s.use(ctx, []int64{share.Sales}, func(conn *conn) error {
		known, err := conn.findAnswer(ctx, ledgerRow{Key: []byte(key)})
		switch {
		case err != nil:
			return err
		case len(known) > 0: // in progress, or committed just now
			return fmt.Errorf("%w: %q", stock.ErrInProgress, key)
		}
		return fmt.Errorf("%w: %q", stock.ErrUnknownSale, key)
	})
}

// insertTombstone takes a key, so that nothing is sold or held for it. It fails with errKeyTaken if the key is not new.
func (s Store) insertTombstone(ctx context.Context, key string) error {
	row := ledgerRow{Key: []byte(key), Outcome: ledgerCancelled, Fingerprint: make([]byte, 32), Store: s.name}
	query, args := recordAlone([]ledgerRow{row})
	err := s.use(ctx, []int64{share.Sales}, func(conn *conn) error {
		_, err := conn.together(ctx, query, args...)
		return orTaken(err)
	})
	if hasNumber(err, erLockWaitTimeout) { // a sale or a hold with this key has not committed yet
		return fmt.Errorf("%w: %q: %v", stock.ErrInProgress, key, err)
	}
	return err
}

// saleOf is what the rows of a key tell. They are at least one.
func saleOf(key string, rows []soldRow) stock.Sale {
	sale := stock.Sale{Key: key, State: stock.SaleRefused}
	switch rows[0].Outcome {
	case ledgerSoldOut:
		return sale
	case ledgerDone:
		for _, row := range rows {
			sale.Lines = append(sale.Lines, stock.SaleLine{
				Line:      stock.Line{GoodsID: row.GoodsID, Count: row.Count},
				Cancelled: row.Cancelled,
				GivenBack: row.GivenBack,
			})
		}
	}
	sale.State = stock.StateOf(sale.Lines)
	return sale
}

// cancelSQL returns the statements that turn the rows of a sale into what it shall be, and counts in the sale what they
// give back. Each item is locked by the first statement for it, in ascending order, and the key comes last. It fails
// with ErrOverstocked if a stock would have too many units.
func cancelSQL(rows []soldRow, sale *stock.Sale) (query string, args []any, err error) {
	var items, ledger strings.Builder
	var ledgerArgs []any
	if len(sale.Lines) == 0 {
		ledger.WriteString("UPDATE ledger FORCE INDEX (PRIMARY) SET outcome = 'cancelled', created_at = UTC_TIMESTAMP(6) " +
			"WHERE order_key = ? AND line = 0 AND fingerprint = ? AND outcome = ?; " + expectOneRow)
		ledgerArgs = append(ledgerArgs, rows[0].Key, rows[0].Fingerprint, rows[0].Outcome)
	}
	for i := range sale.Lines {
		line, row := &sale.Lines[i], rows[i]
		units, back := line.Cancelled-row.Cancelled, 0
		if units == 0 {
			continue
		}
		if row.Present.Valid && row.Present.Int64 == row.Epoch {
			if row.Units.Int64 > stock.MaxStock-int64(units) {
				return "", nil, stock.Overstocked(row.GoodsID, row.Units.Int64, int64(units))
			}
			back = units
			line.GivenBack += back
			items.WriteString(giveBackSQL[row.Store] + "; " + expectOneRow + "; ")
			args = append(args, back, row.GoodsID, row.Epoch)
			if row.Store == stock.Slots {
				args = append(args, rand.IntN(slotCount))
			}
		}
		ledger.WriteString("; UPDATE ledger FORCE INDEX (PRIMARY) SET cancelled = ?, given_back = given_back + ? " +
			"WHERE order_key = ? AND line = ? AND fingerprint = ? AND outcome = 'done' AND cancelled = ?; " + expectOneRow)
		ledgerArgs = append(ledgerArgs, line.Cancelled, back, row.Key, row.Line, row.Fingerprint, row.Cancelled)
	}
	return items.String() + strings.TrimPrefix(ledger.String(), "; "), slices.Concat(args, ledgerArgs), nil
}
