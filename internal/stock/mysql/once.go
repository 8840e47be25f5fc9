package mysql

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"stock/internal/stock"
	"stock/internal/stock/retry"
)

// A request with an idempotency key is carried out once (Helland, "Idempotence Is Not a Medical Condition", ACM Queue,
// 2012). Its outcome is a row of the table ledger, whose primary key is the key. The row is inserted by the last
// statement of the transaction that deducts, so the key is known if and only if the request was carried out, whatever
// crashes meanwhile. If the key is taken, that statement fails, everything is rolled back, and the request gets the
// first answer.
//
// So a new key costs one statement, and no lookup. And because the row comes last, a transaction never waits for
// anything while it has a key: requests with one key do not deadlock, and the first to commit wins. The others wait for
// the item as all requests do, and then get its answer. They are refused with ErrInProgress only if the winner does not
// commit in time.
//
// Only "done", "sold out", "cancelled" and "held" are answers. A refusal is inserted after the transaction has been
// rolled back. After any other outcome the key stays new. See package retention for how long answers are kept.

// Once makes sure that a deduction with a key is carried out once. deduct must record what it sells: see rowsOf. With
// or without a key, it tries again if the server has rolled the request back because of a conflict.
func (s Store) Once(
	ctx context.Context, req stock.Request, deduct func() (stock.Receipt, error),
) (stock.Receipt, error) {
	if req.Key == "" {
		return again(ctx, s, deduct)
	}
	return once(ctx, s, s.deductionRow(req), deduct, func(first *ledgerRow) (stock.Receipt, error) {
		return first.answer(req)
	})
}

// OrderOnce is Once for an order.
func (s Store) OrderOnce(
	ctx context.Context, req stock.OrderRequest, order func() (stock.OrderReceipt, error),
) (stock.OrderReceipt, error) {
	if req.Key == "" {
		return again(ctx, s, order)
	}
	return once(ctx, s, s.orderRow(req), order, func(first *ledgerRow) (stock.OrderReceipt, error) {
		return s.answerOrder(ctx, req, first)
	})
}

// again carries a request out, and repeats it while the server rolls it back because of a conflict, such as a deadlock,
// until the longest wait has passed.
func again[Receipt any](ctx context.Context, s Store, carryOut func() (Receipt, error)) (receipt Receipt, err error) {
	err = retry.While(ctx, s.wait, isRolledBack, func() (err error) {
		receipt, err = carryOut()
		return err
	})
	return receipt, err
}

// once does the same as again for a request with a key. If the key has an answer, it gives that. Several requests with
// one key that wait for one that is rolled back are in a conflict, too.
func once[Receipt any](
	ctx context.Context, s Store, entry ledgerRow,
	carryOut func() (Receipt, error), answer func(first *ledgerRow) (Receipt, error),
) (Receipt, error) {
	return again(ctx, s, func() (Receipt, error) {
		receipt, err := carryOut()
		if err == nil {
			return receipt, nil
		}
		first, err := s.settle(ctx, entry, err)
		if err == nil {
			receipt, err = answer(first)
		}
		return receipt, err
	})
}

// settle decides on a request that ended with a failure. It returns the first row of an earlier request with its key,
// or the error of the request. A refusal that is an answer is recorded.
func (s Store) settle(ctx context.Context, entry ledgerRow, failure error) (first *ledgerRow, err error) {
	switch {
	case entry.refuse(failure):
		err := s.use(ctx, []int64{entry.GoodsID}, func(conn *conn) error {
			return conn.record(ctx, []ledgerRow{entry})
		})
		switch {
		case err == nil:
			return nil, failure
		case !errors.Is(err, errKeyTaken):
			return nil, stock.Unrecorded(failure, err)
		}
		failure = err
	case !errors.Is(failure, errKeyTaken) && !IsBusy(failure):
		return nil, failure
	}
	known := answers{}
	err = s.use(ctx, []int64{entry.GoodsID}, func(conn *conn) (err error) {
		known, err = conn.findAnswer(ctx, entry)
		return err
	})
	first, taken := known[string(entry.Key)]
	switch {
	case err != nil:
		return nil, errors.Join(failure, err)
	case !taken && !errors.Is(failure, errKeyTaken):
		return nil, failure
	}
	return first, first.check(entry)
}

// answerOrder gives the first answer to an order that is sent again.
func (s Store) answerOrder(
	ctx context.Context, req stock.OrderRequest, first *ledgerRow,
) (stock.OrderReceipt, error) {
	receipt := stock.OrderReceipt{Receipt: stock.Receipt{Attempts: 1, Replayed: true}}
	switch first.Outcome {
	case ledgerCancelled:
		return receipt, cancelled(first.Key)
	case ledgerSoldOut:
		lines := req.Lines()
		line := lines[slices.IndexFunc(lines, func(l stock.Line) bool { return l.GoodsID == first.GoodsID })]
		return receipt, line.Refused(first.refusal(line))
	}
	var rows []ledgerRow
	err := s.use(ctx, []int64{first.GoodsID}, func(conn *conn) (err error) {
		rows, err = first.lines(ctx, conn)
		return err
	})
	if err != nil {
		return stock.OrderReceipt{}, err
	}
	if !slices.ContainsFunc(rows, func(r ledgerRow) bool { return r.Cancelled < r.Count }) {
		return receipt, cancelled(first.Key)
	}
	for _, row := range rows {
		line := stock.Line{GoodsID: row.GoodsID, Count: row.Count}
		receipt.Lines = append(receipt.Lines, stock.LineReceipt{Line: line, Remaining: row.Remaining})
	}
	return receipt, nil
}

// DeductInTx runs a deduction between BEGIN and COMMIT, and records it.
func (s Store) DeductInTx(
	ctx context.Context, req stock.Request, options *sql.TxOptions, deduct func(Tx) (stock.Receipt, error),
) (receipt stock.Receipt, err error) {
	err = s.InTx(ctx, []int64{ShareOf(req)}, options, func(tx Tx) error {
		if receipt, err = deduct(tx); err != nil {
			return err
		}
		return tx.record(ctx, s.rowsOf(req, receipt.Remaining))
	})
	return receipt, err
}

// orderInTx is DeductInTx for an order.
func (s Store) orderInTx(
	ctx context.Context, req stock.OrderRequest, options *sql.TxOptions, order func(Tx) (stock.OrderReceipt, error),
) (receipt stock.OrderReceipt, err error) {
	err = s.InTx(ctx, sharesOf(req), options, func(tx Tx) error {
		if receipt, err = order(tx); err != nil {
			return err
		}
		return tx.record(ctx, s.rowsOfOrder(req, receipt.Lines))
	})
	return receipt, err
}
