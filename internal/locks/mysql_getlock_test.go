package locks_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// connectMySQL opens a pool whose driver does not log failed connections.
func connectMySQL(t testing.TB, dsn string) *sqlx.DB {
	config, err := mysql.ParseDSN(dsn)
	must.Succeed(t, err)
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	must.Succeed(t, err)
	db := sqlx.NewDb(sql.OpenDB(connector), "mysql")
	t.Cleanup(func() { db.Close() })
	return db
}

// holderOf returns the connection that holds the user-level lock; it is not valid if none does.
func holderOf(t testing.TB, observer *sqlx.DB, name string) (id sql.NullInt64) {
	must.Succeed(t, observer.GetContext(context.WithoutCancel(t.Context()), &id, "SELECT IS_USED_LOCK(?)", name))
	return id
}

// awaitGetLockWaiter waits until one connection waits in the server for the user-level lock.
func awaitGetLockWaiter(t testing.TB, observer *sqlx.DB, name string) {
	t.Helper()
	serverstest.Eventually(t, "one connection waits for "+name, func() bool {
		var n int
		must.Succeed(t, observer.GetContext(t.Context(), &n,
			`SELECT COUNT(*) FROM information_schema.processlist
			WHERE info LIKE CONCAT('SELECT GET_LOCK(''', ?, '''%')`, name))
		return n == 1
	})
}

func TestAKilledConnectionFreesItsGetLockWhileTheWorkGoesOn(t *testing.T) {
	t.Parallel()
	dsn := shared.Database(t)
	observer := connectMySQL(t, dsn)
	late := locks.NewMySQLGetLock(connectMySQL(t, dsn), locks.Options{Renew: time.Second})
	next := locks.NewMySQLGetLock(connectMySQL(t, dsn), locks.Options{})
	const key = "lock:{killed}"

	first := mustLock(t, late, key)
	_, err := observer.ExecContext(t.Context(), "KILL ?", holderOf(t, observer, key).Int64)
	must.Succeed(t, err)
	second := mustLock(t, next, key)
	if err := first.Context().Err(); err != nil {
		t.Errorf("the first holder noticed the loss at once (%v): this flaw is gone", err)
	}
	awaitLoss(t, first)
	wantLeaseLost(t, first.Unlock())
	if !holderOf(t, observer, key).Valid {
		t.Error("the late holder's Unlock took the lock from the next holder")
	}
	mustUnlock(t, second)
}

// A proxy may give the holder another connection, which works but does not hold the lock.
func TestMySQLGetLockHolderNoticesThatItsConnectionDoesNotHoldTheLock(t *testing.T) {
	t.Parallel()
	dsn := shared.Database(t)
	db := connectMySQL(t, dsn)
	another := mustLock(t, locks.NewMySQLGetLock(connectMySQL(t, dsn), locks.Options{}), "lock:{another's}")
	for _, key := range []string{"lock:{nobody's}", "lock:{another's}"} {
		conn, err := db.Connx(t.Context())
		must.Succeed(t, err)
		lease, err := locks.LeaseOfGetLock(t.Context(), conn, key, locks.Options{Renew: 100 * time.Millisecond})
		must.Succeed(t, err)
		awaitLoss(t, lease)
		wantLeaseLost(t, lease.Unlock())
	}
	mustUnlock(t, another)
}

// A second connection could be the one that the holder needs to go on. For the same reason, the one that a waiter
// occupies is returned every second.
func TestMySQLGetLockWaitersOfOneProcessShareOneConnection(t *testing.T) {
	t.Parallel()
	dsn := shared.Database(t)
	observer, pool := connectMySQL(t, dsn), connectMySQL(t, dsn)
	pool.SetMaxOpenConns(1)
	holder := locks.NewMySQLGetLock(connectMySQL(t, dsn), locks.Options{})
	waiter := locks.NewMySQLGetLock(pool, locks.Options{})
	const key, other = "lock:{crowd}", "lock:{free}"

	held := mustLock(t, holder, key)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { mustUnlock(t, mustLock(t, waiter, key)) })
	}
	awaitGetLockWaiter(t, observer, key)
	if waits := pool.Stats().WaitCount; waits != 0 {
		t.Errorf("waiters asked %d times for a second connection of the pool, want 0", waits)
	}
	mustUnlock(t, mustLock(t, waiter, other))
	mustUnlock(t, held)
	wg.Wait()
}
