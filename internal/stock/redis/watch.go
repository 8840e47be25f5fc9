package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

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
	return w.Once(ctx, req, func() (stock.Receipt, error) {
		return w.retries.Deduct(ctx, req, func(section *stock.Section) (stock.Receipt, error) {
			return w.try(ctx, req, section)
		})
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
	}, w.watched(req)...)
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
	seen, err := w.read(unending, tx, req)
	if err != nil {
		return stock.Receipt{}, classifyItemRead(req.GoodsID, err)
	}
	if seen.record != "" {
		return stock.Receipt{}, &takenError{seen.record}
	}
	section.Enter()
	remaining, err := req.Decide(ctx, seen.units)
	if err != nil {
		return stock.Receipt{}, err
	}
	section.Leave()
	_, err = tx.TxPipelined(unending, func(queue redis.Pipeliner) error {
		if req.Key != "" {
			record := recordText(req, remaining) + " " + cmp.Or(seen.epoch, "0")
			queue.Set(unending, w.RecordKey(req.GoodsID, req.Key), record, w.saleTTL)
		}
		return queue.Set(unending, key, remaining, 0).Err()
	})
	if errors.Is(err, redis.TxFailedErr) {
		return stock.Receipt{}, retry.ErrConflict
	}
	return section.Receipt(remaining, 1), ClassifyItemWrite(req.GoodsID, err)
}

// watched lists the keys that must not change before EXEC.
func (w watch) watched(req stock.Request) []string {
	keys := []string{w.Key(req.GoodsID)}
	if req.Key != "" {
		keys = append(keys, w.RecordKey(req.GoodsID, req.Key))
	}
	return keys
}

// seen is what a request with a key reads; without a key, it needs only the units.
type seen struct {
	units  int64
	record string // empty if the key is new
	epoch  string
}

// read reads the stock of a watched item. It fails with redis.Nil if there is none.
func (w watch) read(ctx context.Context, tx *redis.Tx, req stock.Request) (s seen, err error) {
	if req.Key == "" {
		s.units, err = tx.Get(ctx, w.Key(req.GoodsID)).Int64()
		return s, err
	}
	values, err := tx.MGet(ctx, append(w.watched(req), w.EpochKey(req.GoodsID))...).Result()
	if err != nil {
		return s, err
	}
	units, ok := values[0].(string)
	if !ok {
		return s, redis.Nil
	}
	s.record, _ = values[1].(string)
	s.epoch, _ = values[2].(string)
	s.units, err = strconv.ParseInt(units, 10, 64)
	return s, err
}
