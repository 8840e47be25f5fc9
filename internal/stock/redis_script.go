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
// The requests of one goods that wait in a replica while a call is under way share the next one, as in batch: at the speed of
// Redis, what a sale costs is its round trip.
//
// A script cannot wait without stopping the whole server: the work is done before it, and excludes nobody.
type redisScript struct {
	redisStore
	queue batchQueue
}

func newRedisScript(d Deps, _ Store) (Deducter, error) {
	s := &redisScript{redisStore: redisStore{d.Redis}}
	s.queue.settle = s.settle
	return s, nil
}

func (s *redisScript) Deduct(ctx context.Context, req Request) (Receipt, error) {
	section := arrive()
	section.enter()
	if err := req.work(ctx); err != nil {
		return Receipt{}, interrupted(err)
	}
	if err := req.pause(ctx, BeforeWrite); err != nil {
		return Receipt{}, interrupted(err)
	}
	receipt, err := s.queue.deduct(ctx, req)
	if req.Hold > 0 && err == nil {
		section.left = receipt.Left
		receipt = section.receipt(receipt.Remaining, 1)
	}
	return receipt, err
}

// settle decides on a batch. The script runs apart from ctx once it is sent, as redisStore.write does.
func (s *redisScript) settle(ctx context.Context, g *gathering) {
	g.close()
	members := g.live()
	if len(members) == 0 {
		return
	}
	counts := make([]any, len(members))
	for i, m := range members {
		counts[i] = m.Count
	}
	reply, err := deductScript.Run(context.WithoutCancel(ctx), s.client, []string{redisKey(g.goodsID)}, counts...).Int64Slice()
	switch {
	case errors.Is(err, redis.Nil):
		err = fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, g.goodsID)
	case err != nil:
		err = redisWritten(err)
	}
	if err != nil {
		refuse(members, err)
		return
	}
	for i, m := range members {
		granted, units := reply[2*i] == 1, reply[2*i+1]
		m.receipt.Remaining, m.err = units, nil
		if !granted {
			m.receipt, m.err = Receipt{}, &SoldOutError{m.GoodsID, m.Count, units}
		}
	}
	conclude(members, 1)
}
