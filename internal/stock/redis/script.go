package redis

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/batching"
)

var (
	//go:embed lua/deduct.lua
	deductLua    string
	deductScript = redis.NewScript(deductLua)
)

// Script checks and deducts in one Lua script, which Redis runs as one step.
//
// The requests for one item that wait in a replica while a call is under way share the next one, as in batch: at the
// speed of Redis, a sale costs little more than its round trip.
//
// A script cannot wait without stopping the whole server. So the work is done before it, and excludes nobody.
type Script struct {
	batching.Queue
	Store
	sell Sell
}

// Sell runs a script that replies as deduct.lua does. It calls wanted right before it sends the script, for the units
// that each request wants: requests that have ended by then are refused. Its error is the outcome of all others.
type Sell func(ctx context.Context, goodsID int64, wanted func() []any) (reply []int64, err error)

// NewScript makes the strategy `redis-script`. It is as durable as Redis is: sales that the append-only file has not
// flushed are lost with the server, and their units are sold again.
func NewScript(d stock.Deps) stock.Deducter {
	s := New(d)
	return NewBatched(d, func(ctx context.Context, goodsID int64, wanted func() []any) ([]int64, error) {
		reply, err := deductScript.Run(ctx, s.Client, []string{s.Key(goodsID)}, wanted()...).Int64Slice()
		return reply, ClassifyItemWrite(goodsID, err)
	})
}

// NewBatched makes a strategy of a script.
func NewBatched(d stock.Deps, sell Sell) *Script {
	s := &Script{Store: New(d), sell: sell}
	s.Run = s.run
	return s
}

// Deduct implements stock.Deducter.
func (s *Script) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	section := stock.Arrive()
	section.Enter()
	if err := stock.Work(ctx, req.Hold); err != nil {
		return stock.Receipt{}, err
	}
	receipt, err := s.Queue.Deduct(ctx, req)
	if req.Hold > 0 && err == nil {
		section.Leave()
		receipt = section.Receipt(receipt.Remaining, 1)
	}
	return receipt, err
}

// run decides on a batch. The script does not end with ctx: see Store.
func (s *Script) run(ctx context.Context, batch *batching.Batch) {
	batch.Close()
	if batch.Abandoned() {
		batch.DropCancelled(0)
		return
	}
	reply, err := s.sell(context.WithoutCancel(ctx), batch.GoodsID, func() []any {
		batch.DropCancelled(0)
		counts := make([]any, len(batch.Undecided))
		for i, m := range batch.Undecided {
			counts[i] = m.Count
		}
		return counts
	})
	if err != nil {
		batch.RefuseUndecided(err)
		return
	}
	for i, m := range batch.Undecided {
		granted, units := reply[2*i] == 1, reply[2*i+1]
		if granted {
			m.Grant(units)
		} else {
			m.Refuse(&stock.SoldOutError{GoodsID: m.GoodsID, Asked: m.Count, Remaining: units})
		}
	}
	batch.Confirm(1)
}
