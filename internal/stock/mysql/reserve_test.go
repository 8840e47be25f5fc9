package mysql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// shop is a replica that takes reservations.
type shop struct {
	stock.Reserver
	deps    stock.Deps
	service *stocktest.Service
	item    int64
}

// newShop makes a replica, and an item with ten units.
func newShop(t testing.TB) shop {
	t.Helper()
	deps, service := newReplica(t)
	return shop{reserver(t, service), deps, service, service.NewItem(t, 10)}
}

func reserver(t testing.TB, service *stocktest.Service) stock.Reserver {
	t.Helper()
	r, _, err := service.ResolveReservations("reserve", stock.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s shop) request(count int, ttl time.Duration) stock.HoldRequest {
	return stock.HoldRequest{Request: stock.Request{GoodsID: s.item, Count: count}, TTL: ttl}
}

// hold holds units for an hour.
func (s shop) hold(t testing.TB, count int) stock.ReservationID {
	t.Helper()
	held, _, err := s.Hold(t.Context(), s.request(count, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return held.ID
}

func TestAReservationIsNotCancelledByItsKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	req := s.request(2, time.Hour)
	req.Key = "k"
	held, _, err := s.Hold(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	cancel := stock.CancelRequest{SaleID: stock.SaleID{Key: "k"}}
	if _, err := s.Reserver.(stock.Canceller).CancelSale(t.Context(), cancel); !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("cancel the reservation %s as a sale: %v, want that the key is another's", held.ID, err)
	}
}

// lapse lets the time of reservations pass.
func lapse(t testing.TB, db *sqlx.DB, ids ...stock.ReservationID) {
	t.Helper()
	for _, id := range ids {
		_, err := db.Exec("UPDATE reservation SET expires_at = UTC_TIMESTAMP(6) WHERE id = ?", id[:])
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (s shop) wantState(t testing.TB, id stock.ReservationID, want stock.ReservationState) {
	t.Helper()
	found, err := s.Reservation(t.Context(), id)
	if err != nil || found.State != want || found.ID != id {
		t.Errorf("the reservation is %+v, %v, want %s", found, err, want)
	}
}

func (s shop) wantLeft(t testing.TB, want int64) {
	t.Helper()
	s.service.WantLeft(t, stock.MySQL, s.item, want)
}

// awaitLeft waits until the sweeper has put units back.
func (s shop) awaitLeft(t testing.TB, want int64) {
	t.Helper()
	serverstest.Eventually(t, "the units are back", func() bool {
		return s.service.Left(t, stock.MySQL, s.item) == want
	})
}

func TestAReservationIsConfirmedOrCancelledOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	held, receipt, err := s.Hold(t.Context(), s.request(3, time.Minute))
	if err != nil || receipt.Remaining != 7 || receipt.Replayed || held.State != stock.Held || held.Count != 3 ||
		held.GoodsID != s.item || held.Expires.Sub(held.Created) != time.Minute || !held.Ended.IsZero() {
		t.Fatalf("%+v, %+v, %v, want 3 units held for a minute and 7 remaining", held, receipt, err)
	}
	s.wantState(t, held.ID, stock.Held)
	for range 2 {
		confirmed, err := s.Confirm(t.Context(), held.ID)
		if err != nil || confirmed.State != stock.Confirmed || confirmed.Ended.IsZero() || confirmed.Count != 3 {
			t.Errorf("confirmed: %+v, %v", confirmed, err)
		}
	}
	if _, err := s.Cancel(t.Context(), held.ID); !errors.Is(err, stock.ErrReservationConfirmed) {
		t.Errorf("cancelled after it was confirmed: %v", err)
	}
	s.wantLeft(t, 7)

	id := s.hold(t, 2)
	s.wantLeft(t, 5)
	for range 2 {
		cancelled, err := s.Cancel(t.Context(), id)
		if err != nil || cancelled.State != stock.Cancelled || cancelled.Ended.IsZero() {
			t.Errorf("cancelled: %+v, %v", cancelled, err)
		}
	}
	if _, err := s.Confirm(t.Context(), id); !errors.Is(err, stock.ErrReservationCancelled) {
		t.Errorf("confirmed after it was cancelled: %v", err)
	}
	s.wantLeft(t, 7)
}

// A buyer is not told that an item is sold out while units of expired reservations are not back in the stock. There is
// no sweeper here.
func TestAHoldTakesBackWhatHasExpired(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	other := s.service.NewItem(t, 1)
	elsewhere, _, err := s.Hold(t.Context(),
		stock.HoldRequest{Request: stock.Request{GoodsID: other, Count: 1}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := s.hold(t, 3), s.hold(t, 4), s.hold(t, 2)
	_, _, err = s.Hold(t.Context(), s.request(2, time.Hour))
	if soldOut, ok := errors.AsType[*stock.SoldOutError](err); !ok || soldOut.Remaining != 1 {
		t.Errorf("while all are held: %v, want sold out with 1 remaining", err)
	}
	lapse(t, s.deps.MySQL, first, second, elsewhere.ID)
	_, _, err = s.Hold(t.Context(), s.request(9, time.Hour))
	if soldOut, ok := errors.AsType[*stock.SoldOutError](err); !ok || soldOut.Remaining != 8 {
		t.Errorf("9 units when 8 are free: %v, want sold out with 8 remaining", err)
	}
	if _, receipt, err := s.Hold(t.Context(), s.request(8, time.Hour)); err != nil || receipt.Remaining != 0 {
		t.Errorf("8 units when 8 are free: %+v, %v", receipt, err)
	}
	s.wantState(t, third, stock.Held)
	s.wantLeft(t, 0)
	stats, err := s.ReservationStats(t.Context())
	if err != nil || stats.HeldUnits != 10+1 || stats.Ended[stock.Expired] != 2 || stats.Overdue <= 0 || stats.Lag <= 0 {
		t.Errorf("%+v, %v, want 11 units held, 2 reservations expired, and 1 overdue", stats, err)
	}
}

func TestADeductionWithAKeyTakesBackWhatHasExpired(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	lapse(t, s.deps.MySQL, s.hold(t, 6))
	d := s.Reserver.(stock.Deducter)
	_, err := d.Deduct(t.Context(), stock.Request{GoodsID: s.item, Count: 11, Key: "too many"})
	if soldOut, ok := errors.AsType[*stock.SoldOutError](err); !ok || soldOut.Remaining != 10 {
		t.Errorf("11 units when 10 are free: %v, want sold out with 10 remaining", err)
	}
	lapse(t, s.deps.MySQL, s.hold(t, 6))
	receipt, err := d.Deduct(t.Context(), stock.Request{GoodsID: s.item, Count: 10, Key: "all"})
	if err != nil || receipt.Remaining != 0 {
		t.Errorf("all units when 6 of them are back: %+v, %v, want 0 remaining", receipt, err)
	}
	s.wantLeft(t, 0)
}

// sweep runs the sweeper of a replica until the test ends.
func sweep(t testing.TB, r stock.Reserver) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Sweep(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// The epoch of a stock that was never set is 0, which is not that of the one that replaces it.
func TestACancellationGivesNothingToAStockThatReplacedOneNeverSet(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := s.deps.MySQL.Exec("UPDATE good_stock SET epoch = 0 WHERE goods_id = ?", s.item); err != nil {
		t.Fatal(err)
	}
	d := s.Reserver.(stock.Deducter)
	pause := stocktest.Once(stocktest.AfterWrite, func(context.Context) { s.service.Set(t, s.item, 100) })
	req := stock.Request{GoodsID: s.item, Count: 3, Key: "k"}
	if _, err := d.Deduct(stocktest.WithPause(t.Context(), pause), req); err != nil {
		t.Fatal(err)
	}
	sale, err := d.(stock.Canceller).CancelSale(t.Context(), stock.CancelRequest{SaleID: stock.SaleID{Key: req.Key}})
	if err != nil || sale.State != stock.SaleCancelled || sale.Lines[0].GivenBack != 0 {
		t.Errorf("cancelled: %+v, %v, want 3 units cancelled and none given back", sale, err)
	}
	s.wantLeft(t, 100)
}
