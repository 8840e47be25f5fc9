package stock

import (
	"context"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

const (
	// pruneBatch bounds what one transaction locks: orders, each with all of its lines, or sales.
	pruneBatch = 1000
	// pruneTries is how often a prune meets rows that are locked, with none deleted in between, before it gives up.
	pruneTries = 10
)

// PruneLedger forgets the orders that are older than age, and returns how many rows of the ledger it deleted, also beside
// an error. An order that is sent again with a key that was forgotten is a new order: the age must exceed the time for
// which clients try again. Deductions go on meanwhile.
func PruneLedger(ctx context.Context, db *sqlx.DB, age time.Duration) (deleted int64, err error) {
	return prune(ctx, func() (int, int64, error) { return pruneOrders(ctx, db, age) })
}

// prune goes on until fewer than pruneBatch were found to delete. Rows that others have locked are tried again: the service
// goes on meanwhile.
func prune(ctx context.Context, once func() (found int, rows int64, err error)) (deleted int64, err error) {
	for refused := 0; ; {
		found, rows, err := once()
		deleted += rows
		switch {
		case mysqlNotNow(err) && refused < pruneTries:
			refused++
			if err := backOff(ctx, refused); err != nil {
				return deleted, err
			}
		case err != nil || found < pruneBatch:
			return deleted, err
		default:
			refused = 0
		}
	}
}

// pruneOrders deletes orders whole: a replay must not find some of its lines. An order is as old as its first line.
func pruneOrders(ctx context.Context, db *sqlx.DB, age time.Duration) (orders int, rows int64, err error) {
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
