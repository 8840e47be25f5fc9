package stock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
)

// clocksApart is more than the clocks of Redis and MySQL ever differ.
const clocksApart = time.Hour

// PruneStream forgets the sales of redis-stream that were written to MySQL longer than age ago, and returns how many rows of
// stream_sale it deleted, also beside an error. Those of entries that may still be in a stream are kept: they would be
// deducted again; hence Redis must answer. The age must exceed that of any copy of its data that Redis may be brought back
// from. A replica that holds an entry, or was suspended with it, does not write it when that was long ago: see writeBehind.deduct.
// Sales that were not deducted are kept, too: Reconcile asks for them. Sales go on meanwhile.
//
// Goods whose stream is empty leave the index, until they are sold again.
func (s *Service) PruneStream(ctx context.Context, age time.Duration) (deleted int64, err error) {
	goods, err := s.GoodsToReconcile(ctx)
	if err != nil {
		return 0, err
	}
	in := streams{s.deps.Redis}
	lengths, oldest, err := in.lengths(ctx, goods)
	if err != nil {
		return 0, fmt.Errorf("find the oldest sale that is not in MySQL: %w", redisUnwritten(err))
	}
	maps.DeleteFunc(lengths, func(_, entries int64) bool { return entries > 0 })
	if err := in.unlist(ctx, slices.Collect(maps.Keys(lengths))); err != nil {
		return 0, fmt.Errorf("take the goods without sales out of the index: %w", redisWritten(err))
	}
	if oldest.IsZero() {
		oldest = time.Now()
	}
	return prune(ctx, func() (int, int64, error) {
		return pruneSales(ctx, s.deps.MySQL, age, oldest.Add(-clocksApart-longestHold))
	})
}

func pruneSales(ctx context.Context, db *sqlx.DB, age time.Duration, before time.Time) (found int, rows int64, err error) {
	tx, err := db.BeginTxx(ctx, readCommitted) // locked gaps would keep new sales out
	if err != nil {
		return 0, 0, unsent(err)
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(ctx, `DELETE FROM stream_sale WHERE deducted AND written < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND written < ?
		ORDER BY written LIMIT ?`, age.Microseconds(), before.UTC().Format("2006-01-02 15:04:05.000000"), pruneBatch)
	if err != nil {
		return 0, 0, refusal(err)
	}
	if rows, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	if err := committed(tx.Commit()); err != nil {
		return 0, 0, err
	}
	return int(rows), rows, nil
}
