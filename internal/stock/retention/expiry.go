package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"stock/internal/monotonic"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
)

// expiryInterval is the longest pause between two searches for expired answers.
const expiryInterval = 10 * time.Second

// expiry deletes what would otherwise pile up: refusals and tombstones in the ledger, and reservations that sold
// nothing, each some time after it ended. An answer must only outlive copies of its request that are still under way,
// and clients that try again; after that, its key is new. Answers "done" stay until PruneLedger, also those that were
// cancelled since, and confirmed reservations until PruneReservations.
//
// All replicas delete, a batch at a time. If a row that a search finds is locked, its kind waits for the next search.
// Only a request that is sent again just then waits for a batch. A replica rests after each batch for as long as it
// took, so that it keeps a connection busy for half of the time at most.
type expiry struct {
	store mysql.Store
	ages  Ages
	log   *slog.Logger
}

// Ages say how old something is when it is deleted.
type Ages struct{ Refusals, Cancellations, Reservations time.Duration }

// Expire begins to delete what is older than ages say.
func Expire(d stock.Deps, ages Ages) stock.Background {
	return stock.InBackground(expiry{mysql.New(d), ages, d.Log}.run)
}

// run searches from time to time until ctx ends. It logs a failure only if the search before succeeded.
func (e expiry) run(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		err := errors.Join(
			e.delete(ctx, oldRequests, e.ages.Refusals, "sold-out"),
			e.delete(ctx, oldRequests, e.ages.Cancellations, "cancelled"),
			e.delete(ctx, oldReservations, e.ages.Reservations, stock.Cancelled, stock.Expired),
		)
		if err != nil && !failed && ctx.Err() == nil {
			e.log.Warn("old refusals, cancellations or reservations are not deleted: trying again", "error", err)
		}
		failed = err != nil
		_ = monotonic.Sleep(ctx, min(e.ages.Refusals, e.ages.Cancellations, e.ages.Reservations, expiryInterval))
	}
}

// delete deletes rows of some kinds that are older than age, the oldest first.
func (e expiry) delete(ctx context.Context, old oldRows, age time.Duration, kinds ...any) error {
	for _, kind := range kinds {
		for rows := int64(PruneLimit); rows >= PruneLimit; {
			began := time.Now()
			var err error
			rows, err = pruneOnce(ctx, e.store, func(tx mysql.Tx) (mysql.Changed, error) {
				return old.prune(ctx, tx, " NOWAIT", kind, age) // TiDB has no SKIP LOCKED
			})
			if err != nil && !errors.Is(err, stock.ErrBusy) {
				return err
			}
			_ = monotonic.Sleep(ctx, time.Since(began))
		}
	}
	return nil
}
