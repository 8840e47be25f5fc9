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
	sellScript = redis.NewSaleScript(sellLua)
)

// redisStream deducts in Redis with a script that also adds what it has sold to the item's stream. See writeBehind for
// the way from there to MySQL.
//
// The requests that share a call of the script share an entry in the stream, too. So the busier an item is, the less an
// entry and its way to MySQL cost for each sale.
//
// Until a sale is in MySQL, it is as durable as Redis: with appendfsync always, a crash loses no confirmed sale,
// but a failover may.
type redisStream struct {
	*redis.Script
	behind *writeBehind
}

// New makes the strategy `redis-stream`. It is an io.Closer.
func New(d stock.Deps) stock.Deducter {
	behind := startWriteBehind(d)
	return redisStream{redis.NewBatched(d, seller{redis.New(d), behind}.sell), behind}
}

// Close stops writing to MySQL. Another replica, or the next start, writes what is left in the streams.
func (r redisStream) Close() error { return r.behind.Close() }

// CancelSale implements stock.Canceller. MySQL gets the units through the stream, in an entry of its own.
func (r redisStream) CancelSale(ctx context.Context, req stock.CancelRequest) (stock.Sale, error) {
	sale, err := r.Script.CancelSale(ctx, req)
	if !sale.Replayed {
		for _, line := range sale.Lines {
			r.behind.notify(line.GoodsID)
		}
	}
	return sale, err
}

// seller sells with the script sell.lua, and tells writeBehind.
type seller struct {
	redis.Store
	behind *writeBehind
}

// sell implements redis.Sell.
func (s seller) sell(ctx context.Context, goodsID int64, wanted func() redis.Wanted) (reply []any, err error) {
	script, err := s.WithStream(ctx, goodsID, func() *goredis.Cmd {
		w, keys := wanted(), []string{s.Key(goodsID), s.EpochKey(goodsID), s.StreamKey(goodsID)}
		return sellScript.Run(ctx, s.Client, append(keys, w.Records...), append([]any{rand.Int64()}, w.Args...)...)
	})
	if err != nil {
		return nil, err
	}
	reply, err = script.Slice()
	err = redis.ClassifyItemWrite(goodsID, err)
	if errors.Is(err, stock.ErrUnknown) || hasSold(reply) {
		s.behind.notify(goodsID)
	}
	return reply, err
}

// hasSold reports whether sell.lua has sold anything.
func hasSold(reply []any) bool {
	for i := 0; i < len(reply); i += 2 {
		if reply[i] == int64(1) {
			return true
		}
	}
	return false
}
