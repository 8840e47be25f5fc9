package retention_test

import (
	"os"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/retention"
	"stock/internal/stock/stocktest"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }

// addAnswers adds n answers to the ledger that were given one after the other, the last one this long ago.
func addAnswers(t *testing.T, db *sqlx.DB, prefix, outcome string, n int, ago time.Duration) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `
		INSERT INTO ledger (order_key, line, goods_id, count, remaining, outcome, fingerprint, created_at)
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT CONCAT(?, i), 0, 1, 0, 0, ?, '', UTC_TIMESTAMP(6) - INTERVAL ? + ? - i MICROSECOND FROM n`,
		n, prefix, outcome, ago.Microseconds(), n)
	must.Succeed(t, err)
	// With the statistics of an empty table, the server would scan it, and wait for locked rows of others.
	_, err = db.ExecContext(t.Context(), "ANALYZE TABLE ledger")
	must.Succeed(t, err)
}

func countAnswers(t *testing.T, db *sqlx.DB, prefix string) (n int) {
	t.Helper()
	must.Succeed(t, db.Get(&n, "SELECT COUNT(*) FROM ledger WHERE order_key LIKE CONCAT(?, '%')", prefix))
	return n
}

// A locked row keeps its kind until it is unlocked.
func TestOnlyRefusalsAndTombstonesExpire(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL).Connect(t)
	db := deps.MySQL
	addAnswers(t, db, "old", "sold-out", 900, time.Hour) // two batches
	addAnswers(t, db, "cancelled", "cancelled", 600, 3*time.Hour)
	addAnswers(t, db, "tombstone", "cancelled", 3, time.Minute)
	addAnswers(t, db, "young", "sold-out", 3, -time.Hour)
	addAnswers(t, db, "done", "done", 3, time.Hour)
	reader := stocktest.Begin(t, db)
	const lock = "SELECT * FROM ledger FORCE INDEX (PRIMARY) WHERE order_key = 'old1' AND line = 0 FOR UPDATE"
	if _, err := reader.Exec(lock); err != nil {
		t.Fatal(err)
	}
	for range 2 { // replicas
		expiry := retention.Expire(deps, retention.Ages{
			Refusals: 50 * time.Millisecond, Cancellations: time.Hour, Reservations: time.Hour,
		})
		t.Cleanup(func() { _ = expiry.Close() })
	}
	serverstest.Eventually(t, "the other kind is deleted", func() bool {
		return countAnswers(t, db, "cancelled") == 0
	})
	if old := countAnswers(t, db, "old"); old != 900 {
		t.Errorf("%d answers are left beside a locked one, want all 900", old)
	}
	must.Succeed(t, reader.Rollback())
	serverstest.Eventually(t, "all expired refusals are deleted", func() bool {
		return countAnswers(t, db, "old")+countAnswers(t, db, "cancelled") == 0
	})
	if tombstones := countAnswers(t, db, "tombstone"); tombstones != 3 {
		t.Errorf("%d young tombstones are left, want all 3", tombstones)
	}
	if young, done := countAnswers(t, db, "young"), countAnswers(t, db, "done"); young != 3 || done != 3 {
		t.Errorf("%d young answers and %d answers \"done\" are left, want all 3 of each", young, done)
	}
}

func TestAClosedExpiryDeletesNothing(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL).Connect(t)
	expiry := retention.Expire(deps, retention.Ages{
		Refusals: time.Millisecond, Cancellations: time.Millisecond, Reservations: time.Millisecond,
	})
	must.Succeed(t, expiry.Close())
	addAnswers(t, deps.MySQL, "old", "sold-out", 1, time.Hour)
	if n := countAnswers(t, deps.MySQL, "old"); n != 1 || deps.MySQL.Stats().InUse != 0 {
		t.Errorf("%d answers are left and %d connections in use, want 1 and 0", n, deps.MySQL.Stats().InUse)
	}
}
