// Package stream sells in Redis and writes to MySQL asynchronously, the usual pattern for flash sales: the strategy
// redis-stream, and what it takes to operate it (reconcile, prune, backlog).
package stream

import (
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"

	goredis "github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/redis"
)

var (
	//go:embed lua/sell.lua
	sellLua    string
	sellScript = goredis.NewScript(sellLua)
)

// redisStream deducts in Redis with a script that also adds the sale to the item's stream. See writeBehind for the way
// from there to MySQL.
//
// Until a sale is in MySQL, it is as durable as Redis: with appendfsync always, no confirmed sale is lost.
type redisStream struct {
	redis.Store
	behind *writeBehind
}

// New makes the strategy `redis-stream`. It is an io.Closer.
func New(d stock.Deps) stock.Deducter {
	return redisStream{redis.Store{Client: d.Redis}, startWriteBehind(d)}
}

// Close stops writing to MySQL. Another replica, or the next start, writes what is left in the streams.
func (r redisStream) Close() error { return r.behind.Close() }

func (r redisStream) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	section := stock.Arrive()
	section.Enter()
	if err := req.Pause.At(ctx, stock.BeforeWrite); err != nil {
		return stock.Receipt{}, err
	}
	if err := stock.Work(ctx, req.Hold); err != nil {
		return stock.Receipt{}, err
	}
	if ctx.Err() != nil {
		return stock.Receipt{}, stock.Interrupted(context.Cause(ctx))
	}
	sold, units, err := r.sell(ctx, req)
	if err != nil {
		return stock.Receipt{}, err
	}
	if !sold {
		return stock.Receipt{}, &stock.SoldOutError{GoodsID: req.GoodsID, Asked: req.Count, Remaining: units}
	}
	if req.Hold > 0 || req.Pause != nil {
		section.Leave()
	} else {
		section.Enter() // the section lies inside the script
	}
	return section.Receipt(units, 1), nil
}

// sell runs the script, which does not end with ctx: see redis.Store.
func (r redisStream) sell(ctx context.Context, req stock.Request) (sold bool, units int64, err error) {
	keys := []string{redis.Key(req.GoodsID), redis.EpochKey(req.GoodsID), redis.StreamKey(req.GoodsID)}
	script, err := redis.WithStream(ctx, r.Client, req.GoodsID, func() *goredis.Cmd {
		return sellScript.Run(context.WithoutCancel(ctx), r.Client, keys, req.Count, rand.Int64())
	})
	if err != nil {
		return false, 0, err
	}
	reply, err := script.Int64Slice()
	if err := redis.ClassifyItemWrite(req.GoodsID, err); err != nil {
		if errors.Is(err, stock.ErrUnknown) {
			r.behind.notify(req.GoodsID) // it may have been sold
		}
		return false, 0, err
	}
	if sold = reply[0] == 1; sold {
		r.behind.notify(req.GoodsID)
	}
	return sold, reply[1], nil
}
