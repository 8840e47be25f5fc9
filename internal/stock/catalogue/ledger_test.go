package catalogue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

// idempotent visits every strategy that honours keys.
func idempotent(t *testing.T, visit func(t *testing.T, name string)) {
	for _, strategy := range catalogue.Strategies {
		if strategy.Idempotent {
			t.Run(strategy.Name, func(t *testing.T) {
				t.Parallel()
				visit(t, strategy.Name)
			})
		}
	}
}

func setStock(t testing.TB, service *stocktest.Service, id, units int64) {
	t.Helper()
	if err := service.SetStock(t.Context(), id, units); err != nil {
		t.Fatal(err)
	}
}

// wantLeft checks the stock in MySQL.
func wantLeft(t testing.TB, service *stocktest.Service, id, want int64) {
	t.Helper()
	if left, err := service.Stock(t.Context(), stock.MySQL, id); err != nil || left != want {
		t.Errorf("%d units are left, %v, want %d", left, err, want)
	}
}

func TestAStrategyRefusesAKeyThatItWouldIgnore(t *testing.T) {
	t.Parallel()
	for _, strategy := range catalogue.Strategies {
		if err := strategy.CheckKey("k"); strategy.Idempotent != (err == nil) || err != nil && !errors.Is(err, stock.ErrKeyUnsupported) {
			t.Errorf("%s: %v", strategy.Name, err)
		}
		if err := strategy.CheckKey(""); err != nil {
			t.Errorf("%s refuses no key: %v", strategy.Name, err)
		}
	}
}

func TestAnswersToKeysOutliveTheReplica(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		a := stocktest.NewAddresses(t)
		order := stock.Request{GoodsID: 1, Count: 2, Key: "k"}
		for start := range 2 {
			service := stocktest.NewService(t, a.Connect(t))
			if start == 0 {
				setStock(t, service, 1, 10)
			}
			receipt, err := service.Deducter(t, name, stock.MySQL).Deduct(t.Context(), order)
			if err != nil || receipt.Remaining != 8 || receipt.Replayed != (start == 1) {
				t.Errorf("start %d: %+v, %v", start, receipt, err)
			}
			wantLeft(t, service, 1, 8)
			if err := service.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// The connection is cut before the COMMIT is sent, and before its reply arrives. The client knows neither, and need
// not.
func TestARetryFindsOutWhatBecameOfAnUnknownCommit(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		a := stocktest.NewAddresses(t)
		direct := stocktest.NewService(t, a.Connect(t))
		config, err := mysql.ParseDSN(a.MySQL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := newProxy(t, config.Addr, regexp.MustCompile(`COMMIT$`))
		config.Addr = proxy.addr()
		a.MySQL = config.FormatDSN()
		d := stocktest.NewService(t, a.Connect(t)).Deducter(t, name, stock.MySQL)
		for id, test := range map[int64]struct {
			cut      cut
			replayed bool
		}{1: {beforeSent, false}, 2: {beforeReply, true}} {
			setStock(t, direct, id, 10)
			order := stock.Request{GoodsID: id, Count: 3, Key: fmt.Sprint("k", id)}
			proxy.arm(test.cut)
			if _, err := d.Deduct(t.Context(), order); !errors.Is(err, stock.ErrUnknown) && test.replayed || err == nil {
				t.Errorf("cut %d: %v, want outcome unknown", test.cut, err)
			}
			// Until the server notices that the connection is gone, the first request is in progress.
			receipt := untilAnswered(t, direct.Deducter(t, name, stock.MySQL), order)
			if receipt.Remaining != 7 || receipt.Replayed != test.replayed {
				t.Errorf("cut %d, then sent again: %+v, want 7 remaining, replayed %v", test.cut, receipt, test.replayed)
			}
			wantLeft(t, direct, id, 7)

			// Sold out is known for certain, whether or not it was written down.
			order = stock.Request{GoodsID: id, Count: 100, Key: fmt.Sprint("sold out ", id)}
			proxy.arm(test.cut)
			if _, err := d.Deduct(t.Context(), order); !errors.Is(err, stock.ErrUnavailable) || errors.Is(err, stock.ErrUnknown) {
				t.Errorf("cut %d of sold out: %v, want unavailable", test.cut, err)
			}
			wantLeft(t, direct, id, 7)
		}
	})
}

// untilAnswered sends an order again until its answer is "done".
func untilAnswered(t testing.TB, d stock.Deducter, order stock.Request) (receipt stock.Receipt) {
	t.Helper()
	serverstest.Eventually(t, "the order is answered", func() bool {
		var err error
		receipt, err = d.Deduct(t.Context(), order)
		if err != nil && !errors.Is(err, stock.ErrInProgress) {
			t.Fatal(err)
		}
		return err == nil
	})
	return receipt
}

// The client gave up, and its first request still waits for the goods in the database, on a connection that is closed.
func TestAnOrderThatTimedOutIsNotCarriedOutTwice(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	d := service.Deducter(t, "ledger", stock.MySQL)
	setStock(t, service, 1, 10)
	row, err := deps.MySQL.BeginTxx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer row.Rollback()
	if _, err := row.Exec("SELECT stock FROM good_stock WHERE goods_id = 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	order := stock.Request{GoodsID: 1, Count: 3, Key: "k"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := d.Deduct(ctx, order)
		done <- err
	}()
	waitForRowLock(t, deps)
	cancel()
	if err := <-done; !errors.Is(err, stock.ErrBusy) {
		t.Errorf("%v, want busy: nothing was committed", err)
	}
	if _, err := d.Deduct(t.Context(), order); !errors.Is(err, stock.ErrInProgress) {
		t.Errorf("sent again while the first waits: %v, want in progress", err)
	}
	if err := row.Rollback(); err != nil {
		t.Fatal(err)
	}
	if receipt := untilAnswered(t, d, order); receipt.Replayed || receipt.Remaining != 7 {
		t.Errorf("sent again afterwards: %+v, want a sale of its own", receipt)
	}
	wantLeft(t, service, 1, 7)
}

func TestAnOrderWhoseConnectionIsLostInTheMiddleCanBeSentAgain(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		a := stocktest.NewAddresses(t)
		service, killer := stocktest.NewService(t, a.Connect(t)), a.Connect(t).MySQL
		d := service.Deducter(t, name, stock.MySQL)
		setStock(t, service, 1, 10)
		order := stock.Request{GoodsID: 1, Count: 3, Key: "k"}
		killed := order
		killed.Pause = func(ctx context.Context, at stock.Point) error {
			if at != stock.BeforeCommit {
				return nil
			}
			var ids []int64
			err := killer.Select(&ids, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
			for _, id := range ids {
				_, _ = killer.Exec("KILL ?", id) // one may be gone
			}
			return err
		}
		if _, err := d.Deduct(t.Context(), killed); err == nil {
			t.Error("the deduction was confirmed")
		}
		if receipt := untilAnswered(t, d, order); receipt.Replayed || receipt.Remaining != 7 {
			t.Errorf("sent again: %+v, want a sale of its own", receipt)
		}
		wantLeft(t, service, 1, 7)
	})
}

