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

// script checks and deducts in one Lua script, which Redis runs as one step. It is as durable as Redis is: sales that
// the append-only file has not flushed are lost with the server, and their units are sold again.
//
// The requests for one item that wait in a replica while a call is under way share the next one, as in batch: at the
// speed of Redis, a sale costs little more than its round trip.
//
// A script cannot wait without stopping the whole server. So the work is done before it, and excludes nobody.
type script struct {
	batching.Queue
	Store
}

// NewScript makes the strategy `redis-script`.
func NewScript(d stock.Deps) stock.Deducter {
	s := &script{Store: Store{d.Redis}}
	s.Run = s.run
	return s
}

func (s *script) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	section := stock.Arrive()
	section.Enter()
	if err := stock.Work(ctx, req.Hold); err != nil {
		return stock.Receipt{}, err
	}
	if err := req.Pause.At(ctx, stock.BeforeWrite); err != nil {
		return stock.Receipt{}, err
	}
	receipt, err := s.Queue.Deduct(ctx, req)
	if req.Hold > 0 && err == nil {
		section.Leave()
		receipt = section.Receipt(receipt.Remaining, 1)
	}
	return receipt, err
}

// run decides on a batch.
func (s *script) run(ctx context.Context, batch *batching.Batch) {
	batch.Close()
	batch.DropCancelled(0)
	members := batch.Undecided
	if len(members) == 0 {
		return
	}
	counts := make([]any, len(members))
	for i, m := range members {
		counts[i] = m.Count
	}
	ctx = context.WithoutCancel(ctx)
	reply, err := deductScript.Run(ctx, s.Client, []string{Key(batch.GoodsID)}, counts...).Int64Slice()
	if err := ClassifyItemWrite(batch.GoodsID, err); err != nil {
		batch.RefuseUndecided(err)
		return
	}
	for i, m := range members {
		granted, units := reply[2*i] == 1, reply[2*i+1]
		if granted {
			m.Grant(units)
		} else {
			m.Refuse(&stock.SoldOutError{GoodsID: m.GoodsID, Asked: m.Count, Remaining: units})
		}
	}
	batch.Confirm(1)
}
