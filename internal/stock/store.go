package stock

import "context"

// store is the stock of all goods in one server, read and overwritten in two steps that only a lock makes one.
type store interface {
	// read fails with ErrUnknownGoods, ErrBusy or ErrUnavailable.
	read(ctx context.Context, goodsID int64) (units int64, err error)
	// write overwrites the stock of a known goods. It fails with ErrUnknown where its outcome never came back, and with
	// an error like those of read where nothing was written.
	write(ctx context.Context, goodsID, units int64) error
}

// settableStore can make a goods that it does not know.
type settableStore interface {
	store
	set(ctx context.Context, goodsID, units int64) error
}

// store returns the store of this name, nil where it is not configured.
func (d Deps) store(on Store) settableStore {
	switch {
	case on == MySQL && d.MySQL != nil:
		return mysqlStore{d.MySQL}
	case on == Redis && d.Redis != nil:
		return redisStore{d.Redis}
	}
	return nil
}
