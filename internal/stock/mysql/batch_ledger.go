package mysql

import (
	"context"
	"database/sql"
	"errors"

	"stock/internal/stock"
	"stock/internal/stock/batching"
)

// BatchLedgerName is the name of the strategy `batch-ledger`.
const BatchLedgerName = "batch-ledger"

// NewBatchLedger makes the strategy `batch-ledger`: a batch that records the outcome of each request in the same
// transaction, as ledger does. That costs a transaction: BEGIN, one INSERT and COMMIT besides the UPDATE, and a
// SELECT before them if clients gave keys.
//
// It does not take keys before it deducts. Two batches with a key in common are kept apart by the item's row: the
// second one finds the key taken when it inserts its rows, is rolled back, and starts anew with the first one's
// answer. A batch that meets a single request with the same key may become the victim of a deadlock, which is rolled
// back and retried too. At worst, if a client uses one key for two items and one of the two requests has a Hold, a
// batch of the other item waits until that request ends.
func NewBatchLedger(d stock.Deps) stock.Deducter {
	alone := newLedger(d, BatchLedgerName)
	return batchWithOrders{newBatch(d, alone, tryBatchLedger), alone}
}

// keyed is a member of a batch with its row of the ledger.
type keyed struct {
	*batching.Member
	row *ledgerRow
}

// tryBatchLedger decides on the requests without a key and on the first request of each new key. Requests whose key
// is taken are answered or refused at once. Those that repeat a key of the same batch get the first one's answer once
// it is recorded.
func tryBatchLedger(ctx context.Context, conn *conn, b *batching.Batch) error {
	members, firsts, entries := enterLedger(b.Undecided)
	taken, err := findAnswersBeforehand(ctx, conn, entries)
	if err != nil {
		return err
	}
	var fresh, repeats []keyed
	for _, m := range members {
		first, known := taken[m.Key]
		switch {
		case known:
			m.Answer(first.checkAndAnswer(*m.row, m.Request))
		case m.Key != "" && firsts[m.Key] != m.row:
			repeats = append(repeats, m)
		default:
			fresh = append(fresh, m)
		}
	}
	b.Undecided = membersOf(fresh)
	err = sellAndRecord(ctx, conn, b, fresh)
	switch {
	case conn.mayRetry(err):
		b.Undecided = append(b.Undecided, membersOf(repeats)...)
		return err
	case errors.Is(err, stock.ErrUnknown):
		b.Undecided = keepRefusals(fresh, err)
	}
	for _, m := range repeats {
		var first *ledgerRow // nil unless the first one's answer was recorded
		if err == nil {
			first = firsts[m.Key]
		}
		m.Answer(first.checkAndAnswer(*m.row, m.Request))
	}
	return err
}

// findAnswersBeforehand is findAnswers outside of the transaction that deducts. On TiDB, a locking read locks nothing
// unless it is in a transaction.
func findAnswersBeforehand(ctx context.Context, conn *conn, entries []ledgerRow) (answers, error) {
	if !conn.store.tidb || len(entries) == 0 {
		return findAnswers(ctx, conn, entries...)
	}
	tx, err := conn.begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.tx.Rollback()
	return findAnswers(ctx, tx, entries...)
}

// enterLedger makes the rows of a batch. It returns the first row of each client key, by key and as a list.
func enterLedger(batch []*batching.Member) (members []keyed, firsts map[string]*ledgerRow, entries []ledgerRow) {
	members, firsts = make([]keyed, 0, len(batch)), map[string]*ledgerRow{}
	for _, m := range batch {
		row := newDeductionRow(BatchLedgerName, m.Request)
		members = append(members, keyed{m, &row})
		if m.Key != "" && firsts[m.Key] == nil {
			firsts[m.Key] = &row
			entries = append(entries, row)
		}
	}
	return members, firsts, entries
}

func membersOf(members []keyed) []*batching.Member {
	list := make([]*batching.Member, len(members))
	for i, m := range members {
		list[i] = m.Member
	}
	return list
}

