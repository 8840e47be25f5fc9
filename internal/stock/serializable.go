package stock

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// serializable leaves it to the isolation level. InnoDB keeps its promise with locks: a SELECT shares the row, and of two that
// have both read it and want to write, one is rolled back as the victim of a deadlock and has to begin anew. TiDB has no
// such level and refuses it.
type serializable struct {
	mysqlStore
	retries *retries
}

func newSerializable(d Deps, _ Store) (Deducter, error) {
	return serializable{mysqlStore{d.MySQL}, &retries{wait: d.LockWait}}, nil
}

func (s serializable) Deduct(ctx context.Context, req Request) (Receipt, error) {
	return s.retries.deduct(ctx, req, func(section *section) (Receipt, error) { return s.try(ctx, req, section) })
}

// try asks for the level by BeginTx: set on a session, it would leak to the next user of the connection.
func (s serializable) try(ctx context.Context, req Request, section *section) (receipt Receipt, err error) {
	err = s.inTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable}, req, func(tx *sqlx.Tx) error {
		units, err := mysqlTx{tx}.read(ctx, req.GoodsID)
		if err != nil {
			return err
		}
		section.enter()
		receipt, err = readModifyWrite(ctx, heldRow{mysqlTx{tx}, units}, req, *section)
		return err
	})
	if undone(err) {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	return receipt, err
}
