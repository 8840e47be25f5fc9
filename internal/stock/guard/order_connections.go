package guard

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/semaphore"

	"stock/internal/stock"
)

// OrderConnections bounds what orders take out of the pool for MySQL's named locks, which keep a connection for each
// item. Two orders could each keep connections that the other waits for. So an order reserves a connection for each of
// its items, all at once, before it takes its first lock. An order of one item counts as a deduction here: it reserves
// nothing.
//
// Every wait ends:
//
//   - An order that waits for its reservation has neither connections nor locks yet. Reservations are granted in the
//     order of arrival, so that a large order is not overtaken for ever.
//   - An order that has its reservation can always get its connections: orders never use more than they reserved. A
//     deduction may use some of them, but one that holds its lock needs no further connection, and one that waits for a
//     lock returns its connection every second (locks.MySQLGetLock).
//   - One connection is never reserved, so every deduction gets one in the end.
//   - An order takes its locks by ascending key and waits only for greater keys, so no two orders wait for each other.
//
// An order may have at most half as many items as connections can be reserved.
type OrderConnections struct {
	free     *semaphore.Weighted
	maxItems int // of an order
}

// NewOrderConnections makes the limit for a pool, or nil if there is no pool or it has no limit.
func NewOrderConnections(pool *sqlx.DB) *OrderConnections {
	if pool == nil || pool.Stats().MaxOpenConnections == 0 {
		return nil
	}
	most := pool.Stats().MaxOpenConnections - 1
	return &OrderConnections{free: semaphore.NewWeighted(int64(most)), maxItems: max(1, most/2)}
}

// reserve waits until an order may take the locks of its items, except if it is tried once. Its connections are
// reserved until release is called.
func (c *OrderConnections) reserve(ctx context.Context, items int) (release func(), err error) {
	if c == nil || items == 1 {
		return func() {}, nil
	}
	count := int64(items)
	if stock.TriesOnce(ctx) {
		if !c.free.TryAcquire(count) {
			return nil, fmt.Errorf("%w: too few connections for named locks are free", stock.ErrBusy)
		}
	} else if err := c.free.Acquire(ctx, count); err != nil {
		return nil, err
	}
	return func() { c.free.Release(count) }, nil
}
