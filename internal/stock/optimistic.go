package stock

import "context"

// optimistic is optimistic locking: read something of the row that every write changes, and write only if it is still the
// same. What that something is tells these strategies apart; T is its type.
type optimistic[T int64 | string] struct {
	mysqlStore
	retries     *retries
	read, write string // SQL
}

func newOptimistic[T int64 | string](d Deps, read, write string) optimistic[T] {
	return optimistic[T]{mysqlStore{d.MySQL}, &retries{wait: d.LockWait}, read, write}
}

// The version is counted up by every strategy that writes to the row.
func newOptimisticVersion(d Deps, _ Store) (Deducter, error) {
	return newOptimistic[int64](d,
		"SELECT stock, version AS seen FROM good_stock WHERE goods_id = ?",
		"UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ? AND version = ?"), nil
}

// Within a second, every write leaves the same stamp: the check passes, and an update is lost.
func newOptimisticTimestamp(d Deps, _ Store) (Deducter, error) {
	return newOptimistic[string](d,
		"SELECT stock, CAST(stamp_seconds AS CHAR) AS seen FROM good_stock WHERE goods_id = ?",
		"UPDATE good_stock SET stock = ?, version = version + 1, stamp_seconds = NOW() WHERE goods_id = ? AND stamp_seconds = ?"), nil
}

// Microseconds make a tie rare, not impossible, and clocks are set back: a write must leave a later stamp than it has read,
// whatever the time is. Other strategies leave theirs to ON UPDATE CURRENT_TIMESTAMP(6), as tables that are made for this do:
// beside them, two writes that begin in one microsecond, on two connections, cannot be told apart.
func newOptimisticTimestampMicros(d Deps, _ Store) (Deducter, error) {
	return newOptimistic[string](d,
		"SELECT stock, CAST(stamp AS CHAR) AS seen FROM good_stock WHERE goods_id = ?",
		`UPDATE good_stock SET stock = ?, version = version + 1, stamp = GREATEST(NOW(6), stamp + INTERVAL 1 MICROSECOND)
		WHERE goods_id = ? AND stamp = ?`), nil
}

// The stock is its own version while it only falls. Once it is also put back, it may be what was read, and the goods another:
// sold, restocked, counted anew (ABA). The arithmetic holds even so; whatever else was read with the stock is out of date.
func newOptimisticStock(d Deps, _ Store) (Deducter, error) {
	return newOptimistic[int64](d,
		"SELECT stock, stock AS seen FROM good_stock WHERE goods_id = ?",
		"UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ? AND stock = ?"), nil
}

func (o optimistic[T]) Deduct(ctx context.Context, req Request) (Receipt, error) {
	return o.retries.deduct(ctx, req, func(section *section) (Receipt, error) { return o.try(ctx, req, section) })
}

func (o optimistic[T]) try(ctx context.Context, req Request, section *section) (Receipt, error) {
	var row struct {
		Stock int64
		Seen  T
	}
	if err := o.db.GetContext(ctx, &row, o.read, req.GoodsID); err != nil {
		return Receipt{}, unwritten(req.GoodsID, err)
	}
	section.enter()
	if err := req.pause(ctx, AfterRead); err != nil {
		return Receipt{}, interrupted(err)
	}
	if row.Stock < int64(req.Count) {
		return Receipt{}, &SoldOutError{req.GoodsID, req.Count, row.Stock}
	}
	if err := req.work(ctx); err != nil {
		return Receipt{}, interrupted(err)
	}
	if err := req.pause(ctx, BeforeWrite); err != nil {
		return Receipt{}, interrupted(err)
	}
	section.leave()
	remaining := row.Stock - int64(req.Count)
	result, err := o.exec(ctx, o.write, remaining, req.GoodsID, row.Seen)
	if err != nil {
		return Receipt{}, err
	}
	switch rows, err := result.RowsAffected(); {
	case err != nil:
		return Receipt{}, err
	case rows == 0:
		return Receipt{}, errLost
	}
	return section.receipt(remaining, 1), nil
}
