package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/retry"
)

// watch is optimistic locking in Redis: EXEC does nothing if a watched key was written to since WATCH.
type watch struct {
	Store
	retries *retry.Retries
}

// NewWatch makes the strategy `redis-watch`.
func NewWatch(d stock.Deps) stock.Deducter {
	return watch{New(d), &retry.Retries{Wait: d.LockWait}}
}

func (w watch) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return w.retries.Deduct(ctx, req, func(section *stock.Section) (stock.Receipt, error) {
		return w.try(ctx, req, section)
	})
}

// try does not end its commands with ctx: a connection that was given up before UNWATCH would go back to the pool still
// watching, and make the next transaction on it fail. The client's timeouts bound them.
func (w watch) try(
	ctx context.Context, req stock.Request, section *stock.Section,
) (receipt stock.Receipt, err error) {
	if ctx.Err() != nil {
		return stock.Receipt{}, stock.Interrupted(context.Cause(ctx))
	}
	// A Cluster client that is told MOVED and may not follow returns nil without having called the function.
	err = fmt.Errorf("%w: Redis: item %d is moving to another server", stock.ErrUnavailable, req.GoodsID)
	ran := false
	watched := w.Client.Watch(context.WithoutCancel(ctx), func(tx *redis.Tx) error {
		ran = true
		receipt, err = w.inTx(ctx, tx, req, section)
		return err
	}, w.Key(req.GoodsID))
	if !ran && watched != nil {
		err = Refusal(watched)
	}
	return receipt, err
}

// inTx reads, decides, and writes with EXEC.
func (w watch) inTx(
	ctx context.Context, tx *redis.Tx, req stock.Request, section *stock.Section,
) (stock.Receipt, error) {
	unending, key := context.WithoutCancel(ctx), w.Key(req.GoodsID)
	units, err := tx.Get(unending, key).Int64()
	if err != nil {
		return stock.Receipt{}, classifyItemRead(req.GoodsID, err)
	}
	section.Enter()
	remaining, err := req.Decide(ctx, units)
	if err != nil {
		return stock.Receipt{}, err
	}
	section.Leave()
	_, err = tx.TxPipelined(unending, func(queue redis.Pipeliner) error {
		return queue.Set(unending, key, remaining, 0).Err()
	})
	if errors.Is(err, redis.TxFailedErr) {
		return stock.Receipt{}, retry.ErrConflict
	}
	return section.Receipt(remaining, 1), ClassifyItemWrite(req.GoodsID, err)
}