// sellAndRecord deducts for the undecided members and records the answers: "done", and refusals if the client gave a
// key. It fails with errKeyTaken if another batch has recorded one of the keys since they were looked up.
func sellAndRecord(ctx context.Context, conn *conn, b *batching.Batch, fresh []keyed) error {
	if len(fresh) == 0 {
		return nil
	}
	named := buyersOf(b.Undecided)
	var options *sql.TxOptions
	if len(named) > 0 {
		options = ReadCommitted // see selectBuyersSQL
	}
	tx, err := conn.begin(ctx, options)
	if err != nil {
		return err
	}
	defer tx.tx.Rollback()
	if err := tx.sellBatch(ctx, b, named); err != nil {
		return err
	}
	rows := recordedRows(fresh)
	if len(rows) == 0 {
		return nil
	}
	if err := insertRows(ctx, tx, rows...); err != nil {
		return err
	}
	return classifyCommit(tx.tx.Commit())
}

// sellBatch deducts for the undecided members, some of which may have the named buyers.
func (tx Tx) sellBatch(ctx context.Context, b *batching.Batch, named []string) error {
	if len(named) > 0 {
		return tx.deductWithinLimits(ctx, b, named)
	}
	_, decided, err := deductTogether(ctx, tx, b.GoodsID, b.Undecided, Refusal)
	if err == nil && !decided {
		err = tx.deductWhatFits(ctx, b.GoodsID, b.Undecided)
	}
	return err
}

// deductWhatFits grants some of a batch under the row's lock, so that it decides by the current stock.
func (tx Tx) deductWhatFits(ctx context.Context, goodsID int64, members []*batching.Member) error {
	units, err := tx.readForUpdate(ctx, goodsID)
	if err != nil {
		return err
	}
	return tx.Write(ctx, goodsID, batching.Allot(members, units))
}

// deductWithinLimits decides on one member after the other, in the order of arrival.
func (tx Tx) deductWithinLimits(ctx context.Context, b *batching.Batch, named []string) error {
	buyers, err := tx.lockBuyers(ctx, b.GoodsID, named...)
	if err != nil {
		return err
	}
	units := buyers.units
	for _, m := range b.Undecided {
		if err := m.Buyer.Check(stock.Line{GoodsID: m.GoodsID, Count: m.Count}, buyers.bought[m.Buyer.Name]); err != nil {
			m.Refuse(err)
			continue
		}
		units = batching.Allot([]*batching.Member{m}, units)
		if m.Err == nil && m.Buyer.Name != "" {
			buyers.add(m.Buyer.Name, m.Count)
		}
	}
	if units == buyers.units {
		return nil
	}
	if err := tx.Write(ctx, b.GoodsID, units); err != nil {
		return err
	}
	return tx.writeBuyers(ctx, buyers)
}

// buyersOf names the buyers of a batch, each once.
func buyersOf(members []*batching.Member) (names []string) {
	known := map[string]bool{"": true}
	for _, m := range members {
		if !known[m.Buyer.Name] {
			known[m.Buyer.Name] = true
			names = append(names, m.Buyer.Name)
		}
	}
	return names
}

// recordedRows completes the rows of the members whose outcome is recorded.
func recordedRows(members []keyed) []ledgerRow {
	rows := make([]ledgerRow, 0, len(members))
	for _, m := range members {
		if m.Err == nil {
			m.row.done(m.Count, m.Remaining)
		} else if m.Key == "" || !m.row.refuse(m.Err) {
			continue
		}
		rows = append(rows, *m.row)
	}
	return rows
}

// keepRefusals is called when the reply to COMMIT was lost. It leaves refused members their refusal, since nothing was
// deducted for them, and returns the others.
func keepRefusals(members []keyed, lost error) (others []*batching.Member) {
	for _, m := range members {
		switch {
		case !isAnswer(m.Err):
			others = append(others, m.Member)
		case m.Key != "":
			m.Refuse(unrecorded(m.Err, lost))
		}
	}
	return others
}
