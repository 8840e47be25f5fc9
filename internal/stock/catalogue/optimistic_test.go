package catalogue_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// together lets requests wait for each other at a point of their first try.
func together(n int, at stock.Point) (pause stock.PauseFunc) {
	var all sync.WaitGroup
	all.Add(n)
	return func(_ context.Context, point stock.Point) error {
		if point == at {
			all.Done()
			all.Wait()
		}
		return nil
	}
}

// firstOnly calls a pause until it has passed a point once.
func firstOnly(at stock.Point, pause stock.PauseFunc) stock.PauseFunc {
	passed := false
	return func(ctx context.Context, point stock.Point) error {
		if passed {
			return nil
		}
		passed = point == at
		return pause(ctx, point)
	}
}

// sellAndRestock puts units back, which another strategy has sold meanwhile, before the first try writes.
func sellAndRestock(t testing.TB, service *stocktest.Service, units int) stock.PauseFunc {
	other := service.Deducter(t, "update", stock.MySQL)
	return firstOnly(stock.BeforeWrite, func(ctx context.Context, at stock.Point) error {
		if at != stock.BeforeWrite {
			return nil
		}
		if _, err := other.Deduct(ctx, stock.Request{GoodsID: 1, Count: units}); err != nil {
			return err
		}
		_, err := service.Restock(ctx, stock.MySQL, 1, int64(units))
		return err
	})
}

// The stock is what was read, and has not stayed so: ABA. A version or a stamp tells.
func TestOnlyTheStockItselfTakesARestockedGoodsForUnchanged(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for name, attempts := range map[string]int{
		"optimistic-stock":        1, // the stale write is accepted
		"optimistic-version":      2,
		"optimistic-timestamp-us": 2,
	} {
		if err := service.SetStock(t.Context(), 1, 10); err != nil {
			t.Fatal(err)
		}
		receipt, err := service.Deducter(t, name, stock.MySQL).Deduct(t.Context(),
			stock.Request{GoodsID: 1, Count: 3, Pause: sellAndRestock(t, service, 2)})
		if err != nil || receipt.Attempts != attempts || receipt.Remaining != 7 {
			t.Errorf("%s: %+v, %v, want 7 remaining after %d attempts", name, receipt, err, attempts)
		}
	}
}

// A clock that was set back, or that has not moved between two writes, must not make a stamp the same again.
func TestAStampIsPutOnWhateverTheTimeIs(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t).Connect(t)
	service := stocktest.NewService(t, deps)
	if err := service.SetStock(t.Context(), 1, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := deps.MySQL.ExecContext(t.Context(), "UPDATE good_stock SET stamp = '2999-12-31 23:59:59.999999' WHERE goods_id = 1"); err != nil {
		t.Fatal(err)
	}
	sell(t, service.Deducter(t, "optimistic-timestamp-us", stock.MySQL), stock.Request{GoodsID: 1, Count: 1})
	var stamp string
	if err := deps.MySQL.GetContext(t.Context(), &stamp, "SELECT CAST(stamp AS CHAR) FROM good_stock WHERE goods_id = 1"); err != nil {
		t.Fatal(err)
	}
	if want := "3000-01-01 00:00:00.000000"; stamp != want {
		t.Errorf("the stamp is %s, want %s", stamp, want)
	}
}

// Of those who lose their first try, one at a time tries again: none of them loses to another.
func TestLosersTakeTurns(t *testing.T) {
	t.Parallel()
	const buyers = 8
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, test := range []struct {
		name string
		on   stock.Store
	}{{"optimistic-version", stock.MySQL}, {"optimistic-timestamp-us", stock.MySQL}, {"optimistic-stock", stock.MySQL}, {"redis-watch", stock.Redis}} {
		d, id := service.Deducter(t, test.name, test.on), stocktest.NewItem()
		if err := service.SetStock(t.Context(), id, 100); err != nil {
			t.Fatal(err)
		}
		var (
			wg       sync.WaitGroup
			mu       sync.Mutex
			attempts []int
			all      = together(buyers, stock.AfterRead)
		)
		for range buyers {
			wg.Go(func() {
				receipt, err := d.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1, Pause: firstOnly(stock.AfterRead, all)})
				if err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				attempts = append(attempts, receipt.Attempts)
			})
		}
		wg.Wait()
		slices.Sort(attempts)
		if want := []int{1, 2, 2, 2, 2, 2, 2, 2}; !slices.Equal(attempts, want) {
			t.Errorf("%s: the attempts are %v, want %v", test.name, attempts, want)
		}
	}
}

