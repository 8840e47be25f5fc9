package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/retry"
)

// ledger records the outcome of a request in the transaction that carries it out (Helland, "Idempotence Is Not a
// Medical Condition", ACM Queue, 2012). The answer to a key is kept if and only if the request was carried out,
// whatever crashes meanwhile, and a request that is sent again finds it. Only "done" and the refusals "sold out" and
// "buyer limit" are answers. After any other outcome nothing is kept, and the request may be tried again. Refusals
// expire: see Expiry.
//
// Locks are taken in one order: the row of the key, then the rows of the items, ascending, each followed by that of
// the buyer (see buyers). The key comes first because requests wait for popular items, and meanwhile another request
// with the same key must be able to see it. Batches take them the other way round (see NewBatchLedger): if a request
// and a batch deadlock, the server rolls one of them back, and that one tries again.
type ledger struct {
	Store
	name string        // of the strategy: the same key with another strategy is another request
	wait time.Duration // how long to retry a request that the server has rolled back
	// sell deducts for a request, within the limit of its buyer, and returns the units left.
	sell func(ctx context.Context, tx Tx, req stock.Request) (remaining int64, err error)
}

// LedgerName is the name of the strategy `ledger`.
const LedgerName = "ledger"

// errKeyTaken ends a transaction because another request has the same key: it was carried out first, or is in
// progress.
var errKeyTaken = errors.New("the idempotency key is taken")

// NewLedger makes the strategy `ledger`.
func NewLedger(d stock.Deps) stock.Deducter {
	return newLedger(d, LedgerName)
}

func newLedger(d stock.Deps, name string) ledger {
	return ledger{Store: New(d), name: name, wait: d.LockWait, sell: sellWithinLimit}
}

func sellWithinLimit(ctx context.Context, tx Tx, req stock.Request) (remaining int64, err error) {
	return tx.sell(ctx, stock.Line{GoodsID: req.GoodsID, Count: req.Count}, req.Buyer, tx.Read)
}

func (l ledger) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	section := stock.Arrive()
	entry := newDeductionRow(l.name, req)
	once := ledgerTx{
		ledger: l, key: req.Key, shares: []int64{ShareOf(req)}, entry: entry, section: &section,
	}
	first, attempts, err := once.run(ctx, func(in Tx) ([]ledgerRow, error) {
		remaining, err := l.sell(ctx, in, req)
		if err != nil {
			return nil, err
		}
		section.Enter()
		entry.done(req.Count, remaining)
		return []ledgerRow{entry}, stock.Work(ctx, req.Hold)
	})
	switch {
	case err != nil:
		return stock.Receipt{}, err
	case first != nil:
		return first.answer(req)
	}
	return section.Receipt(entry.Remaining, attempts), nil
}

// Order records a row for each line.
func (l ledger) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	section := stock.Arrive()
	entry := newOrderRow(l.name, req)
	once := ledgerTx{
		ledger: l, key: req.Key, shares: sharesOf(req), entry: entry, section: &section,
	}
	var lines []stock.LineReceipt
	first, attempts, err := once.run(ctx, func(in Tx) (_ []ledgerRow, err error) {
		if req.Key == "" {
			lines, err = in.deductAll(ctx, req, &section, in.Read)
		} else {
			lines, err = in.deductAllOrNone(ctx, req, &section)
		}
		return entry.rows(lines), err
	})
	switch {
	case err != nil:
		return stock.OrderReceipt{}, err
	case first != nil:
		return l.answerOrder(ctx, req, first)
	}
	receipt := section.OrderReceipt(lines)
	receipt.Attempts = attempts
	return receipt, nil
}

