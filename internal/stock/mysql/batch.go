package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/batching"
)

// batch is group commit by the client: the requests for one item that wait in a replica while a commit is under way
// go together into the next transaction (DeWitt et al., "Implementation Techniques for Main Memory Database Systems",
// SIGMOD 1984). A request that comes alone is one round trip, as with update; the slower the server, the more
// requests share its next commit.
//
// As many requests are granted as fit, in the order of arrival. One that asks for too much does not block a smaller one
// behind it.
//
// A request with work to do inside the critical section does not join a batch, because all others would wait for it.
// Nor does one with a shorter limit (stock.LimitWait), because a batch may wait for the row up to the full limit.
// Such a request is a transaction by itself, as with update.
//
// The rows of members with keys are inserted together, in the batch's transaction. If one of the keys has an answer
// already, nothing is written, and the batch tries again without the members whose answers it finds.
type batch struct {
	*batching.Queue
	stock.Canceller
	wait  time.Duration  // longest wait of a batch for the row
	alone stock.Deducter // for requests that do not join a batch
}

// batchWithOrders is a batch of a strategy that takes orders, too.
type batchWithOrders struct {
	*batch
	orders stock.Orderer
}

// NewBatch makes the strategy `batch`.
func NewBatch(d stock.Deps) stock.Deducter {
	alone := newUpdate(d)
	return batchWithOrders{newBatch(New(d), alone, withKeys(tryBatch)), alone}
}

func newBatch(store Store, alone stock.Deducter, try tryFunc) *batch {
	return &batch{Queue: newQueue(store, try), Canceller: store, wait: store.wait, alone: alone}
}

func (s *batch) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	limit, limited := stock.WaitLimit(ctx)
	if limited && limit < s.wait || req.Hold > 0 {
		return s.alone.Deduct(ctx, req)
	}
	return s.Queue.Deduct(ctx, req)
}

// Order does not join a batch: while it waited in one item's queue, it would keep the rows of earlier items locked.
// An order without work reports the time of the reply as its critical section, as a batch does.
func (s batchWithOrders) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	section := stock.Arrive()
	receipt, err := s.orders.Order(ctx, req)
	if err == nil && !receipt.Replayed && req.Hold == 0 {
		section.Enter()
		receipt.Receipt = section.Receipt(0, 1)
	}
	return receipt, err
}

// withKeys answers members whose keys have an answer in the ledger. Members that repeat a key of the batch wait for the
// answer to the first.
func withKeys(try tryFunc) tryFunc {
	return func(ctx context.Context, conn *conn, b *batching.Batch) error {
		repeats := takeRepeats(b)
		err := try(ctx, conn, b)
		if errors.Is(err, errKeyTaken) || IsBusy(err) {
			if failed := answerKnown(ctx, conn, b); failed != nil {
				err = failed
			}
		}
		if conn.mayRetry(err) {
			b.Undecided = append(b.Undecided, repeats...)
			return err
		}
		if len(repeats) > 0 {
			again := &batching.Batch{GoodsID: b.GoodsID, Undecided: repeats}
			_ = answerKnown(ctx, conn, again)
			if err == nil || errors.Is(err, stock.ErrUnknown) { // the first may be carried out yet
				again.RefuseUndecided(fmt.Errorf("%w: it is in the same batch", stock.ErrInProgress))
			} else {
				again.RefuseUndecided(err)
			}
		}
		return err
	}
}

// takeRepeats removes the members of a batch that repeat the key of another one, and returns them.
func takeRepeats(b *batching.Batch) (repeats []*batching.Member) {
	var seen map[string]bool
	b.Undecided = slices.DeleteFunc(b.Undecided, func(m *batching.Member) bool {
		if m.Key == "" {
			return false
		}
		if seen[m.Key] {
			repeats = append(repeats, m)
			return true
		}
		if seen == nil {
			seen = map[string]bool{}
		}
		seen[m.Key] = true
		return false
	})
	return repeats
}

// answerKnown answers the undecided members whose keys have an answer.
func answerKnown(ctx context.Context, conn *conn, b *batching.Batch) error {
	var entries []ledgerRow
	for _, m := range b.Undecided {
		if m.Key != "" {
			entries = append(entries, conn.store.deductionRow(m.Request))
		}
	}
	if len(entries) == 0 {
		return nil
	}
	known, err := findAnswers(ctx, conn, "", entries...)
	if err != nil {
		return err
	}
	b.Undecided = slices.DeleteFunc(b.Undecided, func(m *batching.Member) bool {
		first, ok := known[m.Key]
		if ok {
			m.Answer(first.checkAndAnswer(conn.store.deductionRow(m.Request), m.Request))
		}
		return ok
	})
	return nil
}

