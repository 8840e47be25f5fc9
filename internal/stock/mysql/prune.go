package mysql

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
	"stock/internal/stock/retry"
)

const (
	// PruneLimit bounds what one pruning transaction locks: requests with all of their lines, or sales. From 1000 values
	// on, MariaDB turns a list into a subquery (in_predicate_conversion_threshold), and a statement that deletes by it
	// scans and locks the whole table.
	PruneLimit = 500
	// pruneTries is how often pruning meets locked rows, with none deleted in between, before it gives up.
	pruneTries = 10
)

// PruneLedger deletes the requests that are older than age, with their keys, and returns how many rows it deleted,
// even if it fails. A request that is sent again with a deleted key is a new request: the age must exceed the time
// for which clients try again. Deductions go on meanwhile.
func PruneLedger(ctx context.Context, db *sqlx.DB, age time.Duration) (deleted int64, err error) {
	for _, outcome := range ledgerOutcomes {
		rows, err := Prune(ctx, func() (int, int64, error) { return pruneRequests(ctx, db, outcome, age) })
		deleted += rows
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// PruneReservations deletes the reservations that have ended and whose time has passed longer than age ago, with their
// keys, and returns how many it deleted, even if it fails. Units that are held are never touched.
func PruneReservations(ctx context.Context, db *sqlx.DB, age time.Duration) (deleted int64, err error) {
	for _, state := range stock.EndStates {
		rows, err := Prune(ctx, func() (int, int64, error) { return pruneReservations(ctx, Store{DB: db}, state, age) })
		deleted += rows
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// pruneReservations deletes up to PruneLimit reservations, or none and fails with ErrBusy if one of them is locked.
func pruneReservations(
	ctx context.Context, store Store, state stock.ReservationState, age time.Duration,
) (found int, rows int64, err error) {
	// At READ COMMITTED, since locked gaps would keep new reservations out.
	err = store.InTx(ctx, []int64{Upkeep}, ReadCommitted, func(tx Tx) error {
		var ids []any
		err := tx.SelectContext(ctx, &ids, "SELECT id FROM reservation FORCE INDEX (reservation_state) WHERE state = ? "+
			"AND expires_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY expires_at LIMIT ? FOR UPDATE NOWAIT",
			state, age.Microseconds(), PruneLimit)
		if err != nil || len(ids) == 0 {
			return Refusal(err)
		}
		result, err := tx.ExecContext(ctx, "DELETE reservation FROM reservation "+byID+list(len(ids)), ids...)
		if err != nil {
			return Refusal(err)
		}
		found = len(ids)
		rows, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return found, rows, nil
}

// Prune calls once until it finds fewer than PruneLimit things to delete, and returns the number of deleted rows. If
// rows are locked, it tries again: the service goes on meanwhile.
func Prune(ctx context.Context, once func() (found int, rows int64, err error)) (deleted int64, err error) {
	for refused := 0; ; {
		found, rows, err := once()
		deleted += rows
		switch {
		case IsBusy(err) && refused < pruneTries:
			refused++
			if err := retry.BackOff(ctx, refused); err != nil {
				return deleted, err
			}
		case err != nil || found < PruneLimit:
			return deleted, err
		default:
			refused = 0
		}
	}
}

// olderThan selects rows that are older than a number of microseconds.
const olderThan = "created_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"

// pruneRequests deletes requests with all of their lines, so that a replay never finds only some. A request is as old
// as its first line.
func pruneRequests(
	ctx context.Context, db *sqlx.DB, outcome ledgerOutcome, age time.Duration,
) (found int, rows int64, err error) {
	// At READ COMMITTED, since locked gaps would keep new requests out.
	err = Store{DB: db}.InTx(ctx, []int64{Upkeep}, ReadCommitted, func(tx Tx) error {
		var keys []any
		// The locks keep another pruning from deleting the same requests first: a key that was used again meanwhile
		// would then be deleted here.
		err := tx.SelectContext(ctx, &keys, `SELECT order_key FROM ledger FORCE INDEX (ledger_outcome)
			WHERE outcome = ? AND `+olderThan+` AND line = 0
			ORDER BY created_at LIMIT ? FOR UPDATE`, outcome, age.Microseconds(), PruneLimit)
		if err != nil || len(keys) == 0 {
			return Refusal(err)
		}
		// The index is named because a scan of a short table would wait for requests in progress.
		result, err := tx.ExecContext(ctx, "DELETE ledger FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN "+
			list(len(keys)), keys...)
		if err != nil {
			return Refusal(err)
		}
		found = len(keys)
		rows, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return found, rows, nil
}
