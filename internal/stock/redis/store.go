// Package redis deducts from stock that is kept in Redis: one file for each strategy.
package redis

import (
	"cmp"
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

	//go:embed lua/write_all.lua
	writeAllLua    string
	writeAllScript = redis.NewScript(writeAllLua)
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

// Atomic implements stock.Lockable. In a Cluster, no command reaches items in different hash slots.
func (s Store) Atomic() bool {
	return !s.cluster()
}

func (s Store) cluster() bool {
	_, cluster := s.Client.(*redis.ClusterClient)
	return cluster
}

// WriteAll implements stock.Lockable.
func (s Store) WriteAll(ctx context.Context, req stock.OrderRequest, stocks []stock.ItemStock) error {
	if req.Key == "" {
		return s.writeAll(ctx, nil, stocks)
	}
	added := newRecord{s.RecordKey(stocks[0].GoodsID, req.Key), req.Fingerprint(stock.Redis), req.Receipts(stocks)}
	return s.writeAll(ctx, &added, stocks)
}

// newRecord is the record of a sale that is about to be made.
type newRecord struct {
	key         string
	fingerprint []byte
	lines       []stock.LineReceipt
}

// text is the record of a deduction from a stock of this epoch, which is empty if it has none.
func (r *newRecord) text(epoch string) string {
	line := r.lines[0]
	return fmt.Sprintf("%s %s %d %d %d %s", fingerprintText(r.fingerprint), done, line.GoodsID, line.Count,
		line.Remaining, cmp.Or(epoch, "0"))
}

// writeAll overwrites the stock of several items, and keeps a record, if there is one.
func (s Store) writeAll(ctx context.Context, added *newRecord, stocks []stock.ItemStock) error {
	if ctx.Err() != nil {
		return stock.Interrupted(context.Cause(ctx))
	}
	keys := make([]string, 0, 3*len(stocks)+1)
	args := make([]any, 2, 4+4*len(stocks))
	args[0], args[1] = stocks[0].Holder.Issuer, len(stocks)
	for _, line := range stocks {
		keys = append(keys, s.Key(line.GoodsID), s.fenceKey(line.GoodsID))
		args = append(args, line.Units, line.Holder.Token, line.Read)
	}
	if added != nil {
		keys = append(keys, added.key)
		args = append(args, fingerprintText(added.fingerprint)+" "+guarded(done, s.guard), s.saleTTL.Milliseconds())
		for _, line := range added.lines {
			keys = append(keys, s.EpochKey(line.GoodsID))
			args = append(args, fmt.Sprintf("%d %d %d", line.GoodsID, line.Count, line.Remaining))
		}
	}
	err := writeAllScript.Run(context.WithoutCancel(ctx), s.Client, keys, args...).Err()
	if known, ok := keyTaken(err); ok {
		return known
	}

	var at int
	var last stock.Holder
	switch {
	case redis.HasErrorPrefix(err, "UNKNOWN"):
		_, _ = fmt.Sscanf(err.Error(), "UNKNOWN %d", &at)
		err = missing(stocks[at].GoodsID)
	case redis.HasErrorPrefix(err, "FENCED"):
		_, _ = fmt.Sscanf(err.Error(), "FENCED %d %d %s", &at, &last.Token, &last.Issuer)
		err = stocks[at].Holder.RefusedBy(stocks[at].GoodsID, last)
	case redis.HasErrorPrefix(err, "CHANGED"):
		_, _ = fmt.Sscanf(err.Error(), "CHANGED %d", &at)
		err = stock.ErrChanged
	default:
		return classifyWrite(err)
	}
	return &stock.LineError{GoodsID: stocks[at].GoodsID, Err: err}
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
