package stock

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
)

// guardedOrders is a guarded strategy that also takes orders: read all, check all and write all, under the locks of all.
// The locks order the readers; what keeps a crash from leaving half an order is that the store writes all at once.
type guardedOrders struct {
	guarded
	whole lockableStore
	// connections is nil but for locks that keep connections to MySQL.
	connections *lockConnections
}

// lockConnections bounds what orders take out of the pool for named locks, of which each goods keeps a connection. Two orders
// could each keep what the other waits for: so one order at a time collects, whatever its strategy, and leaves one over.
//
// Then every wait ends. Of the connections, some are kept by holders of all that they need, who end; the others go round but
// for those of the order that collects, since whoever waits for a lock gives his back every second (locks.MySQLGetLock). With
// one left, whoever needs one gets it. Who waits for a goods' lock, in any replica, waits for such a holder, for one who gets a
// connection, or for an order that waits for a goods behind this one in the common order: there is no circle.
type lockConnections struct {
	collecting locks.Mutex
	most       int // goods of an order
}

// lockConnections is nil where a pool is not limited.
func (d Deps) lockConnections() *lockConnections {
	if d.MySQLLocks == nil || d.MySQLLocks.Stats().MaxOpenConnections == 0 {
		return nil
	}
	return &lockConnections{most: max(1, d.MySQLLocks.Stats().MaxOpenConnections-1)}
}

func (g guardedOrders) Order(ctx context.Context, req OrderRequest) (receipt OrderReceipt, err error) {
	if c := g.connections; c != nil && len(req.lines) > c.most {
		return OrderReceipt{}, fmt.Errorf("strategy %s %w of %d goods: its lock keeps a connection for each, and may have %d",
			g.name, ErrNoOrders, len(req.lines), c.most)
	}
	section := arrive()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	goods := make([]int64, len(req.lines))
	keys := make([]string, len(req.lines))
	for i, line := range req.lines {
		goods[i], keys[i] = line.GoodsID, g.key(line.GoodsID)
	}
	steps := req.steps()
	leases, err := g.lockAll(ctx, turn{g.guarded, steps, cancel}, keys)
	if err != nil {
		return OrderReceipt{}, ungranted(ctx, err)
	}
	section.enter()
	defer func() { g.giveBack(leases.Lease, goods, err) }()

	ctx = leases.Context()
	levels, err := req.read(func(line Line) (level, error) {
		in, own := g.store, claim{token: leases.ByKey[g.key(line.GoodsID)].Token()}
		if g.fence != nil {
			in, own.issuer = g.fence(own.token, line.Count), g.name
		}
		units, err := in.read(ctx, line.GoodsID)
		if err != nil {
			return level{}, line.refused(err)
		}
		return level{line.GoodsID, units, own}, nil
	})
	if err != nil {
		return OrderReceipt{}, err
	}
	writeAll := func(ctx context.Context, levels []level) error { return g.whole.writeAll(ctx, steps, levels) }
	return req.write(ctx, levels, writeAll, section)
}

// lockAll takes the locks of an order, when it may collect connections for them. One goods is locked as by a deduction.
func (g guardedOrders) lockAll(ctx context.Context, t turn, keys []string) (locks.Leases, error) {
	if g.connections != nil && len(keys) > 1 {
		collecting, err := t.await(ctx, &g.connections.collecting, "connections")
		if err != nil {
			return locks.Leases{}, err
		}
		defer collecting.Unlock()
	}
	return locks.LockAll(ctx, t, keys...)
}

// turn is a lock that an order waits for as long as a deduction would, and that it can be stopped after.
type turn struct {
	guarded
	steps  Request
	cancel context.CancelCauseFunc // of the whole order
}

// Lock implements locks.Locker.
func (t turn) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	lease, err := t.await(ctx, t.locker, key)
	if err != nil {
		return nil, err
	}
	if err := t.steps.pause(lease.Context(), AfterLock); err != nil {
		t.cancel(err)
		_ = lease.Unlock() // the pause is what ends the order
		return nil, err
	}
	return lease, nil
}

// await ends the order where a lock is not granted in time.
func (t turn) await(ctx context.Context, locker locks.Locker, key string) (*locks.Lease, error) {
	limit := time.AfterFunc(t.wait, func() { t.cancel(errWaited) })
	defer limit.Stop()
	return locker.Lock(ctx, key)
}

// atomic is false in a Cluster: no command reaches goods of different slots.
func (s redisStore) atomic() bool {
	_, spread := s.client.(*redis.ClusterClient)
	return !spread
}

var (
	//go:embed lua/write_all.lua
	writeAllLua string

	writeAllScript = redis.NewScript(writeAllLua)
)

// writeAll runs apart from ctx once it begins, as redisStore.write does.
func (s redisStore) writeAll(ctx context.Context, _ Request, levels []level) error {
	if err := ctx.Err(); err != nil {
		return interrupted(context.Cause(ctx))
	}
	keys := make([]string, 0, 2*len(levels))
	args := make([]any, 1, 1+2*len(levels))
	args[0] = levels[0].claim.issuer
	for _, l := range levels {
		keys = append(keys, redisKey(l.goodsID), fenceKey(l.goodsID))
		args = append(args, l.units, l.claim.token)
	}
	err := writeAllScript.Run(context.WithoutCancel(ctx), s.client, keys, args...).Err()

	var at int
	var last claim
	switch {
	case redis.HasErrorPrefix(err, "UNKNOWN"):
		_, _ = fmt.Sscanf(err.Error(), "UNKNOWN %d", &at)
		err = fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, levels[at].goodsID)
	case redis.HasErrorPrefix(err, "FENCED"):
		_, _ = fmt.Sscanf(err.Error(), "FENCED %d %d %s", &at, &last.token, &last.issuer)
		err = levels[at].claim.refused(levels[at].goodsID, last)
	default:
		return redisWritten(err)
	}
	return &LineError{levels[at].goodsID, err}
}
