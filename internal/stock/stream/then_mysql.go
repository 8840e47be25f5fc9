package stream

import (
	"context"
	"errors"

	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
)

// thenMySQL deducts in Redis, and then in MySQL, in the same request: what many tutorials do to have the sale in a
// database. Redis alone decides whether there is enough.
//
// If MySQL refuses, the units are given back to Redis. If it does not answer, they are not: they may be sold, and the
// outcome is unknown. And if the process dies between the two, its units are gone from Redis, and MySQL still has them.
// Nobody can buy them. redisStream leaves an entry from which another replica goes on.
type thenMySQL struct {
	redis.Store
	first, second stock.Deducter
}

// NewThenMySQL makes the strategy `redis-then-mysql`.
func NewThenMySQL(d stock.Deps) stock.Deducter {
	return thenMySQL{redis.New(d), redis.NewScript(d), mysql.NewDecrement(d)}
}

func (t thenMySQL) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	receipt, err := t.first.Deduct(ctx, req)
	if err != nil {
		return stock.Receipt{}, err
	}
	_, err = t.second.Deduct(ctx, stock.Request{GoodsID: req.GoodsID, Count: req.Count})
	if err == nil {
		return receipt, nil
	}
	if !errors.Is(err, stock.ErrUnknown) {
		err = errors.Join(err, t.Add(ctx, req.GoodsID, req.Count))
	}
	return stock.Receipt{}, err
}
