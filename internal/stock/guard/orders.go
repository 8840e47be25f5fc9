package guard

import (
	"context"

	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
)

// guardedOrders is a guarded strategy that also takes orders: it reads, decides on and writes all items under the locks
// of all. The locks prevent reads in between. One transaction writes all items, so that a crash cannot leave half an
// order.
type guardedOrders struct {
	guarded
	db mysql.Store
}

func (g guardedOrders) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return g.db.OrderOnce(ctx, req, func() (stock.OrderReceipt, error) { return g.lockAndOrder(ctx, req) })
}

func (g guardedOrders) lockAndOrder(
	ctx context.Context, req stock.OrderRequest,
) (receipt stock.OrderReceipt, err error) {
	section := stock.Arrive()
	lines := req.Lines()
	ids, keys := make([]int64, len(lines)), make([]string, len(lines))
	for i, line := range lines {
		ids[i], keys[i] = line.GoodsID, g.key(line.GoodsID)
		if err := g.items.check(ctx, line.GoodsID); err != nil {
			return receipt, line.Refused(err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leases, err := locks.LockAll(ctx, orderLocker{g.guarded, cancel}, keys...)
	if err != nil {
		return receipt, classifyLock(ctx, err)
	}
	section.Enter()
	defer func() { g.unlock(leases.Lease, ids, err) }()

	ctx = leases.Context()
	for attempt := 1; ; attempt++ {
		stocks, err := g.readAll(ctx, req, leases)
		if err != nil {
			return receipt, err
		}
		receipt, err = req.DecideAndWrite(ctx, stocks, func(ctx context.Context, stocks []stock.ItemStock) error {
			return g.db.WriteAll(ctx, req, stocks)
		}, section)
		if !stock.TryAgain(err, attempt) {
			receipt.Attempts = attempt
			return receipt, err
		}
	}
}

// readAll reads the stock of every item.
func (g guardedOrders) readAll(
	ctx context.Context, req stock.OrderRequest, leases locks.Leases,
) ([]stock.ItemStock, error) {
	return req.ReadAll(func(line stock.Line) (stock.ItemStock, error) {
		holder := g.holder(leases.ByKey[g.key(line.GoodsID)])
		units, err := g.store.Read(ctx, line.GoodsID)
		if err != nil {
			return stock.ItemStock{}, line.Refused(err)
		}
		return stock.ItemStock{GoodsID: line.GoodsID, Units: units, Read: units, Holder: holder}, nil
	})
}

// orderLocker takes the locks of one order. It waits for each as long as a deduction would.
type orderLocker struct {
	guarded
	cancel context.CancelCauseFunc // ends the whole order
}

// Lock implements locks.Locker.
func (l orderLocker) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	limit := l.limit(ctx, l.cancel)
	lease, err := l.locker.Lock(ctx, key)
	limit.Stop()
	return lease, err
}
