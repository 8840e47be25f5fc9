package stock

import (
	"context"

	"github.com/jmoiron/sqlx"
)

// forUpdate is pessimistic locking: the row stays locked from the read to the COMMIT.
type forUpdate struct{ mysqlStore }

func newForUpdate(d Deps, _ Store) (Deducter, error) { return forUpdate{mysqlStore{d.MySQL}}, nil }

func (f forUpdate) Deduct(ctx context.Context, req Request) (receipt Receipt, err error) {
	section := arrive()
	err = f.inTx(ctx, nil, req, func(tx *sqlx.Tx) error {
		var units int64
		err := tx.GetContext(ctx, &units, selectSQL+" FOR UPDATE", req.GoodsID)
		if err != nil {
			return unwritten(req.GoodsID, err)
		}
		section.enter()
		receipt, err = readModifyWrite(ctx, heldRow{mysqlTx{tx}, units}, req, section)
		return err
	})
	return receipt, err
}

// heldRow is a row that was read as it was locked: reading it again would cost a round trip.
type heldRow struct {
	mysqlTx
	units int64
}

func (r heldRow) read(context.Context, int64) (int64, error) { return r.units, nil }
