package guard

import (
	"context"
	"fmt"

	"stock/internal/locks"
	"stock/internal/stock"
)

// CancelSale implements stock.Canceller. A holder who has read the stock would overwrite what is given back meanwhile,
// so that is done under the locks of the items; but not with a fence, which refuses to overwrite it.
func (g guarded) CancelSale(ctx context.Context, req stock.CancelRequest) (stock.Sale, error) {
	if g.fenced {
		return g.whole.CancelSaleUnder(ctx, req, stock.AtOnce)
	}
	return g.whole.CancelSaleUnder(ctx, req, g.underLocks)
}

// Sale implements stock.Canceller.
func (g guarded) Sale(ctx context.Context, id stock.SaleID) (stock.Sale, error) {
	return g.whole.Sale(ctx, id)
}

// underLocks is a stock.Under. It waits for each lock as long as a deduction would.
func (g guarded) underLocks(ctx context.Context, items []int64, work func(context.Context) error) (err error) {
	if len(items) == 0 {
		return work(ctx)
	}
	if c := g.connections; c != nil && len(items) > c.maxItems {
		return fmt.Errorf("strategy %s %w of %d items, and so cancels none: its lock keeps a connection for each, and it "+
			"may have %d of them; cancel with the strategy that sold", g.name, stock.ErrNoOrders, len(items), c.maxItems)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leases, release, err := g.lockAll(ctx, cancel, items)
	if err != nil {
		return err
	}
	defer release()
	defer func() { g.unlock(leases.Lease, items, err) }()
	return work(leases.Context())
}

// lockAll takes the locks of items, in ascending order. The connections that are reserved for them must be released
// after the locks. cancel ends ctx.
func (g guarded) lockAll(
	ctx context.Context, cancel context.CancelCauseFunc, items []int64,
) (leases locks.Leases, release func(), err error) {
	keys := make([]string, len(items))
	for i, id := range items {
		keys[i] = g.key(id)
	}
	limit := g.limit(ctx, cancel)
	release, err = g.connections.reserve(ctx, len(items))
	limit.Stop()
	if err != nil {
		return leases, nil, classifyLock(ctx, err)
	}
	leases, err = locks.LockAll(ctx, orderLocker{g, cancel}, keys...)
	if err != nil {
		release()
		return leases, nil, classifyLock(ctx, err)
	}
	return leases, release, nil
}