// answerOrder gives the first answer to an order that is sent again.
func (l ledger) answerOrder(
	ctx context.Context, req stock.OrderRequest, first *ledgerRow,
) (stock.OrderReceipt, error) {
	receipt := stock.OrderReceipt{Receipt: stock.Receipt{Attempts: 1, Replayed: true}}
	if first.Outcome != ledgerDone {
		lines := req.Lines()
		line := lines[slices.IndexFunc(lines, func(l stock.Line) bool { return l.GoodsID == first.GoodsID })]
		return receipt, line.Refused(first.refusal(line, req.Buyer))
	}
	var rows []ledgerRow
	err := l.use(ctx, []int64{first.GoodsID}, func(conn *conn) (err error) {
		rows, err = first.lines(ctx, conn)
		return err
	})
	if err != nil {
		return stock.OrderReceipt{}, err
	}
	for _, row := range rows {
		line := stock.Line{GoodsID: row.GoodsID, Count: row.Count}
		receipt.Lines = append(receipt.Lines, stock.LineReceipt{Line: line, Remaining: row.Remaining})
	}
	return receipt, nil
}

// ledgerTx carries out a request whose key is new and records its outcome, in one transaction.
type ledgerTx struct {
	ledger
	key     string
	shares  []int64   // what the connection counts against
	entry   ledgerRow // the first row of the request
	section *stock.Section
}

// run records the rows that carryOut returns, or its refusal if that is an answer. If the key is taken, it returns the
// first row of the earlier request, which has an answer. It tries again if the server rolled everything back because of
// a conflict.
func (l ledgerTx) run(
	ctx context.Context, carryOut func(Tx) ([]ledgerRow, error),
) (first *ledgerRow, attempts int, err error) {
	for attempts = 1; ; attempts++ {
		first, err = l.try(ctx, carryOut)
		if !isRolledBack(err) || l.section.Elapsed() > stock.LongestWait(ctx, l.wait) || retry.BackOff(ctx, attempts) != nil {
			return first, attempts, err
		}
	}
}

func (l ledgerTx) try(ctx context.Context, carryOut func(Tx) ([]ledgerRow, error)) (first *ledgerRow, err error) {
	var refusal error // an answer too: it is committed
	err = l.InTx(ctx, l.shares, ReadCommitted, func(tx Tx) (err error) {
		if first, err = l.takeKey(ctx, tx); err != nil {
			return err
		}
		rows, err := carryOut(tx)
		if l.key != "" && l.entry.refuse(err) {
			refusal = err
			return recordRows(ctx, tx, l.entry)
		}
		if err != nil {
			return err
		}
		err = recordRows(ctx, tx, rows...)
		l.section.Leave()
		return err
	})
	switch {
	case errors.Is(err, errKeyTaken):
		return first, first.check(l.entry)
	case refusal != nil && errors.Is(err, stock.ErrUnknown):
		return nil, unrecorded(refusal, err)
	case err != nil:
		return nil, err
	}
	return nil, refusal
}

// unrecorded is the error of a request with a key if the reply to the COMMIT of its refusal was lost. It is not an
// ErrUnknown, since nothing was deducted, nor the refusal, since the request may get another answer when it is sent
// again.
func unrecorded(refusal, cause error) error {
	return fmt.Errorf("%w: refused (%v), but it is unknown whether that answer was recorded: %v",
		stock.ErrUnavailable, refusal, cause)
}

// takeKey takes the client's key, if there is one. If another request has it, takeKey fails with errKeyTaken and
// returns that request's first row, or nil while it is in progress.
func (l ledgerTx) takeKey(ctx context.Context, tx Tx) (first *ledgerRow, err error) {
	if l.key == "" {
		return nil, nil
	}
	taken, err := takeKey(ctx, tx, l.entry)
	if err != nil {
		return nil, err
	}
	if row, ok := taken[l.key]; ok {
		return row, errKeyTaken
	}
	return nil, nil
}

// deductAllOrNone is deductAll for a transaction that is committed even if an item is refused: it undoes the
// deductions of the items before that one.
func (tx Tx) deductAllOrNone(
	ctx context.Context, req stock.OrderRequest, section *stock.Section,
) ([]stock.LineReceipt, error) {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT undeducted"); err != nil {
		return nil, Refusal(err)
	}
	receipts, err := tx.deductAll(ctx, req, section, tx.Read)
	if isAnswer(err) {
		if _, undo := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT undeducted"); undo != nil {
			return nil, Refusal(undo)
		}
	}
	return receipts, err
}