// tryBatch needs one message if there is enough for all, as there is until the item runs out. If not, a second one
// reads the stock, and if some members fit, a third one takes their units.
//
// Each message commits by itself. A transaction that read the stock under the row's lock would block the item for as
// long as the replica is stopped in between.
func tryBatch(ctx context.Context, conn *conn, b *batching.Batch) error {
	if len(b.Undecided) == 0 {
		return nil
	}
	if together, err := deductTogether(ctx, conn, b); err != nil || together {
		return err
	}
	read, err := conn.readStock(ctx, b.GoodsID)
	if err != nil {
		return err
	}
	if batching.Allot(b.Undecided, read.Units) == read.Units {
		return recordRefusals(ctx, conn, b.Undecided, conn.store.rowsOfBatch(b.Undecided))
	}
	return deductFitting(ctx, conn, b, read)
}

// deductTogether grants a whole batch, or writes nothing. If it has several keys, it first looks whether there is
// enough: a message that finds too little locks the item until the client has rolled it back.
func deductTogether(ctx context.Context, conn *conn, b *batching.Batch) (granted bool, err error) {
	asked := batching.Total(b.Undecided)
	batching.Allot(b.Undecided, asked)
	keyed := conn.store.rowsOfBatchStatement(b.Undecided, 0)
	query, args := deductSQL, []any{asked, b.GoodsID, asked}
	if len(keyed) > 1 {
		read, err := conn.readStock(ctx, b.GoodsID)
		if err != nil || read.Units < asked {
			return false, err
		}
		query, args = read.only(keyed, query, args)
	}
	remaining, err := conn.execAndRecord(ctx, keyed, query, args...)
	switch {
	case errors.Is(err, errNoMatch):
		return false, nil
	case err != nil:
		return false, err
	}
	batching.Allot(b.Undecided, remaining+asked)
	return true, nil
}

// deductFitting deducts for those members that fit into the units that were read. If the stock has fallen
// but suffices for these, the others still do not fit. If it has risen, one of them might: then the statement writes
// nothing, and stock.ErrChanged makes the batch start anew.
func deductFitting(ctx context.Context, conn *conn, b *batching.Batch, read readStock) error {
	left := batching.Allot(b.Undecided, read.Units)
	asked := read.Units - left
	keyed := conn.store.rowsOfBatchStatement(b.Undecided, left)
	query, args := read.only(keyed, deductSQL+" AND stock <= ?", []any{asked, b.GoodsID, asked, read.Units})
	remaining, err := conn.execAndRecord(ctx, keyed, query, args...)
	switch {
	case errors.Is(err, errNoMatch):
		return fmt.Errorf("%w: item %d", stock.ErrChanged, b.GoodsID)
	case err != nil:
		return err
	}
	batching.Allot(b.Undecided, remaining+asked)
	return nil
}

// rowsOfBatch is what the ledger records of members that were granted or refused.
func (s Store) rowsOfBatch(members []*batching.Member) (rows []ledgerRow) {
	for _, m := range members {
		if m.Key == "" {
			continue
		}
		row := s.deductionRow(m.Request)
		if !row.refuse(m.Err) {
			row.done(m.Count, m.Remaining)
		}
		rows = append(rows, row)
	}
	return rows
}

// rowsOfBatchStatement is rowsOfBatch for a statement that tells by LAST_INSERT_ID what it leaves, if the members were
// told what remains as if it left the given units.
func (s Store) rowsOfBatchStatement(members []*batching.Member, left int64) []ledgerRow {
	rows := s.rowsOfBatch(members)
	for i := range rows {
		rows[i].Remaining -= left
		rows[i].left = s.left(rows[i].GoodsID)
	}
	return rows
}

// recordRefusals records that members were refused. The rows are those of the members with keys.
func recordRefusals(ctx context.Context, conn *conn, members []*batching.Member, rows []ledgerRow) error {
	err := conn.record(ctx, rows)
	if err == nil || conn.mayRetry(err) {
		return err
	}
	refuseUnrecorded(members, err)
	return nil
}

// refuseUnrecorded tells refused members with keys that it is unknown whether that was recorded.
func refuseUnrecorded(members []*batching.Member, cause error) {
	for _, m := range members {
		if m.Key != "" {
			m.Refuse(stock.Unrecorded(m.Err, cause))
		}
	}
}
