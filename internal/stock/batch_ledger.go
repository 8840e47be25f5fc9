package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"
)

const batchLedgerName = "batch-ledger"

// newBatchLedger makes a batch that writes down, in the same transaction, what became of each of its orders, as ledger
// does: one more statement a batch, and one before it where clients gave keys.
//
// It claims no keys. The goods' row keeps batches with a key in common apart; the one that comes second finds the key taken
// when it writes it down, undoes everything and begins anew, with the first one's answer. A batch that meets an order by itself
// with the same key, which claims it first, may be the victim of a deadlock: that is undone and tried again, too. A client that
// uses one key for two goods, and lets the one do work, makes a batch of the other wait for that work at worst.
func newBatchLedger(d Deps, _ Store) (Deducter, error) {
	return gather(d, ledger{mysqlStore{d.MySQL}, batchLedgerName, d.LockWait}, tryBatchLedger), nil
}

// tryBatchLedger decides on the orders whose keys are new. The others are replayed or refused at once, but for those that
// have the key of another order in this very batch: they get the same answer as that one, once it has one.
func tryBatchLedger(ctx context.Context, conn *sqlx.Conn, g *gathering) error {
	members := g.live()
	keys := map[string]*member{} // the first with each key
	var asked []ledgerRow
	for _, m := range members {
		row := newLedgerOrder(batchLedgerName, m.Request)
		m.row = &row
		if m.Key != "" && keys[m.Key] == nil {
			keys[m.Key] = m
			asked = append(asked, row)
		}
	}
	taken, err := findAnswers(ctx, conn, asked...)
	if err != nil {
		return err
	}
	var fresh, twins []*member
	for _, m := range members {
		first, known := taken[m.Key]
		switch {
		case known:
			m.receipt, m.err = first.again(*m.row, m.Request)
		case m.Key != "" && keys[m.Key] != m:
			twins = append(twins, m)
		default:
			fresh = append(fresh, m)
		}
	}
	err = sellAndRecord(ctx, conn, g.goodsID, fresh)
	if toBeTriedAgain(err) {
		g.undecided = append(fresh, twins...)
		return err
	}
	if errors.Is(err, ErrUnknown) {
		fresh = slices.DeleteFunc(fresh, unrecorded)
	}
	for _, m := range twins {
		var first *ledgerRow // none: the first one's outcome is no answer that would be kept
		if err == nil {
			first = keys[m.Key].row
		}
		m.receipt, m.err = first.again(*m.row, m.Request)
	}
	g.undecided = fresh
	return err
}

// sellAndRecord deducts and writes down what is an answer: "done", and "sold out" where the client gave a key.
// It fails with errKeyTaken where another batch has written down one of the keys since they were looked for.
func sellAndRecord(ctx context.Context, conn *sqlx.Conn, goodsID int64, members []*member) error {
	if len(members) == 0 {
		return nil
	}
	tx, err := conn.BeginTxx(ctx, nil)
	if err != nil {
		return refusal(err)
	}
	defer tx.Rollback()
	decided, err := deductTogether(ctx, tx, goodsID, members, refusal)
	if err == nil && !decided {
		err = mysqlTx{tx}.deductWhatFits(ctx, goodsID, members)
	}
	if err != nil {
		return err
	}
	answers := make([]ledgerRow, 0, len(members))
	for _, m := range members {
		if soldOut, ok := errors.AsType[*SoldOutError](m.err); ok {
			if m.Key == "" {
				continue
			}
			m.row.soldOut(m.GoodsID, soldOut.Remaining)
		} else {
			m.row.done(m.Count, m.receipt.Remaining)
		}
		answers = append(answers, *m.row)
	}
	if len(answers) == 0 {
		return nil
	}
	if err := insertRows(ctx, tx, answers...); err != nil {
		return err
	}
	return committed(tx.Commit())
}

// unrecorded finds the member that is sold out: nothing was deducted for it, that is certain. Where it is not known whether
// that was written down, it may get another answer next time.
func unrecorded(m *member) bool {
	if !errors.Is(m.err, ErrSoldOut) {
		return false
	}
	if m.Key != "" {
		m.err = fmt.Errorf("%w: sold out, and it is not known whether that was written down", ErrUnavailable)
	}
	return true
}
