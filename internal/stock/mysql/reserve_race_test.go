package mysql_test

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

// newShops makes two replicas that share an item with this stock, and a pool of the test.
func newShops(t testing.TB, units int64) (shops [2]shop, outside *sqlx.DB) {
	t.Helper()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	for i := range shops {
		deps := a.Connect(t)
		service := stocktest.NewService(t, deps)
		shops[i] = shop{Reserver: reserver(t, service), deps: deps, service: service}
	}
	shops[0].item = shops[0].service.NewItem(t, units)
	shops[1].item = shops[0].item
	return shops, stocktest.MySQL(t, a.MySQL)
}

// lockReservation locks a reservation until unlock is called.
func lockReservation(t testing.TB, db *sqlx.DB, id stock.ReservationID) (unlock func()) {
	t.Helper()
	tx := stocktest.Begin(t, db)
	_, err := tx.Exec("SELECT * FROM reservation FORCE INDEX (PRIMARY) WHERE id = ? FOR UPDATE", id[:])
	must.Succeed(t, err)
	return func() {
		must.Succeed(t, tx.Rollback())
	}
}

// start calls a method in the background.
func start(
	t testing.TB, method func(context.Context, stock.ReservationID) (stock.Reservation, error), id stock.ReservationID,
) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := method(t.Context(), id)
		done <- err
	}()
	return done
}

// soon leaves time for a confirmation on a busy machine.
const soon = 4 * time.Second

// awaitExpiry waits until the time of a reservation has passed.
func awaitExpiry(t testing.TB, db *sqlx.DB, id stock.ReservationID) {
	t.Helper()
	serverstest.Eventually(t, "the time has passed", func() (passed bool) {
		err := db.Get(&passed, "SELECT expires_at <= UTC_TIMESTAMP(6) FROM reservation WHERE id = ?", id[:])
		return err == nil && passed
	})
}

// tookBack returns how many expired reservations a replica has ended.
func (s shop) tookBack(t testing.TB) int64 {
	t.Helper()
	stats, err := s.ReservationStats(t.Context())
	must.Succeed(t, err)
	return stats.Ended[stock.Expired]
}

func TestTwoSweepersPutUnitsBackOnce(t *testing.T) {
	t.Parallel()
	const items, each = 5, 20
	shops, outside := newShops(t, 0)
	var ids []int64
	for range items {
		shops[0].item = shops[0].service.NewItem(t, each+1)
		ids = append(ids, shops[0].item)
		for range each {
			shops[0].hold(t, 1)
		}
	}
	_, err := outside.Exec("UPDATE reservation SET expires_at = UTC_TIMESTAMP(6)")
	must.Succeed(t, err)
	// Both wait for the first item.
	unlock := stocktest.LockRow(t, outside, ids[0])
	for _, s := range shops {
		sweep(t, s)
	}
	stocktest.WaitForRowLocks(t, outside, 2)
	unlock()
	serverstest.Eventually(t, "all reservations have ended", func() bool {
		return shops[0].tookBack(t)+shops[1].tookBack(t) == items*each
	})
	for _, id := range ids {
		shops[0].service.WantLeft(t, stock.MySQL, id, each+1)
	}
}

// The item that is locked must not keep the others from being put back.
func TestASweeperPassesOverALockedItem(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	s := newShop(t)
	locked := s.item
	first := s.hold(t, 1)
	s.item = s.service.NewItem(t, 10)
	second := s.hold(t, 2)
	unlock := stocktest.LockRow(t, s.deps.MySQL, locked)
	lapse(t, s.deps.MySQL, first, second)
	sweep(t, s)
	s.awaitLeft(t, 10)
	s.service.WantLeft(t, stock.MySQL, locked, 9)
	serverstest.Eventually(t, "the locked item's unit is overdue, and the other sweep is counted", func() bool {
		stats, err := s.ReservationStats(t.Context())
		return err == nil && stats.HeldUnits == 1 && stats.Overdue > 0 && stats.Lag > 0
	})
	unlock()
	s.item = locked
	s.awaitLeft(t, 10)
}

