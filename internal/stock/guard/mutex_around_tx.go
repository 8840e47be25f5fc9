package guard

import (
	"context"

	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
)

// mutexAroundTx is mutexInTx mended: the mutex is locked before BEGIN and unlocked after COMMIT, so the next holder
// reads what this one has committed. Other replicas have mutexes of their own.
type mutexAroundTx struct {
	stock.Canceller
	db      mysql.Store
	guarded guarded
}

// NewMutexAroundTx makes the strategy `mutex-around-tx`.
func NewMutexAroundTx(d stock.Deps) stock.Deducter {
	db := mysql.New(d)
	return mutexAroundTx{
		Canceller: db, db: db,
		guarded: guarded{name: "mutex-around-tx", locker: new(locks.Mutex), wait: d.LockWait, log: d.Log},
	}
}

func (m mutexAroundTx) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return m.db.Once(ctx, req, func() (stock.Receipt, error) {
		section := stock.Arrive()
		return m.guarded.underLock(ctx, req, func(lease *locks.Lease) (stock.Receipt, error) {
			section.Enter()
			ctx := lease.Context()
			// READ COMMITTED as in mutexInTx: at REPEATABLE READ, recent versions of MariaDB refuse what two replicas lose.
			return m.db.DeductInTx(ctx, req, mysql.ReadCommitted, func(tx mysql.Tx) (stock.Receipt, error) {
				return stock.ReadModifyWrite(ctx, tx, req, section)
			})
		})
	})
}
