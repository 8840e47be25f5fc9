package stock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// redisWatch is optimistic locking in Redis: EXEC does nothing if a watched key was written to since WATCH.
type redisWatch struct {
	redisStore
	retries *retries
}

func newRedisWatch(d Deps, _ Store) (Deducter, error) {
	return redisWatch{redisStore{d.Redis}, &retries{wait: d.LockWait}}, nil
}

func (s redisWatch) Deduct(ctx context.Context, req Request) (Receipt, error) {
	return s.retries.deduct(ctx, req, func(section *section) (Receipt, error) { return s.try(ctx, req, section) })
}

// try runs its commands apart from ctx; the client's timeouts bound them. A connection that was given up before UNWATCH would
// go back to the pool still watching, and fail the next transaction of somebody else.
func (s redisWatch) try(ctx context.Context, req Request, section *section) (receipt Receipt, err error) {
	if err := ctx.Err(); err != nil {
		return Receipt{}, interrupted(context.Cause(ctx))
	}
	// A Cluster's client that is told MOVED, and may not follow, returns nil without having called the function.
	err = fmt.Errorf("%w: Redis: the goods is moving to another server", ErrUnavailable)
	ran := false
	unwatched := s.client.Watch(context.WithoutCancel(ctx), func(tx *redis.Tx) error {
		ran = true
		receipt, err = s.inTx(ctx, tx, req, section)
		return err
	}, redisKey(req.GoodsID))
	if !ran && unwatched != nil {
		err = redisUnwritten(unwatched)
	}
	return receipt, err
}

// inTx reads, and writes with EXEC.
func (s redisWatch) inTx(ctx context.Context, tx *redis.Tx, req Request, section *section) (Receipt, error) {
	apart, key := context.WithoutCancel(ctx), redisKey(req.GoodsID)
	units, err := tx.Get(apart, key).Int64()
	if errors.Is(err, redis.Nil) {
		return Receipt{}, fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, req.GoodsID)
	}
	if err != nil {
		return Receipt{}, redisUnwritten(err)
	}
	section.enter()
	if err := req.pause(ctx, AfterRead); err != nil {
		return Receipt{}, interrupted(err)
	}
	if units < int64(req.Count) {
		return Receipt{}, &SoldOutError{req.GoodsID, req.Count, units}
	}
	if err := req.work(ctx); err != nil {
		return Receipt{}, interrupted(err)
	}
	if err := req.pause(ctx, BeforeWrite); err != nil {
		return Receipt{}, interrupted(err)
	}
	section.leave()
	units -= int64(req.Count)
	_, err = tx.TxPipelined(apart, func(queue redis.Pipeliner) error { return queue.Set(apart, key, units, 0).Err() })
	if errors.Is(err, redis.TxFailedErr) {
		return Receipt{}, errLost
	}
	return section.receipt(units, 1), redisWritten(err)
}
