package stock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/redis/go-redis/v9"
)

// LAST_INSERT_ID(expr) brings the units back in the reply itself. It is unsigned: a goods that `decrement` has oversold may be
// below zero still.
const restockSQL = `UPDATE good_stock SET stock = CAST(LAST_INSERT_ID(stock + ?) AS SIGNED), version = version + 1, fence = 0, fence_issuer = ''
	WHERE goods_id = ? AND stock <= ?`

func (s mysqlStore) restock(ctx context.Context, goodsID, units int64) (int64, error) {
	for {
		result, err := s.exec(ctx, restockSQL, units, goodsID, MaxStock-units)
		if err != nil {
			return 0, err
		}
		if rows, err := result.RowsAffected(); err != nil {
			return 0, err
		} else if rows == 1 {
			return result.LastInsertId()
		}
		// No row: too many units, or no such goods.
		present, err := s.read(ctx, goodsID)
		if err != nil {
			return 0, err
		}
		if present > MaxStock-units {
			return 0, overstocked(goodsID, present, units)
		}
		// Sold between the two: ask again.
	}
}

var (
	//go:embed lua/restock.lua
	restockLua string

	restockScript = redis.NewScript(restockLua)
)

// restock runs apart from ctx once it begins, as write does. MySQL gets the units, too, by the stream of redis-stream, where
// it knows the stock.
func (s redisStore) restock(ctx context.Context, goodsID, units int64) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, interrupted(context.Cause(ctx))
	}
	keys := []string{redisKey(goodsID), fenceKey(goodsID), epochKey(goodsID), streamKey(goodsID)}
	if told, err := s.client.Exists(ctx, keys[2:]...).Result(); err != nil {
		return 0, redisUnwritten(err)
	} else if told > 0 {
		_ = streams(s).announce(ctx, goodsID) // without it, the stream is found a little later
	}
	present, err := restockScript.Run(context.WithoutCancel(ctx), s.client, keys, units, int64(MaxStock), rand.Int64()).Int64()
	switch {
	case errors.Is(err, redis.Nil):
		return 0, fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, goodsID)
	case redis.HasErrorPrefix(err, "OVERSTOCKED"):
		_, _ = fmt.Sscanf(err.Error(), "OVERSTOCKED %d", &present)
		return 0, overstocked(goodsID, present, units)
	}
	return present, redisWritten(err)
}

func overstocked(goodsID, present, units int64) error {
	return fmt.Errorf("%w: goods %d has %d units: %d more would exceed %d", ErrOverstocked, goodsID, present, units, int64(MaxStock))
}
