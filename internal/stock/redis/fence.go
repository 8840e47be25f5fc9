package redis

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
)

var (
	//go:embed lua/write.lua
	writeLua    string
	writeScript = redis.NewScript(writeLua)
)

// holderStore is the store as seen by one holder of a lock who carries out a request: see the holderStore of package
// mysql, which tells why Write checks both the token and the stock. The token of the last sale is kept in a key beside
// the item's stock.
type holderStore struct {
	Store
	holder stock.Holder
	req    stock.Request
	read   int64 // units that Read returned
}

// As implements stock.Lockable.
func (s Store) As(holder stock.Holder, req stock.Request) stock.ReadWriter {
	if holder.Issuer == "" && req.Key == "" {
		return s
	}
	return &holderStore{Store: s, holder: holder, req: req}
}

// Read implements stock.ReadWriter.
func (s *holderStore) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	s.read, err = s.Store.Read(ctx, goodsID)
	return s.read, err
}

// Write implements stock.ReadWriter.
func (s *holderStore) Write(ctx context.Context, goodsID, units int64) error {
	if ctx.Err() != nil {
		return stock.Interrupted(context.Cause(ctx))
	}
	keys := []string{s.Key(goodsID), s.fenceKey(goodsID)}
	args := []any{units, s.holder.Issuer, s.holder.Token, s.read}
	if s.req.Key != "" {
		keys = append(keys, s.RecordKey(goodsID, s.req.Key), s.EpochKey(goodsID))
		args = append(args, recordText(s.req, units), s.saleTTL.Milliseconds())
	}
	err := writeScript.Run(context.WithoutCancel(ctx), s.Client, keys, args...).Err()
	if known, ok := keyTaken(err); ok {
		return known
	}
	switch {
	case redis.HasErrorPrefix(err, "UNKNOWN"):
		return missing(goodsID)
	case redis.HasErrorPrefix(err, "FENCED"):
		var last stock.Holder
		_, _ = fmt.Sscanf(err.Error(), "FENCED %d %s", &last.Token, &last.Issuer)
		return s.holder.RefusedBy(goodsID, last)
	case redis.HasErrorPrefix(err, "CHANGED"):
		return stock.ErrChanged
	}
	return classifyWrite(err)
}
