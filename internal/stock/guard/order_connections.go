package guard

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/semaphore"

	"stock/internal/locks"
	"stock/internal/stock"
)

// OrderConnections bounds what orders take out of the pool for MySQL's named locks, which keep a connection for each
// item. Two orders could each keep connections that the other waits for. So an order reserves a connection for each of
// its items, all at once, before it takes its first lock. An order of one item counts as a deduction here: it takes no
// turn and reserves nothing.
//
// Every wait ends:
//
//   - An order waits for its turn with each item in ascending order, and has neither connections nor locks yet. It
//     waits only for an order that has its turn already, and that one goes on.
//   - Reservations are granted in the order of arrival, so that a large order is not overtaken for ever.
//   - An order that has its reservation can always get its connections: orders never use more than they reserved. A
//     deduction may use some of them, but one that holds its lock needs no further connection, and one that waits for a
//     lock returns its connection every second (locks.MySQLGetLock).
//   - One connection is never reserved, so every deduction gets one in the end.
//   - An order takes its locks by ascending key and waits only for greater keys, so no two orders wait for each other.
//
// Because of the turns, only one order of a replica at a time waits for the lock of an item, and others that include
// the item wait without connections. An order may have at most half as many items as connections can be reserved. So an
// order that waits for a locked item keeps at most that half.
type OrderConnections struct {
	turns    locks.Mutex // by item, whatever the strategy
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

// reserve waits until an order may take the locks of its items. Its connections are reserved until release is called.
// An order of one item is locked like a deduction and reserves nothing.
func (c *OrderConnections) reserve(ctx context.Context, items []int64) (release func(), err error) {
	if c == nil || len(items) == 1 {
		return func() {}, nil
	}
	keys := make([]string, len(items))
	for i, id := range items {
		keys[i] = strconv.FormatInt(id, 10)
	}
	turns, err := locks.LockAll(ctx, &c.turns, keys...)
	if err != nil {
		return nil, err
	}
	count := int64(len(items))
	if err := c.acquire(ctx, count); err != nil {
		_ = turns.Unlock() // a Mutex always unlocks
		return nil, err
	}
	return func() {
		c.free.Release(count)
		_ = turns.Unlock()
	}, nil
}

// acquire reserves connections. An order that is tried once does not wait for them.
func (c *OrderConnections) acquire(ctx context.Context, count int64) error {
	if !stock.TriesOnce(ctx) {
		return c.free.Acquire(ctx, count)
	}
	if !c.free.TryAcquire(count) {
		return fmt.Errorf("%w: too few connections for named locks are free", stock.ErrBusy)
	}
	return nil
}
