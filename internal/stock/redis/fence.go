package redis

import (
	"context"
	"errors"

	"stock/internal/stock"
)

// fencedStore is the store of one holder of a lock: see the fencedStore of package mysql, which tells why Write checks
// both the token and the stock. The token of the last sale is kept in a key beside the item's stock.
type fencedStore struct {
	Store
	holder stock.Holder
	read   int64 // units that Read returned
}

// WithFence implements stock.Lockable.
func (s Store) WithFence(holder stock.Holder) stock.ReadWriter {
	return &fencedStore{Store: s, holder: holder}
}

// Read implements stock.ReadWriter.
func (s *fencedStore) Read(ctx context.Context, goodsID int64) (units int64, err error) {
	s.read, err = s.Store.Read(ctx, goodsID)
	return s.read, err
}

// Write implements stock.ReadWriter.
func (s *fencedStore) Write(ctx context.Context, goodsID, units int64) error {
	written := stock.ItemStock{GoodsID: goodsID, Units: units, Read: s.read, Holder: s.holder}
	err := s.WriteAll(ctx, []stock.ItemStock{written})
	if line, ok := errors.AsType[*stock.LineError](err); ok {
		return line.Err
	}
	return err
}
