package stock

import (
	"context"

	"github.com/jmoiron/sqlx"

	"stock/internal/locks"
)

// ownMutex gives every request a mutex of its own, as a bean of prototype scope does. It excludes nobody.
type ownMutex struct{}

func (ownMutex) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	return new(locks.Mutex).Lock(ctx, key)
}

// mutexInTx gives the mutex back inside the transaction, as a synchronized method under @Transactional does: the next
// holder reads before the first one's COMMIT, and its write then undoes the first one's.
type mutexInTx struct {
	mysqlStore
	guarded
}

func newMutexInTx(d Deps, _ Store) (Deducter, error) {
	return mutexInTx{mysqlStore{d.MySQL}, guarded{name: "mutex-in-tx", locker: new(locks.Mutex), wait: d.LockWait, log: d.Log}}, nil
}

func (m mutexInTx) Deduct(ctx context.Context, req Request) (receipt Receipt, err error) {
	// At REPEATABLE READ a newer MariaDB refuses the late write (1020) and hides the mistake behind an error.
	err = m.inTx(ctx, readCommitted, req, func(tx *sqlx.Tx) error {
		m.guarded.store = mysqlTx{tx}
		receipt, err = m.guarded.Deduct(ctx, req)
		return err
	})
	return receipt, err
}
