package stock

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// Both statements bring the units left back in the reply itself: LAST_INSERT_ID(expr) hands expr to the client, on MySQL,
// MariaDB and TiDB alike.
const (
	deductSQL = "UPDATE good_stock SET stock = LAST_INSERT_ID(stock - ?), version = version + 1 WHERE goods_id = ? AND stock >= ?"
	// LAST_INSERT_ID is unsigned: below zero its value must be cast back.
	decrementSQL = "UPDATE good_stock SET stock = CAST(LAST_INSERT_ID(stock - ?) AS SIGNED), version = version + 1 WHERE goods_id = ?"
)

// update is one conditional UPDATE: the row lock of the database is the critical section.
type update struct{ mysqlStore }

func newUpdate(d Deps, _ Store) (Deducter, error) { return update{mysqlStore{d.MySQL}}, nil }

func (u update) Deduct(ctx context.Context, req Request) (Receipt, error) {
	for {
		receipt, rows, err := u.once(ctx, req, deductSQL, req.Count, req.GoodsID, req.Count)
		if err != nil || rows == 1 {
			return receipt, err
		}
		// No row: too few units, or no such goods. Only a refusal pays for the second question.
		units, err := u.read(ctx, req.GoodsID)
		if err != nil {
			return Receipt{}, err
		}
		if units < int64(req.Count) {
			return Receipt{}, &SoldOutError{req.GoodsID, req.Count, units}
		}
		// Restocked between the two: ask again, lest a buyer be refused while there is stock.
	}
}

// decrement is an UPDATE that forgets to ask whether there is enough. No race is needed to sell what is not there.
type decrement struct{ mysqlStore }

func newDecrement(d Deps, _ Store) (Deducter, error) { return decrement{mysqlStore{d.MySQL}}, nil }

func (d decrement) Deduct(ctx context.Context, req Request) (Receipt, error) {
	receipt, rows, err := d.once(ctx, req, decrementSQL, req.Count, req.GoodsID)
	if err == nil && rows == 0 {
		err = fmt.Errorf("%w: goods %d is not in MySQL", ErrUnknownGoods, req.GoodsID)
	}
	return receipt, err
}

// once runs a deducting statement. By itself it is a transaction of one round trip; with work to do under the row's lock
// it becomes BEGIN, statement, work, COMMIT.
func (s mysqlStore) once(ctx context.Context, req Request, query string, args ...any) (Receipt, int64, error) {
	section := arrive()
	if req.Hold > 0 || req.Pause != nil {
		return s.onceInTx(ctx, req, section, query, args...)
	}
	result, err := s.exec(ctx, query, args...)
	if err != nil {
		return Receipt{}, 0, err
	}
	section.enter()
	section.left = section.entered // it lay inside the statement
	return section.deducted(result)
}

func (s mysqlStore) onceInTx(ctx context.Context, req Request, section section, query string, args ...any) (receipt Receipt, rows int64, err error) {
	err = s.inTx(ctx, nil, req, func(tx *sqlx.Tx) error {
		if err := req.pause(ctx, BeforeWrite); err != nil {
			return interrupted(err)
		}
		result, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return refusal(err)
		}
		section.enter()
		if rows, err = result.RowsAffected(); err != nil || rows == 0 {
			return err // there is nothing to work on
		}
		if err := req.work(ctx); err != nil {
			return interrupted(err)
		}
		section.leave()
		receipt, rows, err = section.deducted(result)
		return err
	})
	return receipt, rows, err
}

// deducted reads the reply of a statement with LAST_INSERT_ID(units left).
func (s *section) deducted(result sql.Result) (Receipt, int64, error) {
	rows, err := result.RowsAffected()
	if err != nil || rows == 0 {
		return Receipt{}, rows, err
	}
	remaining, err := result.LastInsertId()
	return s.receipt(remaining, 1), rows, err
}
