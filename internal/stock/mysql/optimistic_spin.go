package mysql

import (
	"stock/internal/stock"
	"stock/internal/stock/retry"
)

// NewOptimisticSpin makes the strategy `optimistic-spin`: `optimistic-version` as most tutorials write it, with a loop
// that tries again at once.
func NewOptimisticSpin(d stock.Deps) stock.Deducter {
	o := newOptimisticVersion(d)
	o.retry = retry.Spin{Wait: d.LockWait}.Deduct
	return o
}
