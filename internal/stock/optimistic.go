package stock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// optimisticVersion is optimistic locking: read the row's version, and write only if it is still the same.
type optimisticVersion struct {
	mysqlStore
	wait time.Duration
}

func newOptimisticVersion(d Deps, _ Store) (Deducter, error) {
	return optimisticVersion{mysqlStore{d.MySQL}, d.LockWait}, nil
}

func (o optimisticVersion) Deduct(ctx context.Context, req Request) (Receipt, error) {
	section := arrive()
	for attempt := 1; ; attempt++ {
		remaining, won, err := o.try(ctx, req, &section)
		if err != nil {
			return Receipt{}, err
		}
		if won {
			return section.receipt(remaining, attempt), nil
		}
		if time.Duration(monotonic.now()-section.asked) > o.wait {
			return Receipt{}, fmt.Errorf("%w: goods %d changed under each of %d tries", ErrBusy, req.GoodsID, attempt)
		}
		if err := backOff(ctx, attempt); err != nil {
			return Receipt{}, interrupted(err)
		}
	}
}

func (o optimisticVersion) try(ctx context.Context, req Request, section *section) (remaining int64, won bool, err error) {
	var row struct{ Stock, Version int64 }
	err = o.db.GetContext(ctx, &row, "SELECT stock, version FROM good_stock WHERE goods_id = ?", req.GoodsID)
	if err != nil {
		return 0, false, unwritten(req.GoodsID, err)
	}
	section.enter()
	if err := req.pause(ctx, AfterRead); err != nil {
		return 0, false, interrupted(err)
	}
	if row.Stock < int64(req.Count) {
		return 0, false, &SoldOutError{req.GoodsID, req.Count, row.Stock}
	}
	if err := req.work(ctx); err != nil {
		return 0, false, interrupted(err)
	}
	if err := req.pause(ctx, BeforeWrite); err != nil {
		return 0, false, interrupted(err)
	}
	section.leave()
	result, err := o.exec(ctx, "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ? AND version = ?",
		row.Stock-int64(req.Count), req.GoodsID, row.Version)
	if err != nil {
		return 0, false, err
	}
	rows, err := result.RowsAffected()
	return row.Stock - int64(req.Count), rows == 1, err
}

// Backing off: without it, and with many contenders, nearly every try is a round trip for a version that is stale on
// arrival. Full jitter spreads the contenders best: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
const (
	backOffBase = time.Millisecond
	backOffCap  = 64 * time.Millisecond
)

func backOff(ctx context.Context, attempt int) error {
	ceiling := min(backOffBase<<min(attempt, 10), backOffCap)
	timer := time.NewTimer(rand.N(ceiling))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
