package mysql

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"stock/internal/stock"
)

const (
	// expiryBatch bounds what one expiring transaction locks.
	expiryBatch = 500
	// expiryInterval is the longest pause between two searches for expired answers.
	expiryInterval = 10 * time.Second
)

// Expiry deletes what would otherwise pile up: refusals and tombstones in the ledger, and reservations that sold
// nothing, each some time after it ended. An answer must only outlive copies of its request that are still under way,
// and clients that try again; after that, its key is new. Answers "done" stay until PruneLedger, also those that were
// cancelled since, and confirmed reservations until PruneReservations.
//
// All replicas delete, a batch at a time. No batch waits for a row: one with a locked row is left for the next search.
// Only a request that is sent again just then waits for a batch. A replica rests after each batch for as long as it
// took, so that it keeps a connection busy for half of the time at most.
type Expiry struct {
	store Store
	ages  Ages
	log   *slog.Logger
	stop  context.CancelFunc
	done  chan struct{}
}

// Ages say how old something is when it is deleted.
type Ages struct{ Refusals, Cancellations, Reservations time.Duration }

// Expire begins to delete what is older than ages say.
func Expire(d stock.Deps, ages Ages) *Expiry {
	ctx, stop := context.WithCancel(context.Background())
	e := &Expiry{store: New(d), ages: ages, log: d.Log, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.run(ctx)
	}()
	return e
}

// Close stops deleting. A transaction under way is rolled back.
func (e *Expiry) Close() error {
	e.stop()
	<-e.done
	return nil
}

// run searches from time to time until ctx ends. It logs the first of several failures.
func (e *Expiry) run(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		err := errors.Join(
			e.deleteExpired(ctx, ledgerSoldOut, e.ages.Refusals), e.deleteExpired(ctx, ledgerBuyerLimit, e.ages.Refusals),
			e.deleteExpired(ctx, ledgerCancelled, e.ages.Cancellations),
			e.deleteReservations(ctx, stock.Cancelled, e.ages.Reservations),
			e.deleteReservations(ctx, stock.Expired, e.ages.Reservations), e.deleteReservations(ctx, refused, e.ages.Refusals),
		)
		if err != nil && !failed && ctx.Err() == nil {
			e.log.Warn("old refusals, cancellations or reservations are not deleted: trying again", "error", err)
		}
		failed = err != nil
		rest(ctx, min(e.ages.Refusals, e.ages.Cancellations, e.ages.Reservations, expiryInterval))
	}
}

// deleteExpired deletes the answers of one kind that are older than age, the oldest first.
func (e *Expiry) deleteExpired(ctx context.Context, outcome ledgerOutcome, age time.Duration) error {
	after := "created_at >= ?"
	from := "1970-01-01"
	for {
		began := time.Now()
		var batch []expired
		err := e.store.use(ctx, []int64{Upkeep}, func(conn *conn) error {
			return Refusal(conn.SelectContext(ctx, &batch, `SELECT order_key, CAST(created_at AS CHAR) AS created
				FROM ledger FORCE INDEX (ledger_outcome) WHERE outcome = ? AND `+after+` AND `+olderThan+`
				ORDER BY created_at LIMIT ?`, outcome, from, age.Microseconds(), expiryBatch))
		})
		if err != nil || len(batch) == 0 {
			return err
		}
		from, after = batch[len(batch)-1].Created, "created_at >= ?"
		switch err := e.deleteBatch(ctx, outcome, age, batch); {
		case errors.Is(err, stock.ErrBusy):
			after = "created_at > ?" // skip this batch until the next search
		case err != nil:
			return err
		}
		rest(ctx, time.Since(began))
	}
}

// deleteReservations deletes the reservations of one state that ended more than age ago, the oldest first.
func (e *Expiry) deleteReservations(ctx context.Context, state stock.ReservationState, age time.Duration) error {
	for {
		began := time.Now()
		found, _, err := pruneReservations(ctx, e.store, state, age)
		if errors.Is(err, stock.ErrBusy) {
			return nil // until the next search
		}
		if err != nil || found < PruneLimit {
			return err
		}
		rest(ctx, time.Since(began))
	}
}

// expired is the key of an old answer, and its time.
type expired struct {
	Key     []byte `db:"order_key"`
	Created string
}

// deleteBatch deletes a batch, or nothing and fails with ErrBusy if one of its rows is locked. A key that another
// replica has deleted is kept if it was used again meanwhile.
//
// It finds rows by the whole primary key, so that it locks no other row. Such an answer has line 0 only.
func (e *Expiry) deleteBatch(
	ctx context.Context, outcome ledgerOutcome, age time.Duration, batch []expired,
) error {
	args := make([]any, len(batch), len(batch)+2)
	for i, row := range batch {
		args[i] = row.Key
	}
	args = append(args, outcome, age.Microseconds())
	// At READ COMMITTED, since locked gaps would keep new requests out. NOWAIT, because TiDB has no SKIP LOCKED.
	return e.store.InTx(ctx, []int64{Upkeep}, ReadCommitted, func(tx Tx) error {
		var keys []any
		err := tx.SelectContext(ctx, &keys, "SELECT order_key FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN "+
			list(len(batch))+" AND line = 0 AND outcome = ? AND "+olderThan+" FOR UPDATE NOWAIT", args...)
		if err != nil || len(keys) == 0 {
			return Refusal(err)
		}
		_, err = tx.ExecContext(ctx, "DELETE ledger FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN "+
			list(len(keys))+" AND line = 0", keys...)
		return Refusal(err)
	})
}

// list is a list of n parameters of a statement.
func list(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// rest sleeps until ctx ends or the time has passed.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
