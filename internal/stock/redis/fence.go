package redis

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
)

// fencedStore is the store of one holder of a lock: see the fencedStore of package mysql, which tells why Read
// registers the holder. The registered holder is kept in a key beside the item's stock.
type fencedStore struct {
	Store
	holder stock.Holder
	count  int
}

var (
	//go:embed lua/register.lua
	registerLua    string
	registerScript = redis.NewScript(registerLua)

	//go:embed lua/write.lua
	writeLua    string
	writeScript = redis.NewScript(writeLua)
)

// WithFence implements stock.Lockable.
func (s Store) WithFence(holder stock.Holder, count int) stock.ReadWriter {
	return fencedStore{s, holder, count}
}

// Read registers the holder and reads the stock.
func (s fencedStore) Read(ctx context.Context, goodsID int64) (int64, error) {
	keys := []string{s.Key(goodsID), s.fenceKey(goodsID)}
	units, err := registerScript.Run(ctx, s.Client, keys, s.holder.Issuer, s.holder.Token, s.count).Int64()
	if err := s.fenced(goodsID, err); err != nil {
		return 0, err
	}
	return units, classifyItemRead(goodsID, err)
}

// Write overwrites the stock if the holder is still registered.
func (s fencedStore) Write(ctx context.Context, goodsID, units int64) error {
	if ctx.Err() != nil {
		return stock.Interrupted(context.Cause(ctx))
	}
	ctx = context.WithoutCancel(ctx)
	keys := []string{s.Key(goodsID), s.fenceKey(goodsID)}
	err := writeScript.Run(ctx, s.Client, keys, s.holder.Issuer, s.holder.Token, units).Err()
	if err := s.fenced(goodsID, err); err != nil {
		return err
	}
	return ClassifyItemWrite(goodsID, err)
}

// fenced returns the ErrFenced of a script that refused the holder, and nil for any other error.
func (s fencedStore) fenced(goodsID int64, err error) error {
	if !redis.HasErrorPrefix(err, "FENCED") {
		return nil
	}
	var registered stock.Holder
	_, _ = fmt.Sscanf(err.Error(), "FENCED %d %s", &registered.Token, &registered.Issuer)
	return s.holder.RefusedBy(goodsID, registered)
}
