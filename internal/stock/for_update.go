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
		in := mysqlTx{tx}
		units, err := in.readForUpdate(ctx, req.GoodsID)
		if err != nil {
			return err
		}
		section.enter()
		receipt, err = readModifyWrite(ctx, heldRow{in, units}, req, section)
		return err
	})
	return receipt, err
}

// readForUpdate reads what is there now, and locks the row.
func (s mysqlTx) readForUpdate(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.tx.GetContext(ctx, &units, selectSQL+" FOR UPDATE", goodsID)
	return units, unwritten(goodsID, err)
}

// heldRow is a row that was read as it was locked: reading it again would cost a round trip.
type heldRow struct {
	mysqlTx
	units int64
}

func (r heldRow) read(context.Context, int64) (int64, error) { return r.units, nil }
