package stock

import (
	"context"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// pruneBatch bounds what one transaction of PruneLedger locks: orders, each with all of its lines.
const pruneBatch = 1000

// PruneLedger forgets the orders that are older than age, and returns how many rows of the ledger it deleted, also beside
// an error. An order that is sent again with a key that was forgotten is a new order: the age must exceed the time for
// which clients try again. Deductions go on meanwhile.
func PruneLedger(ctx context.Context, db *sqlx.DB, age time.Duration) (deleted int64, err error) {
	for {
		orders, rows, err := pruneOnce(ctx, db, age)
		deleted += rows
		if err != nil || orders < pruneBatch {
			return deleted, err
		}
	}
}

// pruneOnce deletes orders whole: a replay must not find some of its lines. An order is as old as its first line.
func pruneOnce(ctx context.Context, db *sqlx.DB, age time.Duration) (orders int, rows int64, err error) {
	tx, err := db.BeginTxx(ctx, readCommitted) // locked gaps would keep new orders out
	if err != nil {
		return 0, 0, unsent(err)
	}
	defer tx.Rollback()
	var keys [][]byte
	// The locks keep another from forgetting the same orders first: a key that was used again would be deleted here.
	err = tx.SelectContext(ctx, &keys, `SELECT order_key FROM ledger FORCE INDEX (ledger_created_at)
		WHERE created_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND line = 0 ORDER BY created_at LIMIT ? FOR UPDATE`,
		age.Microseconds(), pruneBatch)
	if err != nil {
		return 0, 0, refusal(err)
	}
	if len(keys) == 0 {
		return 0, 0, nil
	}
	args := make([]any, len(keys))
	for i, key := range keys {
		args[i] = key
	}
	// Its index is named: a scan of a short table would wait for orders in progress.
	result, err := tx.ExecContext(ctx, "DELETE ledger FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN (?"+strings.Repeat(", ?", len(args)-1)+")", args...)
	if err != nil {
		return 0, 0, refusal(err)
	}
	if rows, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	if err := committed(tx.Commit()); err != nil {
		return 0, 0, err
	}
	return len(keys), rows, nil
}
