package catalogue_test

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

var bothStores = []stock.Store{stock.MySQL, stock.Redis}

func TestRestockAddsToWhatIsThere(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, on := range stock.Stores {
		if err := service.SetStock(t.Context(), 1, 5); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int64{8, 11} {
			if units, err := service.Restock(t.Context(), on, 1, 3); err != nil || units != want {
				t.Errorf("%s: Restock = %d, %v, want %d", on, units, err, want)
			}
		}
		if units, err := service.Stock(t.Context(), on, 1); err != nil || units != 11 {
			t.Errorf("%s: %d units, %v, want 11", on, units, err)
		}
	}
}

func TestRestockOfWhatWasOversoldMayStayBelowZero(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	if err := service.SetStock(t.Context(), 1, 0); err != nil {
		t.Fatal(err)
	}
	sell(t, service.Deducter(t, "decrement", stock.MySQL), stock.Request{GoodsID: 1, Count: 5})
	for _, want := range []int64{-2, 1} {
		if units, err := service.Restock(t.Context(), stock.MySQL, 1, 3); err != nil || units != want {
			t.Errorf("Restock = %d, %v, want %d", units, err, want)
		}
	}
}

func TestRestockRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, on := range stock.Stores {
		if _, err := service.Restock(t.Context(), on, 77, 1); !errors.Is(err, stock.ErrUnknownItem) {
			t.Errorf("%s: %v, want unknown goods", on, err)
		}
		if _, err := service.Stock(t.Context(), on, 77); !errors.Is(err, stock.ErrUnknownItem) {
			t.Errorf("%s: the refused restock made the goods: %v", on, err)
		}
		if err := service.SetStock(t.Context(), 1, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Restock(t.Context(), on, 1, stock.MaxStock-1); !errors.Is(err, stock.ErrOverstocked) {
			t.Errorf("%s: %v, want overstocked", on, err)
		}
		if units, err := service.Restock(t.Context(), on, 1, stock.MaxStock-2); err != nil || units != stock.MaxStock {
			t.Errorf("%s: Restock = %d, %v, want the most that there may be", on, units, err)
		}
	}
	if _, err := service.Restock(t.Context(), "paper", 1, 1); !errors.Is(err, stock.ErrUnsupportedStore) {
		t.Errorf("%v, want unsupported store", err)
	}
	if _, err := stocktest.NewService(t, stock.Deps{}).Restock(t.Context(), "", 1, 1); !errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("without a store: %v, want unavailable", err)
	}
}

// Whoever reads before a restock and writes after it must notice.
func TestRestockRacesSafelyWithDeductions(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, test := range []struct {
		strategy string
		on       stock.Store
	}{
		{"update", stock.MySQL},
		{"for-update", stock.MySQL},
		{"optimistic-version", stock.MySQL},
		{"lock-redis-queue", stock.MySQL}, // fenced
		{"lock-redis-queue", stock.Redis},
		{"slots", stock.Slots},
	} {
		t.Run(test.strategy+"/"+string(test.on), func(t *testing.T) {
			t.Parallel()
			const initial, clerks, restocks, buyers, orders = 20, 2, 10, 4, 10
			id, d := stocktest.NewItem(), service.Deducter(t, test.strategy, test.on)
			if err := service.SetStock(t.Context(), id, initial); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var sold atomic.Int64
			for range clerks {
				wg.Go(func() {
					for range restocks {
						if _, err := service.Restock(t.Context(), test.on, id, 2); err != nil {
							t.Errorf("Restock: %v", err)
						}
					}
				})
			}
			for range buyers {
				wg.Go(func() {
					for range orders {
						_, err := d.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1})
						switch {
						case err == nil:
							sold.Add(1)
						case !errors.Is(err, stock.ErrFenced) && !errors.Is(err, stock.ErrSoldOut):
							t.Errorf("Deduct: %v", err)
						}
					}
				})
			}
			wg.Wait()
			want := int64(initial+2*clerks*restocks) - sold.Load()
			if units, err := service.Stock(t.Context(), test.on, id); err != nil || units != want {
				t.Errorf("%d units are left, %v, want %d after %d were sold", units, err, want, sold.Load())
			}
		})
	}
}

