package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// batch is group commit by the client: the requests of one goods that wait in a replica while a commit is under way go
// together in the next transaction (DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD
// 1984). No timer collects them. A request that comes alone is the same one round trip as with update; the slower the
// server, the more requests share its next commit.
//
// As many are granted as fit, in the order of arrival: one that asks for too much does not stand in the way of a smaller
// one behind it.
//
// A request with work to do inside the critical section does not join. Its work would keep all others of its batch from
// their answers, or theirs keep it from its own: it is a transaction by itself, as with update.
type batch struct {
	alone update
	queue batchQueue
	wait  time.Duration
}

func newBatch(d Deps, _ Store) (Deducter, error) {
	b := &batch{alone: update{mysqlStore{d.MySQL}}, wait: d.LockWait}
	b.queue.db, b.queue.settle = d.MySQL, b.settle
	return b, nil
}

func (b *batch) Deduct(ctx context.Context, req Request) (Receipt, error) {
	if req.Hold > 0 || req.Pause != nil {
		return b.alone.Deduct(ctx, req)
	}
	return b.queue.deduct(ctx, req)
}

// settle decides on a batch, and again where the server has undone it for the sake of another transaction.
func (b *batch) settle(ctx context.Context, conn *sqlx.Conn, goodsID int64, orders []*order) {
	started := time.Now()
	for attempt := 1; len(orders) > 0; attempt++ {
		err := b.try(ctx, conn, goodsID, orders)
		if err == nil {
			conclude(orders, attempt)
			return
		}
		if !undone(err) || time.Since(started) > b.wait {
			refuse(orders, err)
			return
		}
		_ = backOff(ctx, attempt) // ctx has no end
		orders = current(orders)
	}
}

// try is one statement where the stock suffices for all.
func (b *batch) try(ctx context.Context, conn *sqlx.Conn, goodsID int64, orders []*order) error {
	var asked int64
	for _, o := range orders {
		asked += int64(o.count)
	}
	result, err := conn.ExecContext(ctx, deductSQL, asked, goodsID, asked)
	if err != nil {
		return written(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 1 {
		remaining, err := result.LastInsertId()
		if err == nil {
			allot(orders, remaining+asked)
		}
		return err
	}
	// Too few for all, or no such goods. Where there are too few for any of them, there is nothing to write.
	var units int64
	if err := conn.GetContext(ctx, &units, selectSQL, goodsID); err != nil {
		return unwritten(goodsID, err)
	}
	if allot(orders, units) == units {
		return nil
	}
	return b.choose(ctx, conn, goodsID, orders)
}

// choose grants some of a batch under the row's lock, so that the units that it decides by are those that there are.
func (b *batch) choose(ctx context.Context, conn *sqlx.Conn, goodsID int64, orders []*order) error {
	tx, err := conn.BeginTxx(ctx, nil)
	if err != nil {
		return refusal(err)
	}
	defer tx.Rollback()
	var units int64
	if err := tx.GetContext(ctx, &units, selectSQL+" FOR UPDATE", goodsID); err != nil {
		return unwritten(goodsID, err)
	}
	if err := (mysqlTx{tx}).write(ctx, goodsID, allot(orders, units)); err != nil {
		return err
	}
	return committed(tx.Commit())
}

// undone says that the server has rolled back a transaction that it would take now: two stood in each other's way. Of a
// row that stays locked (1205) there is nothing to hope, after all the time that the server has waited for it.
func undone(err error) bool {
	var server *mysql.MySQLError
	return !errors.Is(err, ErrUnknown) && errors.As(err, &server) && (server.Number == erLockDeadlock || server.Number == erCheckread)
}

// allot gives out units in the order of arrival, to whoever asks for no more than are left, and returns those left.
func allot(orders []*order, units int64) int64 {
	for _, o := range orders {
		if int64(o.count) > units {
			o.err = &SoldOutError{o.goodsID, o.count, units}
			continue
		}
		units -= int64(o.count)
		o.receipt.Remaining, o.err = units, nil
	}
	return units
}

// conclude makes the receipts of those who were granted. Their critical sections are one: the time of the reply is all
// that a client can say of it.
func conclude(orders []*order, attempts int) {
	now := monotonic.now()
	for _, o := range orders {
		if o.err == nil {
			o.section.entered, o.section.left = now, now
			o.receipt = o.section.receipt(o.receipt.Remaining, attempts)
		}
	}
}

// refuse gives every request of a batch the same error.
func refuse(orders []*order, err error) {
	for _, o := range orders {
		o.err = err
	}
}

// current leaves out the requests that ended before they were sent, and answers them.
func current(orders []*order) []*order {
	kept := make([]*order, 0, len(orders))
	for _, o := range orders {
		if o.ctx.Err() != nil {
			o.err = interrupted(context.Cause(o.ctx))
			continue
		}
		kept = append(kept, o)
	}
	return kept
}

var errBroken = fmt.Errorf("%w: whoever carried out the batch panicked", ErrUnknown)
