package mysql

import (
	"context"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// PruneBuyers forgets buyers whose last sale of an item is older than age, and returns how many rows it deleted, even
// if it fails. A buyer who is forgotten may buy up to the limit again: the age must exceed the time for which an item
// is on sale. Sales go on meanwhile.
func PruneBuyers(ctx context.Context, db *sqlx.DB, age time.Duration) (deleted int64, err error) {
	return Prune(ctx, func() (int, int64, error) { return pruneBuyers(ctx, db, age) })
}

// pruneBuyers waits for no row, since a sale may lock those of several buyers in another order.
func pruneBuyers(ctx context.Context, db *sqlx.DB, age time.Duration) (found int, rows int64, err error) {
	err = Store{DB: db}.InTx(ctx, []int64{Upkeep}, ReadCommitted, func(tx Tx) error {
		var old []struct {
			GoodsID int64 `db:"goods_id"`
			Buyer   []byte
		}
		err := tx.SelectContext(ctx, &old, `SELECT goods_id, buyer FROM buyer_units FORCE INDEX (buyer_units_created_at)
			WHERE `+olderThan+` ORDER BY created_at LIMIT ? FOR UPDATE NOWAIT`, age.Microseconds(), PruneLimit)
		if err != nil || len(old) == 0 {
			return Refusal(err)
		}
		args := make([]any, 0, 2*len(old))
		for _, row := range old {
			args = append(args, row.GoodsID, row.Buyer)
		}
		result, err := tx.ExecContext(ctx, "DELETE buyer_units FROM buyer_units FORCE INDEX (PRIMARY) "+
			"WHERE (goods_id, buyer) IN ((?, ?)"+strings.Repeat(", (?, ?)", len(old)-1)+")", args...)
		if err != nil {
			return Refusal(err)
		}
		found = len(old)
		rows, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return found, rows, nil
}
