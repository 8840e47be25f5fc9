package catalogue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

// All requests read before any of them writes, so that all but one fail their first attempt. Their retries run one at a
// time: none of them fails again.
func TestRetriesRunOneAtATime(t *testing.T) {
	t.Parallel()
	const buyers = 8
	service := stocktest.NewService(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis).Connect(t))
	for _, test := range []struct {
		name string
		on   stock.Store
	}{
		{"optimistic-version", stock.MySQL},
		{"optimistic-timestamp-us", stock.MySQL},
		{"optimistic-stock", stock.MySQL},
		{"redis-watch", stock.Redis},
	} {
		d, id := service.Deducter(t, test.name, test.on), service.NewItem(t, 100)
		var (
			wg          sync.WaitGroup
			mu          sync.Mutex
			attempts    []int
			allHaveRead = stocktest.Barrier(buyers)
		)
		for range buyers {
			wg.Go(func() {
				ctx := stocktest.WithPause(t.Context(), stocktest.Once(stocktest.AfterRead, allHaveRead))
				receipt, err := d.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
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
			t.Errorf("%s: the requests took %v attempts, want %v", test.name, attempts, want)
		}
	}
}

// The first request has lost a try and stops in its second. Where retries queue, the other one would wait for it.
func TestOptimisticSpinDoesNotQueueItsRetries(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t, stock.NeedMySQL).Connect(t))
	d, id := service.Deducter(t, "optimistic-spin", stock.MySQL), service.NewItem(t, 10)
	sell := func(context.Context) { stocktest.Sell(t, d, stock.Request{GoodsID: id, Count: 1}) }
	tries := 0
	stopped := stocktest.ParkWhen(t, d, stock.Request{GoodsID: id, Count: 1}, func(at stocktest.Point) bool {
		if at != stocktest.BeforeWrite {
			return false
		}
		if tries++; tries == 1 {
			sell(t.Context())
		}
		return tries == 2
	})
	ctx := stocktest.WithPause(t.Context(), stocktest.Once(stocktest.BeforeWrite, sell))
	receipt, err := d.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
	if err != nil || receipt.Attempts != 2 || receipt.Remaining != 7 {
		t.Errorf("the other request: %+v, %v, want 7 remaining after 2 attempts", receipt, err)
	}
	if err := stopped.Resume(); err != nil || stopped.Receipt.Attempts != 3 {
		t.Errorf("the stopped request: %+v, %v, want 3 attempts", stopped.Receipt, err)
	}
}

// The requests lose every attempt to a faster one. So do those that wait for the retries of the first one.
func TestARequestThatLosesEveryAttemptIsBusyWhenItsLockWaitEnds(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis).Connect(t)
	rival := stocktest.NewService(t, deps)
	deps.LockWait = 100 * time.Millisecond
	service := stocktest.NewService(t, deps)
	for name, on := range map[string]stock.Store{
		"optimistic-version": stock.MySQL, "optimistic-spin": stock.MySQL, "redis-watch": stock.Redis,
	} {
		d, id := service.Deducter(t, name, on), service.NewItem(t, 1_000_000)
		faster := rival.Deducter(t, name, on)
		ctx := stocktest.WithPause(t.Context(), func(_ context.Context, at stocktest.Point) {
			if at == stocktest.BeforeWrite {
				stocktest.Sell(t, faster, stock.Request{GoodsID: id, Count: 1})
			}
		})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := d.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
				if !errors.Is(err, stock.ErrBusy) {
					t.Errorf("%s: %v, want busy", name, err)
				}
			})
		}
		wg.Wait()
	}
}

// Every strategy that writes to MySQL must increase the version and the timestamp.
func TestOptimisticLockingNoticesTheWritesOfOtherStrategies(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, name := range []string{"optimistic-version", "optimistic-timestamp-us", "optimistic-stock"} {
		optimistic := service.Deducter(t, name, stock.MySQL)
		for _, strategy := range catalogue.Strategies {
			if strategy.Stores[0] != stock.MySQL {
				continue
			}
			other, id := service.Deducter(t, strategy.Name, stock.MySQL), service.NewItem(t, 10)
			ctx := stocktest.WithPause(t.Context(), stocktest.Once(stocktest.BeforeWrite, func(context.Context) {
				stocktest.Sell(t, other, stock.Request{GoodsID: id, Count: 1})
			}))
			receipt, err := optimistic.Deduct(ctx, stock.Request{GoodsID: id, Count: 2})
			if err != nil || receipt.Remaining != 7 || receipt.Attempts != 2 {
				t.Errorf("%s beside %s: %+v, %v, want 7 remaining after 2 attempts", name, strategy.Name, receipt, err)
			}
		}
	}
}
