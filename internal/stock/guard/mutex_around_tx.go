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
		db:      mysql.New(d),
		guarded: guarded{name: "mutex-around-tx", locker: new(locks.Mutex), wait: d.LockWait, log: d.Log},
	}
}

func (m mutexAroundTx) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	section := stock.Arrive()
	return m.guarded.underLock(ctx, req, func(lease *locks.Lease) (receipt stock.Receipt, err error) {
		section.Enter()
		ctx, shares := lease.Context(), []int64{mysql.ShareOf(req)}
		// READ COMMITTED as in mutexInTx: at REPEATABLE READ, recent versions of MariaDB refuse what two replicas lose.
		err = m.db.InTx(ctx, shares, mysql.ReadCommitted, func(tx mysql.Tx) error {
			receipt, err = stock.ReadModifyWrite(ctx, tx, req, section)
			return err
		})
		return receipt, err
	})
}
