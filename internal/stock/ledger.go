package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
)

// ledger writes down what became of an order in the transaction that carries it out (Helland, "Idempotence Is Not a
// Medical Condition", ACM Queue, 2012). The answer to a key is kept if, and only if, the order was carried out, whatever
// died meanwhile, and an order that is sent again finds it. Only "done" and "sold out" are answers. After anything else
// nothing is kept, and the order may be tried again.
//
// Locks are taken in one order: the key's row, then the goods' rows, in ascending order. The key is first because goods in
// demand have to be waited for: meanwhile, another request with the key must be able to see it. Batches take them the other way
// round (see newBatchLedger): of an order and a batch that meet so, the server undoes one, which tries again.
type ledger struct {
	mysqlStore
	name string        // of the strategy: the same key with another is another order
	wait time.Duration // longest time to try an order again that the server has undone
}

const ledgerName = "ledger"

// errKeyTaken ends a transaction whose order, or one of whose orders, another request has carried out.
var errKeyTaken = errors.New("the key is taken")

func newLedger(d Deps, _ Store) (Deducter, error) {
	return ledger{mysqlStore{d.MySQL}, ledgerName, d.LockWait}, nil
}

func (l ledger) Deduct(ctx context.Context, req Request) (Receipt, error) {
	section := arrive()
	order := newLedgerOrder(l.name, req)
	first, attempts, err := l.once(ctx, req, order, &section, func(in mysqlTx) ([]ledgerRow, error) {
		if err := req.pause(ctx, BeforeWrite); err != nil {
			return nil, interrupted(err)
		}
		remaining, err := in.deduct(ctx, Line{req.GoodsID, req.Count}, in.read)
		if err != nil {
			return nil, err
		}
		section.enter()
		order.done(req.Count, remaining)
		if err := req.work(ctx); err != nil {
			return nil, interrupted(err)
		}
		return []ledgerRow{order}, nil
	})
	switch {
	case err != nil:
		return Receipt{}, err
	case first != nil:
		return first.answer(req)
	}
	return section.receipt(order.Remaining, attempts), nil
}

// Order writes down a row for each line.
func (l ledger) Order(ctx context.Context, req OrderRequest) (OrderReceipt, error) {
	section := arrive()
	order := newLedgerLines(l.name, req)
	var done []LineReceipt
	first, attempts, err := l.once(ctx, req.steps(), order, &section, func(in mysqlTx) (_ []ledgerRow, err error) {
		if req.Key == "" {
			done, err = in.deductAll(ctx, req, &section, in.read)
		} else {
			done, err = in.deductAllOrNone(ctx, req, &section)
		}
		return order.ofLines(done), err
	})
	switch {
	case err != nil:
		return OrderReceipt{}, err
	case first != nil:
		return l.answerOrder(ctx, req, first)
	}
	receipt := section.orderReceipt(done)
	receipt.Attempts = attempts
	return receipt, nil
}

// once carries out an order whose key is new, and writes down in the same transaction what became of it: the rows that
// carryOut returns, or that it was sold out. Of an order whose key is taken it returns the first row, which has an answer. It
// tries again where the server has undone everything for the sake of another transaction.
func (l ledger) once(ctx context.Context, req Request, order ledgerRow, section *section, carryOut func(mysqlTx) ([]ledgerRow, error)) (first *ledgerRow, attempts int, err error) {
	started := time.Now()
	for attempts = 1; ; attempts++ {
		first, err = l.try(ctx, req, order, section, carryOut)
		if !undone(err) || time.Since(started) > l.wait || backOff(ctx, attempts) != nil {
			return first, attempts, err
		}
	}
}

func (l ledger) try(ctx context.Context, req Request, order ledgerRow, section *section, carryOut func(mysqlTx) ([]ledgerRow, error)) (first *ledgerRow, err error) {
	var soldOut error // an answer too, which is committed
	err = l.inTx(ctx, readCommitted, req, func(tx *sqlx.Tx) error {
		if req.Key != "" {
			taken, err := claimKey(ctx, tx, order)
			if err != nil {
				return err
			}
			if row, ok := taken[req.Key]; ok {
				first = row
				return errKeyTaken
			}
		}
		rows, err := carryOut(mysqlTx{tx})
		if short, ok := errors.AsType[*SoldOutError](err); ok && req.Key != "" {
			soldOut = err
			order.soldOut(short.GoodsID, short.Remaining)
			return recordOrders(ctx, tx, order)
		}
		if err != nil {
			return err
		}
		err = recordOrders(ctx, tx, rows...)
		section.leave()
		return err
	})
	switch {
	case errors.Is(err, errKeyTaken):
		return first, first.check(order)
	case soldOut != nil && errors.Is(err, ErrUnknown):
		// Nothing was deducted, that is certain. The client has no answer yet: it may get another one next time.
		return nil, fmt.Errorf("%w: sold out, and it is not known whether that was written down: %v", ErrUnavailable, err)
	case err != nil:
		return nil, err
	}
	return nil, soldOut
}

// deductAllOrNone is deductAll for a transaction that is committed also where a goods is sold out: those before it, which
// had enough, are undone.
func (s mysqlTx) deductAllOrNone(ctx context.Context, req OrderRequest, section *section) ([]LineReceipt, error) {
	if _, err := s.tx.ExecContext(ctx, "SAVEPOINT undeducted"); err != nil {
		return nil, refusal(err)
	}
	done, err := s.deductAll(ctx, req, section, s.read)
	if errors.Is(err, ErrSoldOut) {
		if _, undo := s.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT undeducted"); undo != nil {
			return nil, refusal(undo)
		}
	}
	return done, err
}

// answerOrder gives the first answer to an order that is sent again.
func (l ledger) answerOrder(ctx context.Context, req OrderRequest, first *ledgerRow) (OrderReceipt, error) {
	receipt := OrderReceipt{Receipt: Receipt{Attempts: 1, Replayed: true}}
	if first.Outcome == ledgerSoldOut {
		i := slices.IndexFunc(req.lines, func(line Line) bool { return line.GoodsID == first.GoodsID })
		line := req.lines[i]
		return receipt, line.refused(&SoldOutError{line.GoodsID, line.Count, first.Remaining})
	}
	rows, err := first.lines(ctx, l.db)
	if err != nil {
		return OrderReceipt{}, err
	}
	for _, row := range rows {
		receipt.Lines = append(receipt.Lines, LineReceipt{Line: Line{row.GoodsID, row.Count}, Remaining: row.Remaining})
	}
	return receipt, nil
}
