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
	most  int // goods of an order, each of which keeps a connection to MySQL for its lock; 0 where there is no such limit
}

func (g guardedOrders) Order(ctx context.Context, req OrderRequest) (receipt OrderReceipt, err error) {
	if g.most > 0 && len(req.lines) > g.most {
		return OrderReceipt{}, fmt.Errorf("strategy %s %w of %d goods: its lock keeps a connection for each, and may have %d",
			g.name, ErrNoOrders, len(req.lines), g.most)
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
	leases, err := locks.LockAll(ctx, turn{g.guarded, steps, cancel}, keys...)
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

// turn is a lock that an order waits for as long as a deduction would, and that it can be stopped after.
type turn struct {
	guarded
	steps  Request
	cancel context.CancelCauseFunc // of the whole order
}

// Lock implements locks.Locker.
func (t turn) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	limit := time.AfterFunc(t.wait, func() { t.cancel(errWaited) })
	lease, err := t.locker.Lock(ctx, key)
	limit.Stop()
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
