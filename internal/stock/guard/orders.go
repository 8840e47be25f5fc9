package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/locks"
	"stock/internal/stock"
)

// guardedOrders is a guarded strategy that also takes orders: it reads, decides on and writes all items under the
// locks of all. The locks prevent reads in between. The store writes all items at once, so that a crash cannot leave
// half an order.
type guardedOrders struct {
	guarded
	whole       stock.Lockable
	connections *OrderConnections // nil unless the locks keep connections to MySQL
}

// OrderConnections bounds what orders take out of the pool for MySQL's named locks, which keep a connection for each
// item. Two orders could each keep what the other waits for. So one order at a time collects connections, whatever its
// strategy, and leaves one connection free.
//
// So every wait ends. A holder that has all its connections finishes. A request that waits for a lock gives its
// connection back every second (locks.MySQLGetLock), so the free connection reaches every request in turn. And an
// order only ever waits for items later in the common order, so no two orders wait for each other.
type OrderConnections struct {
	collecting locks.Mutex
	maxLines   int
}

// NewOrderConnections makes the limit for a pool, or nil if there is no pool or it has no limit.
func NewOrderConnections(pool *sqlx.DB) *OrderConnections {
	if pool == nil || pool.Stats().MaxOpenConnections == 0 {
		return nil
	}
	return &OrderConnections{maxLines: max(1, pool.Stats().MaxOpenConnections-1)}
}

func (g guardedOrders) Order(
	ctx context.Context, req stock.OrderRequest,
) (receipt stock.OrderReceipt, err error) {
	section := stock.Arrive()
	lines := req.Lines()
	if c := g.connections; c != nil && len(lines) > c.maxLines {
		return receipt, fmt.Errorf("strategy %s %w of %d items: its lock keeps a connection for each, and may have %d",
			g.name, stock.ErrNoOrders, len(lines), c.maxLines)
	}
	ids := make([]int64, len(lines))
	keys := make([]string, len(lines))
	for i, line := range lines {
		ids[i], keys[i] = line.GoodsID, g.key(line.GoodsID)
		if err := g.items.check(ctx, line.GoodsID); err != nil {
			return receipt, line.Refused(err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leases, err := g.lockAll(ctx, orderLocker{g.guarded, req.Pause, cancel}, keys)
	if err != nil {
		return receipt, classifyLock(ctx, err)
	}
	section.Enter()
	defer func() { g.unlock(leases.Lease, ids, err) }()

	ctx = leases.Context()
	stocks, err := g.readAll(ctx, req, leases)
	if err != nil {
		return receipt, err
	}
	return req.DecideAndWrite(ctx, stocks, func(ctx context.Context, stocks []stock.ItemStock) error {
		return g.whole.WriteAll(ctx, req.Pause, stocks)
	}, section)
}

// readAll reads the stock of every item, and registers the holder with its fence if there is one.
func (g guardedOrders) readAll(
	ctx context.Context, req stock.OrderRequest, leases locks.Leases,
) ([]stock.ItemStock, error) {
	return req.ReadAll(func(line stock.Line) (stock.ItemStock, error) {
		holder := stock.Holder{Token: leases.ByKey[g.key(line.GoodsID)].Token()}
		if g.fence != nil {
			holder.Issuer = g.name
		}
		units, err := g.as(holder, line.Count).Read(ctx, line.GoodsID)
		if err != nil {
			return stock.ItemStock{}, line.Refused(err)
		}
		return stock.ItemStock{GoodsID: line.GoodsID, Units: units, Holder: holder}, nil
	})
}

// lockAll takes the locks of an order, once it may collect connections for them. An order of one item is locked like a
// deduction.
func (g guardedOrders) lockAll(ctx context.Context, l orderLocker, keys []string) (locks.Leases, error) {
	if g.connections != nil && len(keys) > 1 {
		collecting, err := l.lock(ctx, &g.connections.collecting, "connections")
		if err != nil {
			return locks.Leases{}, err
		}
		defer func() { _ = collecting.Unlock() }() // a Mutex always unlocks
	}
	return locks.LockAll(ctx, l, keys...)
}

// orderLocker takes the locks of one order. It waits for each as long as a deduction would, and pauses after each.
type orderLocker struct {
	guarded
	pause  stock.PauseFunc
	cancel context.CancelCauseFunc // ends the whole order
}

// Lock implements locks.Locker.
func (l orderLocker) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	lease, err := l.lock(ctx, l.locker, key)
	if err != nil {
		return nil, err
	}
	if err := l.pause.At(lease.Context(), stock.AfterLock); err != nil {
		l.cancel(err)
		_ = lease.Unlock() // the error of the pause is the one to return
		return nil, err
	}
	return lease, nil
}

// lock ends the order if a lock is not granted in time.
func (l orderLocker) lock(ctx context.Context, locker locks.Locker, key string) (*locks.Lease, error) {
	limit := time.AfterFunc(l.wait, func() { l.cancel(errWaited) })
	defer limit.Stop()
	return locker.Lock(ctx, key)
}
