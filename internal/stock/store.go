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

// settableStore is the stock of all goods as it is seen from outside of the strategies.
type settableStore interface {
	// read fails with ErrUnknownGoods, ErrBusy or ErrUnavailable.
	read(ctx context.Context, goodsID int64) (units int64, err error)
	// set also makes a goods that the store does not know. It forgets who has claimed the goods: a lock's tokens may start
	// anew, and who holds a claim cannot write any more. The stock gets an epoch, a number that grows, by which a sale tells
	// from which stock it was taken: MySQL makes one beyond the one that it is given. The others take it, and return it; or a
	// later one where they have a later stock, which they keep.
	set(ctx context.Context, goodsID, units, epoch int64) (int64, error)
	// restock adds 1 to MaxStock units to a known goods in one step, and returns what is there right after. It forgets who
	// has claimed the goods: such a holder read it before, and its write would bury the restock. It fails with
	// ErrOverstocked beyond MaxStock, and otherwise as write does.
	restock(ctx context.Context, goodsID, units int64) (int64, error)
}

// lockableStore is one around which a lock can be put: it keeps one number a goods, and can refuse a holder that is late.
type lockableStore interface {
	store
	// fence is the store of a holder of a lock who wants count units. Its read claims the goods where it has as many, its
	// write is refused once another has claimed it: both fail with ErrFenced. A claim deducts nothing, so that its outcome
	// is never unknown.
	fence(issuer string, token uint64, count int) store
	// atomic says whether several goods can be written at once.
	atomic() bool
	// writeAll overwrites the stock of several known goods, all or none, where those with a claim are still claimed so. It
	// fails as write does, with a *LineError where one goods is to blame, and passes BeforeCommit where it commits.
	writeAll(ctx context.Context, steps Request, levels []level) error
}

// store returns the store of this name, nil where it is not configured.
func (d Deps) store(on Store) settableStore {
	switch {
	case on == MySQL && d.MySQL != nil:
		return mysqlStore{d.MySQL}
	case on == Redis && d.Redis != nil:
		return redisStore{d.Redis}
	case on == Slots && d.MySQL != nil:
		return slotStore{mysqlStore{d.MySQL}}
	}
	return nil
}

// lockable returns the store of this name; Validate knows that it is one of these.
func (d Deps) lockable(on Store) lockableStore {
	if on == Redis {
		return redisStore{d.Redis}
	}
	return mysqlStore{d.MySQL}
}
