package stream

import (
	"context"
	"fmt"
	"time"

	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
	"stock/internal/stock/retention"
)

// clockSkew is more than the clocks of Redis and MySQL ever differ.
const clockSkew = time.Hour

// Prune deletes the sales of redis-stream that were written to MySQL longer than age ago, and returns how many rows of
// stream_sale it deleted, even if it fails. Sales go on meanwhile.
//
// It keeps sales whose entries may still be in a stream, since these would be deducted again; so Redis must answer. The
// age must exceed that of any copy of Redis's data from which it may be restored. A replica that holds an entry, or was
// suspended with it, does not write it after that long: see writeBehind.deduct. It also keeps sales that were not
// deducted, which Reconcile needs.
func (a Admin) Prune(ctx context.Context, age time.Duration) (deleted int64, err error) {
	ids, err := a.Items(ctx)
	if err != nil {
		return 0, err
	}
	found, err := a.streams().inspect(ctx, ids)
	if err != nil {
		return 0, fmt.Errorf("find the oldest sale that is not in MySQL: %w", redis.Refusal(err))
	}
	_, oldest := total(found)
	if oldest.IsZero() {
		oldest = time.Now()
	}
	before := oldest.Add(-clockSkew - maxEntryAge)
	return retention.Prune(ctx, a.MySQL, func(tx mysql.Tx) (mysql.Changed, error) {
		return tx.ExecContext(ctx, `DELETE FROM stream_sale
			WHERE deducted AND written < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND written < ?
			ORDER BY written LIMIT ?`,
			age.Microseconds(), before.UTC().Format("2006-01-02 15:04:05.000000"), retention.PruneLimit)
	})
}