// It stays optimistic: a buyer who stops between reading and writing holds up nobody.
func TestAnOptimisticBuyerWhoStopsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for name, on := range map[string]stock.Store{"optimistic-version": stock.MySQL, "redis-watch": stock.Redis} {
		d, id := service.Deducter(t, name, on), stocktest.NewItem()
		if err := service.SetStock(t.Context(), id, 10); err != nil {
			t.Fatal(err)
		}
		reached, open := make(chan struct{}), make(chan struct{})
		stop := firstOnly(stock.BeforeWrite, func(_ context.Context, at stock.Point) error {
			if at == stock.BeforeWrite {
				close(reached)
				<-open
			}
			return nil
		})
		stopped := make(chan stock.Receipt, 1)
		go func() {
			receipt, err := d.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1, Pause: stop})
			if err != nil {
				t.Errorf("%s: the one that was stopped: %v", name, err)
			}
			stopped <- receipt
		}()
		<-reached
		for range 2 {
			sell(t, d, stock.Request{GoodsID: id, Count: 1})
		}
		close(open)
		if receipt := <-stopped; receipt.Attempts != 2 || receipt.Remaining != 7 {
			t.Errorf("%s: the one that was stopped: %+v, want 7 remaining after 2 attempts", name, receipt)
		}
	}
}

// Who never wins gives up in time, and so does who waits for his turn behind that one.
func TestWhoNeverWinsGivesUpInTime(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t).Connect(t)
	rival := stocktest.NewService(t, deps)
	deps.LockWait = 100 * time.Millisecond
	service := stocktest.NewService(t, deps)
	for name, on := range map[string]stock.Store{"optimistic-version": stock.MySQL, "redis-watch": stock.Redis} {
		d, id := service.Deducter(t, name, on), stocktest.NewItem()
		if err := service.SetStock(t.Context(), id, 1_000_000); err != nil {
			t.Fatal(err)
		}
		faster := rival.Deducter(t, name, on)
		beaten := func(ctx context.Context, at stock.Point) error {
			if at != stock.BeforeWrite {
				return nil
			}
			_, err := faster.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
			return err
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := d.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1, Pause: beaten}); !errors.Is(err, stock.ErrBusy) {
					t.Errorf("%s: %v, want busy", name, err)
				}
			})
		}
		wg.Wait()
	}
}

// Both have read the row, so that both share its lock and neither can write: the server rolls one of them back.
func TestSerializableRetriesAfterADeadlock(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	if err := service.SetStock(t.Context(), 1, 10); err != nil {
		t.Fatal(err)
	}
	d, both := service.Deducter(t, "serializable", stock.MySQL), together(2, stock.AfterRead)
	receipts := make(chan stock.Receipt, 2)
	for count := 1; count <= 2; count++ {
		go func() {
			receipt, err := d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: count, Pause: firstOnly(stock.AfterRead, both)})
			if err != nil {
				t.Errorf("Deduct: %v", err)
			}
			receipts <- receipt
		}()
	}
	a, b := <-receipts, <-receipts
	if a.Attempts+b.Attempts != 3 || min(a.Remaining, b.Remaining) != 7 {
		t.Errorf("%+v and %+v, want 3 attempts and 7 remaining", a, b)
	}
}

// A wait for a row that was too long undoes its statement alone: the rest must be rolled back.
func TestSerializableLeavesNothingOpenAfterALongWait(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	holder := a.Connect(t)
	config, err := mysql.ParseDSN(a.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	config.Params = map[string]string{"innodb_lock_wait_timeout": "1"}
	a.MySQL = config.FormatDSN()
	deps := a.Connect(t)
	deps.LockWait = 10 * time.Millisecond
	service := stocktest.NewService(t, deps)
	if err := service.SetStock(t.Context(), 1, 10); err != nil {
		t.Fatal(err)
	}
	row, err := holder.MySQL.BeginTxx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := row.Exec("SELECT stock FROM good_stock WHERE goods_id = 1 LOCK IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	_, err = service.Deducter(t, "serializable", stock.MySQL).Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
	if !errors.Is(err, stock.ErrBusy) {
		t.Errorf("Deduct: %v, want busy", err)
	}
	if err := row.Rollback(); err != nil {
		t.Fatal(err)
	}
	stocktest.WantIdle(t, deps)
}

// BenchmarkContention is what a sale costs while others want the same goods, on two replicas: ns/op must not grow
// much with the users.
func BenchmarkContention(b *testing.B) {
	a := stocktest.NewAddresses(b)
	for _, name := range []string{"update", "optimistic-version", "optimistic-timestamp-us", "serializable", "redis-watch", "redis-script"} {
		for _, users := range []int{1, 8, 64} {
			b.Run(name+"/users="+strconv.Itoa(users), func(b *testing.B) {
				replicas := [2]*stocktest.Service{stocktest.NewService(b, a.Connect(b)), stocktest.NewService(b, a.Connect(b))}
				if err := replicas[0].SetStock(b.Context(), 1, int64(b.N)); err != nil {
					b.Fatal(err)
				}
				orders := make(chan struct{}, b.N)
				for range b.N {
					orders <- struct{}{}
				}
				close(orders)
				var wg sync.WaitGroup
				var mu sync.Mutex
				attempts := 0
				b.ResetTimer()
				for user := range users {
					d := replicas[user%2].Deducter(b, name, "")
					wg.Go(func() {
						for range orders {
							receipt, err := d.Deduct(b.Context(), stock.Request{GoodsID: 1, Count: 1})
							if err != nil {
								b.Errorf("Deduct: %v", err)
							}
							mu.Lock()
							attempts += receipt.Attempts
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(attempts)/float64(b.N), "tries/op")
			})
		}
	}
}
