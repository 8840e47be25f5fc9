// Package retention deletes what the tables of MySQL no longer need, while the service goes on: the answers to
// requests, and reservations that have ended.
package retention

import (
	"context"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/retry"
	"stock/internal/stock/share"
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
	return oldRequests.pruneAll(ctx, db, age, "done", "sold-out", "cancelled")
}

// PruneReservations deletes the reservations that have ended and that expired more than age ago, with their
// keys, and returns how many it deleted, even if it fails. Units that are held are never touched.
func PruneReservations(ctx context.Context, db *sqlx.DB, age time.Duration) (deleted int64, err error) {
	return oldReservations.pruneAll(ctx, db, age, stock.Confirmed, stock.Cancelled, stock.Expired)
}

// oldRows finds old rows of a kind by a key, the oldest first, and deletes all rows with some keys. So a request is
// deleted with all of its lines, and a replay never finds only some; it is as old as its first line.
type oldRows struct {
	find   string
	delete []string // run in order; the number of rows is that of the last
}

// olderThan selects rows that are older than a number of microseconds.
const olderThan = "created_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"

// The indexes are named because a scan of a short table would wait for requests in progress.
var (
	oldRequests = oldRows{
		"SELECT order_key FROM ledger FORCE INDEX (ledger_outcome) WHERE outcome = ? AND " + olderThan +
			" AND line = 0 ORDER BY created_at",
		[]string{"DELETE ledger FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN "},
	}
	oldReservations = oldRows{
		"SELECT id FROM reservation FORCE INDEX (reservation_state) WHERE state = ? " +
			"AND expires_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY expires_at",
		[]string{
			"DELETE ledger FROM reservation FORCE INDEX (PRIMARY) STRAIGHT_JOIN ledger FORCE INDEX (PRIMARY) " +
				"ON ledger.order_key = reservation.order_key AND line = 0 AND ledger.reservation = id WHERE id IN ",
			"DELETE reservation FROM reservation FORCE INDEX (PRIMARY) WHERE id IN ",
		},
	}
)

func (o oldRows) pruneAll(
	ctx context.Context, db *sqlx.DB, age time.Duration, kinds ...any,
) (deleted int64, err error) {
	for _, kind := range kinds {
		rows, err := Prune(ctx, db, func(tx mysql.Tx) (mysql.Changed, error) { return o.prune(ctx, tx, "", kind, age) })
		deleted += rows
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// prune deletes what has up to PruneLimit keys. It fails with ErrBusy if one of the rows is locked for long, or at all
// with NOWAIT. Its locks keep another pruning from deleting the same rows first: a key that was used again meanwhile
// would then be deleted here.
func (o oldRows) prune(
	ctx context.Context, tx mysql.Tx, nowait string, kind any, age time.Duration,
) (deleted mysql.Changed, err error) {
	var keys []any
	err = tx.SelectContext(ctx, &keys, o.find+" LIMIT ? FOR UPDATE"+nowait, kind, age.Microseconds(), PruneLimit)
	if err != nil || len(keys) == 0 {
		return mysql.Changed{}, err
	}
	for _, statement := range o.delete {
		deleted, err = tx.ExecContext(ctx, statement+"(?"+strings.Repeat(", ?", len(keys)-1)+")", keys...)
		if err != nil {
			return mysql.Changed{}, err
		}
	}
	return deleted, nil
}

// pruneOnce returns how many rows a transaction deletes. It is at READ COMMITTED, since locked gaps would keep new rows
// out.
func pruneOnce(
	ctx context.Context, store mysql.Store, work func(mysql.Tx) (mysql.Changed, error),
) (rows int64, err error) {
	err = store.InTx(ctx, []int64{share.Upkeep}, mysql.ReadCommitted, func(tx mysql.Tx) error {
		deleted, err := work(tx)
		rows = deleted.Rows
		return err
	})
	if err != nil {
		return 0, err
	}
	return rows, nil
}

// Prune runs transactions, each of which deletes up to PruneLimit things, until one deletes fewer rows. It returns the
// number of deleted rows. If rows are locked, it tries again: the service goes on meanwhile.
func Prune(ctx context.Context, db *sqlx.DB, work func(mysql.Tx) (mysql.Changed, error)) (deleted int64, err error) {
	for refused := 0; ; {
		rows, err := pruneOnce(ctx, mysql.Store{DB: db}, work)
		deleted += rows
		switch {
		case mysql.IsBusy(err) && refused < pruneTries:
			refused++
			if err := retry.BackOff(ctx, refused); err != nil {
				return deleted, err
			}
		case err != nil || rows < PruneLimit:
			return deleted, err
		default:
			refused = 0
		}
	}
}
