package mysql

import (
	"context"
	"errors"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/batching"
	"stock/internal/stock/retry"
)

// tryFunc decides on a batch. An error is the outcome of all undecided members.
type tryFunc func(ctx context.Context, conn *conn, b *batching.Batch) error

// runner carries out the batches of a queue, each on one connection and in as many tries as conflicts cost.
type runner struct {
	store Store
	try   tryFunc
}

// newQueue makes a queue whose batches try decides.
func newQueue(store Store, try tryFunc) *batching.Queue {
	return &batching.Queue{Run: (&runner{store, try}).run}
}

// run waits for a connection and decides on a batch.
func (r *runner) run(ctx context.Context, b *batching.Batch) {
	conn, err := r.store.take(ctx, []int64{b.GoodsID})
	if err != nil {
		if !errors.Is(err, stock.ErrBusy) { // the server's fault: the others would fare no better than the leader
			b.Close()
		}
		b.RefuseAll(err)
		return
	}
	defer func() { conn.release(ctx, err) }()
	b.Close() // only now: until here, requests that arrive can still join
	err = r.decide(context.WithoutCancel(ctx), conn, b)
}

// decide decides on a batch, and again if the server rolled it back because of a conflict. A locked row delays no
// member beyond the end of its request: members whose time is up are refused, and the others try again.
func (r *runner) decide(ctx context.Context, conn *conn, b *batching.Batch) error {
	started := time.Now()
	for attempt := 1; ; attempt++ {
		err := conn.limitRowWait(ctx, conn.Conn, b.DropCancelled(minTimeLeft))
		if err == nil {
			err = r.try(ctx, conn, b)
		}
		if err == nil {
			b.Confirm(attempt)
			return nil
		}
		if !conn.mayRetry(err) || time.Since(started) > r.store.wait {
			b.RefuseUndecided(err)
			return err
		}
		_ = retry.BackOff(ctx, attempt) // ctx never ends
	}
}
