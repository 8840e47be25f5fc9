package stock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/stream_sell.lua
	streamSellLua string

	streamSellScript = redis.NewScript(streamSellLua)
)

// redisStream sells in Redis and writes to MySQL behind the buyer's back: the pattern of flash sales. The script that deducts
// also puts the sale into the goods' stream; see writeBehind for what becomes of it.
//
// A sale is as durable as Redis until it is in MySQL: with appendfsync always, one that was confirmed is never lost.
type redisStream struct {
	redisStore
	behind *writeBehind
}

func newRedisStream(d Deps, _ Store) (Deducter, error) {
	return redisStream{redisStore{d.Redis}, startWriteBehind(d)}, nil
}

// Close ends the writing to MySQL. What is left in the streams waits for another replica, or for the next start.
func (r redisStream) Close() error { return r.behind.Close() }

func (r redisStream) Deduct(ctx context.Context, req Request) (Receipt, error) {
	section := arrive()
	if err := r.behind.meet(ctx, req.GoodsID); err != nil {
		return Receipt{}, err
	}
	section.enter()
	if err := req.pause(ctx, BeforeWrite); err != nil {
		return Receipt{}, interrupted(err)
	}
	if err := req.work(ctx); err != nil {
		return Receipt{}, interrupted(err)
	}
	if ctx.Err() != nil {
		return Receipt{}, interrupted(context.Cause(ctx))
	}
	// It runs apart from ctx, as redisStore.write does.
	keys := []string{redisKey(req.GoodsID), epochKey(req.GoodsID), streamKey(req.GoodsID)}
	reply, err := streamSellScript.Run(context.WithoutCancel(ctx), r.client, keys, req.Count, rand.Int64()).Int64Slice()
	if errors.Is(err, redis.Nil) {
		return Receipt{}, fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, req.GoodsID)
	}
	if err := redisWritten(err); err != nil {
		if errors.Is(err, ErrUnknown) {
			r.behind.ring(req.GoodsID) // it may have been sold
		}
		return Receipt{}, err
	}
	sold, units := reply[0] == 1, reply[1]
	if !sold {
		return Receipt{}, &SoldOutError{req.GoodsID, req.Count, units}
	}
	r.behind.ring(req.GoodsID)
	section.leave()
	if req.Hold == 0 && req.Pause == nil {
		section.entered = section.left // it lay inside the script
	}
	return section.receipt(units, 1), nil
}
