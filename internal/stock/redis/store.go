// Package redis deducts from stock that is kept in Redis: one file for each strategy.
package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
)

// Read implements stock.ReadWriter.
func (s Store) Read(ctx context.Context, goodsID int64) (int64, error) {
	units, err := s.Client.Get(ctx, s.Key(goodsID)).Int64()
	if err != nil {
		return 0, classifyItemRead(goodsID, err)
	}
	return units, nil
}

// Write implements stock.ReadWriter.
func (s Store) Write(ctx context.Context, goodsID, units int64) error {
	if ctx.Err() != nil {
		return stock.Interrupted(context.Cause(ctx))
	}
	ctx = context.WithoutCancel(ctx)
	return ClassifyItemWrite(goodsID, s.Client.SetArgs(ctx, s.Key(goodsID), units, redis.SetArgs{Mode: "XX"}).Err())
}

var (
	//go:embed lua/set.lua
	setLua    string
	setScript = redis.NewScript(setLua)

	//go:embed lua/restock.lua
	restockLua    string
	restockScript = redis.NewScript(restockLua)
)

// Set implements stock.AdminStore.
func (s Store) Set(ctx context.Context, goodsID, units, epoch int64) (int64, error) {
	keys := []string{s.Key(goodsID), s.fenceKey(goodsID), s.EpochKey(goodsID)}
	epoch, err := setScript.Run(ctx, s.Client, keys, units, epoch).Int64()
	return epoch, ClassifyItemWrite(goodsID, err)
}

// Restock implements stock.AdminStore. MySQL gets the units too, through the stream of redis-stream, if it knows the
// stock.
func (s Store) Restock(ctx context.Context, goodsID, units int64) (int64, error) {
	if ctx.Err() != nil {
		return 0, stock.Interrupted(context.Cause(ctx))
	}
	keys := []string{s.Key(goodsID), s.EpochKey(goodsID), s.StreamKey(goodsID)}
	reply, err := s.WithStream(ctx, goodsID, func() *redis.Cmd {
		return restockScript.Run(context.WithoutCancel(ctx), s.Client, keys, units, int64(stock.MaxStock), rand.Int64())
	})
	if err != nil {
		return 0, err
	}
	present, err := reply.Int64()
	if redis.HasErrorPrefix(err, "OVERSTOCKED") {
		_, _ = fmt.Sscanf(err.Error(), "OVERSTOCKED %d", &present)
		return 0, stock.Overstocked(goodsID, present, units)
	}
	return present, ClassifyItemWrite(goodsID, err)
}

// Add gives units back that were deducted and not sold. If it fails, the outcome is unknown: they may be gone.
func (s Store) Add(ctx context.Context, goodsID int64, units int) error {
	if err := s.Client.IncrBy(context.WithoutCancel(ctx), s.Key(goodsID), int64(units)).Err(); err != nil {
		return fmt.Errorf("%w: %d units of item %d were not given back to Redis: %w", stock.ErrUnknown, units, goodsID, err)
	}
	return nil
}

func (s Store) cluster() bool {
	_, cluster := s.Client.(*redis.ClusterClient)
	return cluster
}

// keyTaken reports whether a script has replied that its key is taken.
func keyTaken(err error) (*takenError, bool) {
	if !redis.HasErrorPrefix(err, "TAKEN") {
		return nil, false
	}
	return &takenError{strings.TrimPrefix(err.Error(), "TAKEN ")}, true
}

func missing(goodsID int64) error { return stock.UnknownItem(goodsID, "Redis") }

func isNil(err error) bool { return errors.Is(err, redis.Nil) }
