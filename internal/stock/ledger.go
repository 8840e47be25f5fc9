package stock

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// ledger writes down what became of an order in the transaction that carries it out (Helland, "Idempotence Is Not a
// Medical Condition", ACM Queue, 2012). The answer to a key is kept if, and only if, the order was carried out, whatever
// died meanwhile, and an order that is sent again finds it. Only "done" and "sold out" are answers. After anything else
// nothing is kept, and the order may be tried again.
//
// Locks are taken in one order: the key's row, then the goods' row. Whoever has the goods waits for nobody's key, so that
// there is no circle. The key is first also because goods in demand have to be waited for: meanwhile, another request with
// the key must be able to see it.
type ledger struct {
	mysqlStore
	name string // of the strategy: the same key with another is another order
}

const ledgerName = "ledger"

// errKeyTaken ends a transaction that has nothing to do.
var errKeyTaken = errors.New("the key is taken")

func newLedger(d Deps, _ Store) (Deducter, error) {
	return ledger{mysqlStore{d.MySQL}, ledgerName}, nil
}

func (l ledger) Deduct(ctx context.Context, req Request) (Receipt, error) {
	section := arrive()
	order := newLedgerOrder(l.name, req)
	var taken map[string]*ledgerRow
	var soldOut *SoldOutError // an answer too, which is committed
	err := l.inTx(ctx, readCommitted, req, func(tx *sqlx.Tx) error {
		if req.Key != "" {
			var err error
			if taken, err = claimKeys(ctx, tx, order); err != nil {
				return err
			}
			if len(taken) > 0 {
				return errKeyTaken
			}
		}
		if err := req.pause(ctx, BeforeWrite); err != nil {
			return interrupted(err)
		}
		remaining, err := deductIn(ctx, tx, req)
		section.enter()
		switch {
		case err == nil:
			order.done(req.Count, remaining)
			if err := req.work(ctx); err != nil {
				return interrupted(err)
			}
		case req.Key != "" && errors.As(err, &soldOut):
			order.soldOut(soldOut.Remaining)
		default:
			return err
		}
		err = recordOrders(ctx, tx, order)
		section.leave()
		return err
	})
	switch {
	case errors.Is(err, errKeyTaken):
		return taken[req.Key].again(order, req)
	case soldOut != nil && errors.Is(err, ErrUnknown):
		// Nothing was deducted, that is certain. The client has no answer yet: it may get another one next time.
		return Receipt{}, fmt.Errorf("%w: sold out, and it is not known whether that was written down: %v", ErrUnavailable, err)
	case err != nil:
		return Receipt{}, err
	case soldOut != nil:
		return Receipt{}, soldOut
	}
	return section.receipt(order.Remaining, 1), nil
}

// deductIn is the conditional UPDATE of update inside a transaction at READ COMMITTED: the goods stay locked.
func deductIn(ctx context.Context, tx *sqlx.Tx, req Request) (remaining int64, err error) {
	for {
		result, err := tx.ExecContext(ctx, deductSQL, req.Count, req.GoodsID, req.Count)
		if err != nil {
			return 0, refusal(err)
		}
		rows, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		if rows == 1 {
			return result.LastInsertId()
		}
		units, err := mysqlTx{tx}.read(ctx, req.GoodsID)
		if err != nil {
			return 0, err
		}
		if units < int64(req.Count) {
			return 0, &SoldOutError{req.GoodsID, req.Count, units}
		}
		// Restocked between the two: ask again, lest a buyer be refused while there is stock.
	}
}
