package redis

import (
	"context"
	"errors"

	"stock/internal/stock"
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
	written := stock.ItemStock{GoodsID: goodsID, Units: units, Read: s.read, Holder: s.holder}
	err := s.writeAll(ctx, s.newRecord(s.req, units), []stock.ItemStock{written})
	if line, ok := errors.AsType[*stock.LineError](err); ok {
		return line.Err
	}
	return err
}

// newRecord is the record of a deduction that leaves units, or nil if it has no key.
func (s Store) newRecord(req stock.Request, units int64) *newRecord {
	if req.Key == "" {
		return nil
	}
	line := stock.LineReceipt{Line: stock.Line{GoodsID: req.GoodsID, Count: req.Count}, Remaining: units}
	return &newRecord{s.RecordKey(req.GoodsID, req.Key), req.Fingerprint(stock.Redis), []stock.LineReceipt{line}}
}
