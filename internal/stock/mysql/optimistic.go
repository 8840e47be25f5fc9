package mysql

import (
	"context"
	"errors"

	"stock/internal/stock"
	"stock/internal/stock/retry"
)

// optimistic is optimistic locking: read something that every write to the row changes, and write only if it is still
// the same. The strategies differ in what that is; T is its type.
type optimistic[T int64 | string] struct {
	Store
	retry       func(context.Context, stock.Request, retry.Try) (stock.Receipt, error)
	read, write string // SQL
}

func newOptimistic[T int64 | string](d stock.Deps, read, write string) optimistic[T] {
	retries := &retry.Retries{Wait: d.LockWait}
	return optimistic[T]{Store: New(d), retry: retries.Deduct, read: read, write: write}
}

// NewOptimisticVersion makes the strategy `optimistic-version`. Every strategy that writes to the row increments the
// version.
func NewOptimisticVersion(d stock.Deps) stock.Deducter { return newOptimisticVersion(d) }

func newOptimisticVersion(d stock.Deps) optimistic[int64] {
	return newOptimistic[int64](d,
		"SELECT stock, version AS seen FROM good_stock WHERE goods_id = ?",
		"UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ? AND version = ?")
}

// NewOptimisticSpin makes the strategy `optimistic-spin`: `optimistic-version` as most tutorials write it, with a loop
// that tries again at once.
func NewOptimisticSpin(d stock.Deps) stock.Deducter {
	o := newOptimisticVersion(d)
	o.retry = retry.Spin{Wait: d.LockWait}.Deduct
	return o
}

// NewOptimisticTimestamp makes the control `optimistic-timestamp`. All writes within one second leave the same
// timestamp, so the check passes and updates are lost.
func NewOptimisticTimestamp(d stock.Deps) stock.Deducter {
	return newOptimistic[string](d,
		"SELECT stock, CAST(stamp_seconds AS CHAR) AS seen FROM good_stock WHERE goods_id = ?",
		`UPDATE good_stock SET stock = ?, version = version + 1, stamp_seconds = NOW()
		WHERE goods_id = ? AND stamp_seconds = ?`)
}

// NewOptimisticTimestampMicros makes the strategy `optimistic-timestamp-us`. Microseconds make equal timestamps rare
// but not impossible, and clocks are set back: a write must leave a later timestamp than it has read, whatever the
// time is. Other strategies leave the timestamp to ON UPDATE CURRENT_TIMESTAMP(6), as tables made for this purpose
// do. Beside them, two writes that begin in the same microsecond, on two connections, cannot be told apart.
func NewOptimisticTimestampMicros(d stock.Deps) stock.Deducter {
	return newOptimistic[string](d,
		"SELECT stock, CAST(stamp AS CHAR) AS seen FROM good_stock WHERE goods_id = ?",
		`UPDATE good_stock SET stock = ?, version = version + 1, stamp = GREATEST(NOW(6), stamp + INTERVAL 1 MICROSECOND)
		WHERE goods_id = ? AND stamp = ?`)
}

// NewOptimisticStock makes the strategy `optimistic-stock`. The stock is its own version as long as it only falls. Once
// units are put back, the stock may be the one that was read although it has changed meanwhile (ABA). The arithmetic is
// right even then; anything else that was read together with the stock may be out of date.
func NewOptimisticStock(d stock.Deps) stock.Deducter {
	return newOptimistic[int64](d,
		"SELECT stock, stock AS seen FROM good_stock WHERE goods_id = ?",
		"UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ? AND stock = ?")
}

func (o optimistic[T]) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return o.Once(ctx, req, func() (stock.Receipt, error) {
		return o.retry(ctx, req, func(section *stock.Section) (stock.Receipt, error) {
			return o.try(ctx, req, section)
		})
	})
}

func (o optimistic[T]) try(ctx context.Context, req stock.Request, section *stock.Section) (stock.Receipt, error) {
	var row struct {
		Stock int64
		Seen  T
	}
	if err := o.get(ctx, req.GoodsID, &row, o.read, req.GoodsID); err != nil {
		return stock.Receipt{}, err
	}
	section.Enter()
	remaining, err := req.Decide(ctx, row.Stock)
	if err != nil {
		return stock.Receipt{}, err
	}
	section.Leave()
	_, err = o.execAndRecord(ctx, []int64{req.GoodsID}, o.rowsOf(req, remaining),
		o.write, remaining, req.GoodsID, row.Seen)
	switch {
	case errors.Is(err, errNoMatch):
		return stock.Receipt{}, retry.ErrConflict
	case err != nil:
		return stock.Receipt{}, err
	}
	return section.Receipt(remaining, 1), nil
}