// The buyer's hold and the sweeper want the same units. Both wait for the item's row.
func TestASweeperAndAHoldTakeBackUnitsOnce(t *testing.T) {
	t.Parallel()
	shops, outside := newShops(t, 10)
	expired := shops[0].hold(t, 10)
	lapse(t, outside, expired)
	unlock := stocktest.LockRow(t, outside, shops[0].item)
	sweep(t, shops[0])
	stocktest.WaitForRowLocks(t, outside, 1)
	held := shops[1].start(t, shops[1].request(7, time.Hour))
	stocktest.WaitForRowLocks(t, outside, 2)
	unlock()
	must.Succeed(t, (<-held).err)
	shops[0].awaitLeft(t, 3)
	shops[0].wantState(t, expired, stock.Expired)
	// A sweep is counted after its commit.
	serverstest.Eventually(t, "the reservation has been taken back once", func() bool {
		return shops[0].tookBack(t)+shops[1].tookBack(t) == 1
	})
}

// The confirmation reached MySQL in time, and waits there until the time has passed. The sweeper comes later.
func TestAConfirmationThatWasSentInTimeWinsOverTheSweeper(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	shops, outside := newShops(t, 10)
	held, _, err := shops[0].Hold(t.Context(), shops[0].request(3, soon))
	must.Succeed(t, err)
	unlock := lockReservation(t, outside, held.ID)
	confirmed := start(t, shops[0].Confirm, held.ID)
	stocktest.WaitForRowLocks(t, outside, 1)
	awaitExpiry(t, outside, held.ID)
	sweep(t, shops[1])
	stocktest.WaitForRowLocks(t, outside, 2)
	unlock()
	must.Succeed(t, <-confirmed)
	serverstest.Eventually(t, "nothing is overdue", func() bool {
		stats, err := shops[1].ReservationStats(t.Context())
		return err == nil && stats.HeldUnits == 0
	})
	shops[0].wantState(t, held.ID, stock.Confirmed)
	shops[0].wantLeft(t, 7)
	if n := shops[1].tookBack(t); n != 0 {
		t.Errorf("the sweeper ended %d reservations", n)
	}
}

// Whoever asks meanwhile waits for that confirmation, and is not told that the reservation has expired.
func TestNobodyIsToldOfAnExpiryBeforeAConfirmationThatWasSentInTime(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	for name, ask := range map[string]func(shop, stock.Reservation) (stock.Reservation, error){
		"read": func(s shop, held stock.Reservation) (stock.Reservation, error) {
			return s.Reservation(t.Context(), held.ID)
		},
		"cancel": func(s shop, held stock.Reservation) (stock.Reservation, error) {
			return s.Cancel(t.Context(), held.ID)
		},
		"hold again": func(s shop, _ stock.Reservation) (stock.Reservation, error) {
			again, _, err := s.Hold(t.Context(), keyed(s.request(3, soon)))
			return again, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shops, outside := newShops(t, 10)
			held, _, err := shops[0].Hold(t.Context(), keyed(shops[0].request(3, soon)))
			must.Succeed(t, err)
			unlock := lockReservation(t, outside, held.ID)
			confirmed := start(t, shops[0].Confirm, held.ID)
			stocktest.WaitForRowLocks(t, outside, 1)
			awaitExpiry(t, outside, held.ID)
			type answer struct {
				stock.Reservation
				error
			}
			answers := make(chan answer, 1)
			go func() {
				found, err := ask(shops[1], held)
				answers <- answer{found, err}
			}()
			stocktest.WaitForRowLocks(t, outside, 2)
			unlock()
			must.Succeed(t, <-confirmed)
			got := <-answers
			if got.State != stock.Confirmed && !errors.Is(got.error, stock.ErrReservationConfirmed) {
				t.Errorf("answered %+v, %v, want a confirmed reservation", got.Reservation, got.error)
			}
			shops[0].wantLeft(t, 7)
		})
	}
}

