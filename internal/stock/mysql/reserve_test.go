package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
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
	must.Succeed(t, err)
	return r
}

func (s shop) request(count int, ttl time.Duration) stock.HoldRequest {
	return stock.HoldRequest{Request: stock.Request{GoodsID: s.item, Count: count}, TTL: ttl}
}

// holding is the answer to a hold.
type holding struct {
	held    stock.Reservation
	receipt stock.Receipt
	err     error
}

// start starts a hold.
func (s shop) start(t testing.TB, req stock.HoldRequest) <-chan holding {
	done := make(chan holding, 1)
	go func() {
		held, receipt, err := s.Hold(t.Context(), req)
		done <- holding{held, receipt, err}
	}()
	return done
}

// hold holds units for an hour.
func (s shop) hold(t testing.TB, count int) stock.ReservationID {
	t.Helper()
	held, _, err := s.Hold(t.Context(), s.request(count, time.Hour))
	must.Succeed(t, err)
	return held.ID
}

// lapse lets the time of reservations pass.
func lapse(t testing.TB, db *sqlx.DB, ids ...stock.ReservationID) {
	t.Helper()
	for _, id := range ids {
		_, err := db.Exec("UPDATE reservation SET expires_at = UTC_TIMESTAMP(6) WHERE id = ?", id[:])
		must.Succeed(t, err)
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
	_, err := s.deps.MySQL.Exec("UPDATE good_stock SET epoch = 0 WHERE goods_id = ?", s.item)
	must.Succeed(t, err)
	d := s.Reserver.(stock.Deducter)
	pause := stocktest.Once(stocktest.AfterWrite, func(context.Context) { s.service.Set(t, s.item, 100) })
	req := stock.Request{GoodsID: s.item, Count: 3, Key: "k"}
	_, err = d.Deduct(stocktest.WithPause(t.Context(), pause), req)
	must.Succeed(t, err)
	sale, err := d.(stock.Canceller).CancelSale(t.Context(), stock.CancelRequest{SaleID: stock.SaleID{Key: req.Key}})
	if err != nil || sale.State != stock.SaleCancelled || sale.Lines[0].GivenBack != 0 {
		t.Errorf("cancelled: %+v, %v, want 3 units cancelled and none given back", sale, err)
	}
	s.wantLeft(t, 100)
}
