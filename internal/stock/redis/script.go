package redis

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/batching"
)

var (
	//go:embed lua/sale.lua
	saleLua string
	//go:embed lua/deduct.lua
	deductLua    string
	deductScript = NewSaleScript(deductLua)
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

// NewSaleScript makes a script that uses sale.lua.
func NewSaleScript(lua string) *redis.Script { return redis.NewScript(saleLua + lua) }

// Wanted is what the requests of a batch want, as sale.lua takes it.
type Wanted struct {
	Records []string // KEYS
	Args    []any
}

// Sell runs a script that replies as sale.lua says. It calls wanted right before it sends the script: requests that
// have ended by then are refused. Its error is the outcome of all others.
type Sell func(ctx context.Context, goodsID int64, wanted func() Wanted) (reply []any, err error)

// NewScript makes the strategy `redis-script`. It is as durable as Redis is: sales that the append-only file has not
// flushed are lost with the server, and their units are sold again.
func NewScript(d stock.Deps) stock.Deducter {
	s := New(d)
	return NewBatched(d, func(ctx context.Context, goodsID int64, wanted func() Wanted) ([]any, error) {
		w, keys := wanted(), []string{s.Key(goodsID)}
		if len(w.Records) > 0 {
			keys = append(append(keys, s.EpochKey(goodsID)), w.Records...)
		}
		reply, err := deductScript.Run(ctx, s.Client, keys, w.Args...).Slice()
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
	if req.Hold > 0 && err == nil && !receipt.Replayed {
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
	reply, err := s.sell(context.WithoutCancel(ctx), batch.GoodsID, func() Wanted {
		batch.DropCancelled(0)
		return s.wanted(batch)
	})
	if err != nil {
		batch.RefuseUndecided(err)
		return
	}
	var fresh []*batching.Member
	for i, m := range batch.Undecided {
		if known, ok := reply[2*i].(string); ok {
			m.Answer(replay(known, m.Request))
			continue
		}
		fresh = append(fresh, m)
		units, _ := reply[2*i+1].(int64)
		if reply[2*i] == int64(1) {
			m.Grant(units)
		} else {
			m.Refuse(&stock.SoldOutError{GoodsID: m.GoodsID, Asked: m.Count, Remaining: units})
		}
	}
	batch.Undecided = fresh
	batch.Confirm(1)
}

// wanted is what the undecided requests of a batch want.
func (s *Script) wanted(batch *batching.Batch) (w Wanted) {
	w.Args = make([]any, len(batch.Undecided))
	for i, m := range batch.Undecided {
		w.Args[i] = m.Count
		if m.Key != "" {
			w.Records = append(w.Records, s.RecordKey(m.GoodsID, m.Key))
		}
	}
	if len(w.Records) == 0 {
		return w
	}
	for i, m := range batch.Undecided {
		if m.Key != "" {
			w.Args = append(w.Args, i+1, fingerprintText(m.Fingerprint(stock.Redis)))
		}
	}
	w.Args = append(w.Args, batch.GoodsID, s.saleTTL.Milliseconds(), s.refusalTTL.Milliseconds())
	return w
}
