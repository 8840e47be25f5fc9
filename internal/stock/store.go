package stock

import (
	"context"
)

// store is the stock of all goods in one server, read and overwritten in two steps that only a lock makes one.
type store interface {
	// read fails with ErrUnknownGoods or ErrUnavailable.
	read(ctx context.Context, goodsID int64) (units int64, err error)
	// write overwrites the stock of a known goods. It fails with ErrUnavailable where the write was not sent, and with
	// ErrUnknown where its outcome never came back.
	write(ctx context.Context, goodsID, units int64) error
	// set makes the goods where it is unknown.
	set(ctx context.Context, goodsID, units int64) error
}