func TestALockWithoutAFenceLosesARestock(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, name := range []string{"mutex", "lock-redis-watchdog", "lock-mysql-getlock"} {
		strategy := stocktest.Strategy(t, name)
		if strategy.Claim.Restocked != stock.LosesUpdates {
			t.Errorf("%s: promised %s", name, strategy.Claim.Restocked)
		}
		for _, on := range strategy.Stores {
			if err := service.SetStock(t.Context(), 1, 10); err != nil {
				t.Fatal(err)
			}
			holder := park(t, service.Deducter(t, name, on), stock.Request{GoodsID: 1, Count: 1}, stock.BeforeWrite)
			if _, err := service.Restock(t.Context(), on, 1, 5); err != nil {
				t.Fatal(err)
			}
			if err := holder.goOn(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if units, err := service.Stock(t.Context(), on, 1); err != nil || units != 9 {
				t.Errorf("%s, %s: %d units, %v, want 9: the 5 that were put back are lost", name, on, units, err)
			}
		}
	}
}

// With the stock itself as its version, a deduction does not notice that the stock fell and came back (ABA). It need
// not: to take from the same stock is right, whatever happened meanwhile.
func TestOptimisticStockLosesNothingWhereARestockBringsTheSameStockBack(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	d := service.Deducter(t, "optimistic-stock", stock.MySQL)
	if err := service.SetStock(t.Context(), 1, 10); err != nil {
		t.Fatal(err)
	}
	late := park(t, d, stock.Request{GoodsID: 1, Count: 1}, stock.BeforeWrite)
	sell(t, d, stock.Request{GoodsID: 1, Count: 3})
	if _, err := service.Restock(t.Context(), stock.MySQL, 1, 3); err != nil {
		t.Fatal(err)
	}
	if err := late.goOn(); err != nil {
		t.Error(err)
	}
	if units, err := service.Stock(t.Context(), stock.MySQL, 1); err != nil || units != 9 {
		t.Errorf("%d units, %v, want 9 of 10, when 3 more were put back and 4 sold", units, err)
	}
}

func TestAFenceRefusesAHolderWhoReadBeforeARestock(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, on := range bothStores {
		d := service.Deducter(t, "lock-redis-fenced", on)
		if err := service.SetStock(t.Context(), 1, 10); err != nil {
			t.Fatal(err)
		}
		holder := park(t, d, stock.Request{GoodsID: 1, Count: 1}, stock.BeforeWrite)
		if _, err := service.Restock(t.Context(), on, 1, 5); err != nil {
			t.Fatal(err)
		}
		if err := holder.goOn(); !errors.Is(err, stock.ErrFenced) {
			t.Errorf("%s: %v, want fenced", on, err)
		}
		receipt, err := d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
		if err != nil || receipt.Remaining != 14 {
			t.Errorf("%s: the next holder: %+v, %v, want 14 remaining", on, receipt, err)
		}
	}
}

func TestALostReplyOfARestockLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	direct := stocktest.NewService(t, a.Connect(t))
	config, err := mysql.ParseDSN(a.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	toMySQL := newProxy(t, config.Addr, regexp.MustCompile(`UPDATE good_stock SET stock|COMMIT$`))
	toRedis := newProxy(t, a.Redis.Addr, regexp.MustCompile(`(?i)\r\nevalsha\r\n`))
	config.Addr = toMySQL.addr()
	a.MySQL = config.FormatDSN()
	a.Redis = &redis.Options{Addr: toRedis.addr(), DB: a.Redis.DB}
	service := stocktest.NewService(t, a.Connect(t))
	for on, network := range map[stock.Store]*proxy{stock.MySQL: toMySQL, stock.Redis: toRedis, stock.Slots: toMySQL} {
		if err := direct.SetStock(t.Context(), 1, 10); err != nil {
			t.Fatal(err)
		}
		// Once, so that the script is loaded and a connection is there.
		if _, err := service.Restock(t.Context(), on, 1, 1); err != nil {
			t.Fatal(err)
		}
		network.arm(beforeReply)
		if _, err := service.Restock(t.Context(), on, 1, 3); !errors.Is(err, stock.ErrUnknown) {
			t.Errorf("%s: %v, want outcome unknown", on, err)
		}
		if units, err := direct.Stock(t.Context(), on, 1); err != nil || units != 14 {
			t.Errorf("%s: %d units, %v, want 14: the restock took effect", on, units, err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := service.Restock(cancelled, on, 1, 3); !errors.Is(err, stock.ErrBusy) {
			t.Errorf("%s: %v, want busy: it was cancelled before", on, err)
		}
	}
}
