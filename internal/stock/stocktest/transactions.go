package stocktest

import (
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// Begin begins a transaction of MySQL. It is rolled back when the test ends, unless it has ended by then.
func Begin(t testing.TB, db *sqlx.DB) *sqlx.Tx {
	t.Helper()
	return begin(t, db, nil)
}

func begin(t testing.TB, db *sqlx.DB, options *sql.TxOptions) *sqlx.Tx {
	t.Helper()
	tx, err := db.BeginTxx(t.Context(), options)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// LockRow locks the row of an item in MySQL, and those of its slots, until unlock is called.
func LockRow(t testing.TB, db *sqlx.DB, goodsID int64) (unlock func()) {
	t.Helper()
	// At READ COMMITTED it locks no gaps: other items can be created meanwhile.
	tx := begin(t, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	for _, table := range []string{"good_stock", "good_slot", "unit_stock", "good_unit"} {
		_, err := tx.Exec("SELECT goods_id FROM "+table+" WHERE goods_id = ? FOR UPDATE", goodsID)
		must.Succeed(t, err)
	}
	return func() {
		t.Helper()
		must.Succeed(t, tx.Rollback())
	}
}

// innodbTrx is held to read information_schema.innodb_trx, a cache that the server refills only if nobody has read it
// for 0.1 s.
var innodbTrx sync.Mutex

// WaitForRowLock waits until a statement in this database waits for a row that another transaction has locked.
func WaitForRowLock(t testing.TB, db *sqlx.DB) {
	t.Helper()
	WaitForRowLocks(t, db, 1)
}

// WaitForRowLocks waits until n statements in this database wait for rows that other transactions have locked.
func WaitForRowLocks(t testing.TB, db *sqlx.DB, n int) {
	t.Helper()
	serverstest.Eventually(t, fmt.Sprintf("%d statements wait for locked rows", n), func() bool {
		innodbTrx.Lock()
		defer innodbTrx.Unlock()
		time.Sleep(120 * time.Millisecond)
		var waiting int
		err := db.Get(&waiting, `SELECT COUNT(*) FROM information_schema.innodb_trx trx
			JOIN information_schema.processlist process ON process.id = trx.trx_mysql_thread_id
			WHERE process.db = DATABASE() AND trx.trx_state = 'LOCK WAIT'`)
		must.Succeed(t, err)
		return waiting >= n
	})
}
