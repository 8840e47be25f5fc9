package mysql_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/retention"
	"stock/internal/stock/stocktest"
)

// addAnswers adds n answers to the ledger that were given one after the other, the last one this long ago.
func addAnswers(t *testing.T, db *sqlx.DB, prefix, outcome string, n int, ago time.Duration) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `
		INSERT INTO ledger (order_key, line, goods_id, count, remaining, outcome, fingerprint, created_at)
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT CONCAT(?, i), 0, 1, 0, 0, ?, '', UTC_TIMESTAMP(6) - INTERVAL ? + ? - i MICROSECOND FROM n`,
		n, prefix, outcome, ago.Microseconds(), n)
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
	deps, _ := newReplica(t)
	db := deps.MySQL
	addAnswers(t, db, "old", "sold-out", 900, time.Hour) // two batches
	addAnswers(t, db, "limit", "buyer-limit", 600, time.Hour)
	addAnswers(t, db, "cancelled", "cancelled", 600, 3*time.Hour)
	addAnswers(t, db, "tombstone", "cancelled", 3, time.Minute)
	addAnswers(t, db, "young", "sold-out", 3, -time.Hour)
	addAnswers(t, db, "done", "done", 3, time.Hour)
	reader := stocktest.Begin(t, db)
	const lock = "SELECT * FROM ledger FORCE INDEX (PRIMARY) WHERE order_key = 'old1' AND line = 0 FOR UPDATE"
	_, err := reader.Exec(lock)
	must.Succeed(t, err)
	for range 2 { // replicas
		expiry := retention.Expire(deps, retention.Ages{
			Refusals: 50 * time.Millisecond, Cancellations: time.Hour, Reservations: time.Hour,
		})
		t.Cleanup(func() { _ = expiry.Close() })
	}
	serverstest.Eventually(t, "the other kinds are deleted", func() bool {
		return countAnswers(t, db, "limit")+countAnswers(t, db, "cancelled") == 0
	})
	if old := countAnswers(t, db, "old"); old != 900 {
		t.Errorf("%d answers are left beside a locked one, want all 900", old)
	}
	must.Succeed(t, reader.Rollback())
	serverstest.Eventually(t, "all expired refusals are deleted", func() bool {
		return countAnswers(t, db, "old")+countAnswers(t, db, "limit")+countAnswers(t, db, "cancelled") == 0
	})
	if tombstones := countAnswers(t, db, "tombstone"); tombstones != 3 {
		t.Errorf("%d young tombstones are left, want all 3", tombstones)
	}
	if young, done := countAnswers(t, db, "young"), countAnswers(t, db, "done"); young != 3 || done != 3 {
		t.Errorf("%d young answers and %d answers \"done\" are left, want all 3 of each", young, done)
	}
}

// A locked reservation keeps its batch until it is unlocked.
func TestReservationsThatSoldNothingExpire(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	held, confirmed, cancelled, expired, young := s.hold(t, 1), s.hold(t, 1), s.hold(t, 1), s.hold(t, 1), s.hold(t, 1)
	if _, _, err := s.Hold(t.Context(), keyed(s.request(100, time.Hour))); !errors.Is(err, stock.ErrSoldOut) {
		t.Fatalf("%v, want a refusal that is kept", err)
	}
	_, err := s.Confirm(t.Context(), confirmed)
	_, err2 := s.Cancel(t.Context(), cancelled)
	_, err3 := s.Cancel(t.Context(), young)
	_, err4 := s.deps.MySQL.Exec("UPDATE reservation SET state = IF(id = ?, 'expired', state), "+
		"expires_at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR WHERE id <> ?", expired[:], young[:])
	must.Succeed(t, errors.Join(err, err2, err3, err4))
	reader := stocktest.Begin(t, s.deps.MySQL)
	_, err = reader.Exec("SELECT * FROM reservation WHERE id = ? FOR UPDATE", cancelled[:])
	must.Succeed(t, err)
	for range 2 { // replicas
		expiry := retention.Expire(s.deps, retention.Ages{
			Refusals: 50 * time.Millisecond, Cancellations: time.Hour, Reservations: time.Hour,
		})
		t.Cleanup(func() { _ = expiry.Close() })
	}
	left := func() (ids []stock.ReservationID) {
		for _, id := range []stock.ReservationID{held, confirmed, cancelled, expired, young} {
			var n int
			must.Succeed(t, s.deps.MySQL.Get(&n, "SELECT COUNT(*) FROM reservation WHERE id = ?", id[:]))
			if n > 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	serverstest.Eventually(t, "the expired one is deleted, the locked one is not", func() bool {
		return slices.Equal(left(), []stock.ReservationID{held, confirmed, cancelled, young})
	})
	serverstest.Eventually(t, "the refusal is deleted", func() (none bool) {
		err := s.deps.MySQL.Get(&none, "SELECT COUNT(*) = 0 FROM reservation WHERE state = 'refused'")
		return err == nil && none
	})
	must.Succeed(t, reader.Rollback())
	serverstest.Eventually(t, "the one that was locked is deleted", func() bool {
		return slices.Equal(left(), []stock.ReservationID{held, confirmed, young})
	})
}

func TestAClosedExpiryDeletesNothing(t *testing.T) {
	t.Parallel()
	deps, _ := newReplica(t)
	expiry := retention.Expire(deps, retention.Ages{
		Refusals: time.Millisecond, Cancellations: time.Millisecond, Reservations: time.Millisecond,
	})
	must.Succeed(t, expiry.Close())
	addAnswers(t, deps.MySQL, "old", "sold-out", 1, time.Hour)
	if n := countAnswers(t, deps.MySQL, "old"); n != 1 || deps.MySQL.Stats().InUse != 0 {
		t.Errorf("%d answers are left and %d connections in use, want 1 and 0", n, deps.MySQL.Stats().InUse)
	}
}

func TestAKeyWhoseSoldOutAnswerExpiredIsNew(t *testing.T) {
	eachKeyed(t, func(t *testing.T, name string) {
		deps, service := newReplica(t)
		d, id := service.Deducter(t, name, stock.MySQL), service.NewItem(t, 0)
		req := stock.Request{GoodsID: id, Count: 1, Key: "k"}
		for _, replayed := range []bool{false, true} {
			receipt, err := d.Deduct(t.Context(), req)
			if !errors.Is(err, stock.ErrSoldOut) || receipt.Replayed != replayed {
				t.Errorf("%v, replayed %v, want sold out, replayed %v", err, receipt.Replayed, replayed)
			}
			service.Set(t, id, 10)
		}
		expiry := retention.Expire(deps, retention.Ages{
			Refusals: time.Millisecond, Cancellations: time.Millisecond, Reservations: time.Millisecond,
		})
		defer expiry.Close()
		serverstest.Eventually(t, "the answer has expired", func() bool { return countAnswers(t, deps.MySQL, "k") == 0 })
		stocktest.Sell(t, d, req)
	})
}
