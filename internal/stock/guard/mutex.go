package guard

import (
	"context"

	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
)

// MutexPerRequest is the lock of the control `mutex-per-request`: each request gets a mutex of its own, as with a
// prototype-scoped Spring bean. It excludes no other request.
type MutexPerRequest struct{}

// Lock implements locks.Locker.
func (MutexPerRequest) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	return new(locks.Mutex).Lock(ctx, key)
}

// mutexInTx unlocks the mutex inside the transaction, as a synchronized method under @Transactional does: the next
// holder reads before the first one's COMMIT, and then overwrites its write.
type mutexInTx struct {
	db      mysql.Store
	guarded guarded
}

// NewMutexInTx makes the control `mutex-in-tx`.
func NewMutexInTx(d stock.Deps) stock.Deducter {
	return mutexInTx{
		db:      mysql.New(d),
		guarded: guarded{name: "mutex-in-tx", locker: new(locks.Mutex), wait: d.LockWait, log: d.Log},
	}
}

func (m mutexInTx) Deduct(ctx context.Context, req stock.Request) (receipt stock.Receipt, err error) {
	section := stock.Arrive()
	// At REPEATABLE READ, recent versions of MariaDB refuse the late write (1020), and the mistake would not show.
	err = m.db.InTx(ctx, []int64{mysql.ShareOf(req)}, mysql.ReadCommitted, func(tx mysql.Tx) error {
		m.guarded.store = tx
		receipt, err = m.guarded.lockAndDeduct(ctx, req, section)
		return err
	})
	return receipt, err
}
