package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/batching"
	"stock/internal/stock/retry"
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
// Nor does one that waits less than the others (stock.LimitWait), because a batch waits for the row as long as it may.
// Such a request is a transaction by itself, as with update.
type batch struct {
	batching.Queue
	store Store
	alone stock.Deducter // for requests that do not join a batch
	// try decides on a batch in one transaction. An error is the outcome of all undecided members.
	try func(ctx context.Context, conn *conn, b *batching.Batch) error
}

// batchWithOrders is a batch of a strategy that takes orders, too.
type batchWithOrders struct {
	*batch
	orders stock.Orderer
}

// NewBatch makes the strategy `batch`.
func NewBatch(d stock.Deps) stock.Deducter {
	alone := update{New(d)}
	return batchWithOrders{newBatch(d, alone, tryBatch), alone}
}

func newBatch(
	d stock.Deps, alone stock.Deducter, try func(context.Context, *conn, *batching.Batch) error,
) *batch {
	s := &batch{store: New(d), alone: alone, try: try}
	s.Run = s.run
	return s
}

func (s *batch) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	limit, limited := stock.WaitLimit(ctx)
	if limited && limit < s.store.wait || req.Hold > 0 {
		return s.alone.Deduct(ctx, req)
	}
	return s.Queue.Deduct(ctx, req)
}

// Order does not join a batch: while it waited in one item's queue, it would keep the rows of earlier items locked.
// If the order has no work to do, its critical section is the time of the reply, as that of a batch is.
func (s batchWithOrders) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	section := stock.Arrive()
	receipt, err := s.orders.Order(ctx, req)
	if err == nil && !receipt.Replayed && req.Hold == 0 {
		section.Enter()
		receipt.Receipt = section.Receipt(0, 1)
	}
	return receipt, err
}

// run waits for a connection and decides on a batch.
func (s *batch) run(ctx context.Context, b *batching.Batch) {
	conn, err := s.store.take(ctx, []int64{b.GoodsID})
	if err != nil {
		if !errors.Is(err, stock.ErrBusy) { // the server's fault: the others would fare no better than the leader
			b.Close()
		}
		b.RefuseAll(err)
		return
	}
	defer func() { conn.giveBack(ctx, err) }()
	b.Close() // only now: until here, requests that arrive can still join
	err = s.decide(context.WithoutCancel(ctx), conn, b)
}

// decide decides on a batch, and again if the server rolled it back because of a conflict. A locked row delays no
// member beyond the end of its request: members whose time is up are refused, and the others try again.
func (s *batch) decide(ctx context.Context, conn *conn, b *batching.Batch) error {
	started := time.Now()
	for attempt := 1; ; attempt++ {
		err := Refusal(conn.limitRowWait(ctx, conn, b.DropCancelled(minTimeLeft)))
		if err == nil {
			err = s.try(ctx, conn, b)
		}
		if err == nil {
			b.Confirm(attempt)
			return nil
		}
		if !conn.mayRetry(err) || time.Since(started) > s.store.wait {
			b.RefuseUndecided(err)
			return err
		}
		_ = retry.BackOff(ctx, attempt) // ctx never ends
	}
}

// tryBatch needs one statement if there is enough for all, as there is until the item runs out, and a second one, to
// read the stock, if there is too little for any. Otherwise a third one takes what fits.
//
// Each statement commits by itself. A transaction that read the stock under the row's lock would block the item for as
// long as the replica is stopped in between.
func tryBatch(ctx context.Context, conn *conn, b *batching.Batch) error {
	units, decided, err := deductTogether(ctx, conn, b.GoodsID, b.Undecided, classifyWrite)
	if err != nil || decided {
		return err
	}
	return deductFitting(ctx, conn, b, units)
}

// deductFitting deducts for those members that fit into the units that were read. If there are fewer units by now, but
// enough for these members, all others still fit no better; if there are more, one of them might. The statement then
// writes nothing, and errOvertaken makes the batch start anew.
func deductFitting(ctx context.Context, conn *conn, b *batching.Batch, read int64) error {
	asked := read - batching.Allot(b.Undecided, read)
	result, err := conn.ExecContext(ctx, deductSQL+" AND stock <= ?", asked, b.GoodsID, asked, read)
	if err != nil {
		return classifyWrite(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 0 {
		return fmt.Errorf("%w: item %d: %w", stock.ErrBusy, b.GoodsID, errOvertaken)
	}
	remaining, err := result.LastInsertId()
	batching.Allot(b.Undecided, remaining+asked)
	return err
}

// errOvertaken reports that the stock was changed after it was read. Nothing was written.
var errOvertaken = errors.New("others changed the stock meanwhile")

// deductTogether grants a whole batch in one statement; classify classifies the statement's error. If the stock does
// not cover the whole batch, it writes nothing, and returns the units that it has read. It then reports decided only if
// they cover no request at all.
func deductTogether(
	ctx context.Context, in session, goodsID int64, members []*batching.Member, classify func(error) error,
) (units int64, decided bool, err error) {
	if len(members) == 0 {
		return 0, true, nil
	}
	asked := batching.Total(members)
	result, err := in.ExecContext(ctx, deductSQL, asked, goodsID, asked)
	if err != nil {
		return 0, false, classify(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return 0, false, err
	}
	if rows == 1 {
		remaining, err := result.LastInsertId()
		batching.Allot(members, remaining+asked)
		return remaining, true, err
	}
	if err := in.GetContext(ctx, &units, selectSQL, goodsID); err != nil {
		return 0, false, classifyRead(goodsID, err)
	}
	return units, batching.Allot(members, units) == units, nil
}
