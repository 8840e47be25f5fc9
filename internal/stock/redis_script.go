package stock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/deduct.lua
	deductLua string

	deductScript = redis.NewScript(deductLua)
)

// redisScript asks and deducts in one script, which Redis runs as one step. It is as durable as Redis is: what the append-only
// file has not flushed is lost with the server, and what it sold meanwhile is sold again.
//
// A script cannot wait without stopping the whole server: the work is done before it, and excludes nobody.
type redisScript struct{ redisStore }

func newRedisScript(d Deps, _ Store) (Deducter, error) { return redisScript{redisStore{d.Redis}}, nil }

func (s redisScript) Deduct(ctx context.Context, req Request) (Receipt, error) {
	section := arrive()
	section.enter()
	if err := req.work(ctx); err != nil {
		return Receipt{}, interrupted(err)
	}
	if err := req.pause(ctx, BeforeWrite); err != nil {
		return Receipt{}, interrupted(err)
	}
	// The script runs apart from ctx once it is sent, as redisStore.write does.
	if err := ctx.Err(); err != nil {
		return Receipt{}, interrupted(context.Cause(ctx))
	}
	reply, err := deductScript.Run(context.WithoutCancel(ctx), s.client, []string{redisKey(req.GoodsID)}, req.Count).Int64Slice()
	switch {
	case errors.Is(err, redis.Nil):
		return Receipt{}, fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, req.GoodsID)
	case err != nil:
		return Receipt{}, redisWritten(err)
	case reply[0] == 0:
		return Receipt{}, &SoldOutError{req.GoodsID, req.Count, reply[1]}
	}
	section.leave()
	if req.Hold <= 0 {
		section.entered = section.left // it lay inside the script
	}
	return section.receipt(reply[1], 1), nil
}