// Both wait for the reservation. Whichever comes first, the other is told the truth.
func TestOfAConfirmationAndACancellationOneWins(t *testing.T) {
	t.Parallel()
	for _, confirmFirst := range []bool{true, false} {
		shops, outside := newShops(t, 10)
		id := shops[0].hold(t, 3)
		unlock := lockReservation(t, outside, id)
		var confirmed, cancelled <-chan error
		if confirmFirst {
			confirmed = start(t, shops[0].Confirm, id)
			stocktest.WaitForRowLocks(t, outside, 1)
		}
		cancelled = start(t, shops[1].Cancel, id)
		if !confirmFirst {
			stocktest.WaitForRowLocks(t, outside, 1)
			confirmed = start(t, shops[0].Confirm, id)
		}
		stocktest.WaitForRowLocks(t, outside, 2)
		unlock()
		confirm, cancel := <-confirmed, <-cancelled
		switch {
		case confirm == nil && errors.Is(cancel, stock.ErrReservationConfirmed):
			shops[0].wantState(t, id, stock.Confirmed)
			shops[0].wantLeft(t, 7)
		case cancel == nil && errors.Is(confirm, stock.ErrReservationCancelled):
			shops[0].wantState(t, id, stock.Cancelled)
			shops[0].wantLeft(t, 10)
		default:
			t.Errorf("confirm first %v: confirm: %v, cancel: %v", confirmFirst, confirm, cancel)
		}
	}
}

// failures receives a line for each warning.
type failures chan string

func (f failures) Write(line []byte) (int, error) {
	f <- string(line)
	return len(line), nil
}

func TestASweeperOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	direct := a.Connect(t)
	proxy, dsn := stocktest.ProxyMySQL(t, a.MySQL)
	a.MySQL = dsn
	deps, failed := a.Connect(t), make(failures, 10)
	deps.Log = slog.New(slog.NewTextHandler(failed, nil))
	s := shop{reserver(t, stocktest.NewService(t, deps)), direct, stocktest.NewService(t, direct), 0}
	s.item = s.service.NewItem(t, 10)
	id := s.hold(t, 3)
	sweep(t, s)
	proxy.Select(stocktest.Matching(anyQuery))
	proxy.Cut(1, tcpproxy.BeforeReply)
	select {
	case <-failed:
	case <-time.After(5 * time.Minute):
		t.Fatal("the sweeper does not report that it failed")
	}
	lapse(t, direct.MySQL, id)
	s.awaitLeft(t, 10)
}

// cancelKey cancels what was sold by the key of the holds of these tests.
func (s shop) cancelKey(ctx context.Context) error {
	_, err := s.Reserver.(stock.Canceller).CancelSale(ctx, stock.CancelRequest{SaleID: stock.SaleID{Key: "a"}})
	return err
}

// holdsWithKey are a hold that may join a batch, one that does not wait, and one with work to do.
func (s shop) holdsWithKey(t testing.TB) map[string]func() (stock.Receipt, error) {
	hold := func(ctx context.Context, work time.Duration) (stock.Receipt, error) {
		req := keyed(s.request(3, time.Hour))
		req.Hold = work
		_, receipt, err := s.Hold(ctx, req)
		return receipt, err
	}
	return map[string]func() (stock.Receipt, error){
		"in a batch": func() (stock.Receipt, error) { return hold(t.Context(), 0) },
		"alone":      func() (stock.Receipt, error) { return hold(stock.LimitWait(t.Context(), 5*time.Second), 0) },
		"with work":  func() (stock.Receipt, error) { return hold(t.Context(), time.Millisecond) },
	}
}

// The hold has looked up its key before the cancellation, but has not inserted its row yet.
func TestAHoldWhoseKeyIsCancelledMeanwhileHoldsNothing(t *testing.T) {
	t.Parallel()
	for name := range shop.holdsWithKey(shop{}, t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct, behind, proxy := proxied(t, 10)
			caught := proxy.Catch(stocktest.Matching(regexp.MustCompile("INSERT INTO reservation")))
			defer caught.Release()
			done := make(chan error, 1)
			go func() {
				_, err := behind.holdsWithKey(t)[name]()
				done <- err
			}()
			<-caught.Arrived()
			must.Succeed(t, direct.cancelKey(t.Context()))
			caught.Release()
			if err := <-done; !errors.Is(err, stock.ErrCancelled) {
				t.Errorf("the hold: %v, want cancelled", err)
			}
			direct.wantLeft(t, 10)
		})
	}
}
