package stock

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"
)

// pruneBatch bounds what one transaction of PruneLedger locks: rows.
const pruneBatch = 1000

// PruneLedger forgets the orders that are older than age, and returns how many rows of the ledger it deleted, also beside
// an error. An order that is sent again with a key that was forgotten is a new order: the age must exceed the time for
// which clients try again. Deductions go on meanwhile.
func PruneLedger(ctx context.Context, db *sqlx.DB, age time.Duration) (deleted int64, err error) {
	for {
		rows, err := pruneOnce(ctx, db, age)
		deleted += rows
		if err != nil || rows < pruneBatch {
			return deleted, err
		}
	}
}

func pruneOnce(ctx context.Context, db *sqlx.DB, age time.Duration) (int64, error) {
	tx, err := db.BeginTxx(ctx, readCommitted) // locked gaps would keep new orders out
	if err != nil {
		return 0, unsent(err)
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(ctx, "DELETE FROM ledger WHERE created_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY created_at LIMIT ?",
		age.Microseconds(), pruneBatch)
	if err != nil {
		return 0, refusal(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	return rows, committed(tx.Commit())
}