// Buyers send half of their orders with keys, and those up to three times at once, to two replicas. Whatever they are
// told, the ledger and the stock make up what there was, and each receipt is in the ledger once.
func TestTheLedgerAndTheStockMakeUpWhatThereWas(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		const initial, buyers, orders = 150, 16, 12
		a := stocktest.NewAddresses(t)
		deps := a.Connect(t)
		first := stocktest.NewService(t, deps)
		replicas := []stock.Deducter{first.Deducter(t, name, stock.MySQL), stocktest.NewService(t, a.Connect(t)).Deducter(t, name, stock.MySQL)}
		setStock(t, first, 1, initial)
		var mu sync.Mutex
		sold := map[string]int{}      // units, by key
		remaining := map[string]int{} // as answered
		soldWithoutKey := 0
		var wg sync.WaitGroup
		for buyer := range buyers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(2, uint64(buyer)))
				for i := range orders {
					order := stock.Request{GoodsID: 1, Count: 1 + rng.IntN(3)}
					tries := 1
					if rng.IntN(2) == 0 {
						order.Key, tries = fmt.Sprintf("%d of %d", i, buyer), 3
					}
					var retries sync.WaitGroup
					for try := range tries {
						retries.Go(func() {
							receipt, err := replicas[(buyer+try)%2].Deduct(t.Context(), order)
							mu.Lock()
							defer mu.Unlock()
							switch {
							case err == nil && order.Key == "":
								soldWithoutKey += order.Count
							case err == nil:
								if before, ok := remaining[order.Key]; ok && before != int(receipt.Remaining) {
									t.Errorf("key %s: %d remaining, and %d", order.Key, before, receipt.Remaining)
								}
								sold[order.Key], remaining[order.Key] = order.Count, int(receipt.Remaining)
							case !errors.Is(err, stock.ErrSoldOut) && !errors.Is(err, stock.ErrInProgress):
								t.Error(err)
							}
						})
					}
					retries.Wait()
				}
			})
		}
		wg.Wait()
		wantSold := soldWithoutKey
		for key, count := range sold {
			wantSold += count
			var written int
			if err := deps.MySQL.Get(&written, "SELECT count FROM ledger WHERE order_key = ?", []byte(key)); err != nil || written != count {
				t.Errorf("the ledger has %d units for key %s, %v, want %d", written, key, err, count)
			}
		}
		var inLedger int
		if err := deps.MySQL.Get(&inLedger, "SELECT SUM(count) FROM ledger WHERE goods_id = 1"); err != nil || inLedger != wantSold {
			t.Errorf("the ledger has %d units, %v, clients were told of %d", inLedger, err, wantSold)
		}
		wantLeft(t, first, 1, int64(initial-inLedger))
	})
}
