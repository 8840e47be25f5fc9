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
	db      mysql.Store
	guarded guarded
}

// NewMutexAroundTx makes the strategy `mutex-around-tx`.
func NewMutexAroundTx(d stock.Deps) stock.Deducter {
	return mutexAroundTx{
		db:      mysql.NewGuarded(d, "mutex-around-tx"),
		guarded: guarded{name: "mutex-around-tx", locker: new(locks.Mutex), wait: d.LockWait, log: d.Log},
	}
}

// CancelSale implements stock.Canceller.
func (m mutexAroundTx) CancelSale(ctx context.Context, req stock.CancelRequest) (stock.Sale, error) {
	return m.db.CancelSaleUnder(ctx, req, m.guarded.underLocks)
}

// Sale implements stock.Canceller.
func (m mutexAroundTx) Sale(ctx context.Context, id stock.SaleID) (stock.Sale, error) {
	return m.db.Sale(ctx, id)
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
