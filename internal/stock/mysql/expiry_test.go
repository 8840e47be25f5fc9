package mysql_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/retention"
	"stock/internal/stock/stocktest"
)

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
		err := s.deps.MySQL.Get(&none, "SELECT COUNT(*) = 0 FROM ledger WHERE outcome = 'sold-out'")
		return err == nil && none
	})
	must.Succeed(t, reader.Rollback())
	serverstest.Eventually(t, "the one that was locked is deleted", func() bool {
		return slices.Equal(left(), []stock.ReservationID{held, confirmed, young})
	})
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
		serverstest.Eventually(t, "the answer has expired", func() (gone bool) {
			must.Succeed(t, deps.MySQL.Get(&gone, "SELECT COUNT(*) = 0 FROM ledger"))
			return gone
		})
		stocktest.Sell(t, d, req)
	})
}
