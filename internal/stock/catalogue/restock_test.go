package catalogue_test

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

// A deduction that reads before a restock and writes after it must notice.
func TestRestocksAndDeductionsLoseNothingOfEachOther(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis).Connect(t))
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
		{"units", stock.Units},
	} {
		t.Run(test.strategy+"/"+string(test.on), func(t *testing.T) {
			t.Parallel()
			const initial, clerks, restocks, buyers, requests = 20, 2, 10, 4, 10
			id, d := service.NewItem(t, initial), service.Deducter(t, test.strategy, test.on)
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
					for range requests {
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
			service.WantLeft(t, test.on, id, int64(initial+2*clerks*restocks)-sold.Load())
		})
	}
}

func TestALostReplyOfARestockLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis)
	direct := stocktest.NewService(t, a.Connect(t))
	network, proxied := newProxies(t, a)
	network.mysql.Select(stocktest.Committing(regexp.MustCompile(`UPDATE good_stock SET stock|COMMIT$`)))
	network.redis.Select(stocktest.Matching(stocktest.Evalsha))
	service := stocktest.NewService(t, proxied.Connect(t))
	for _, on := range stock.Stores {
		id := direct.NewItem(t, 10)
		// The first restock loads the script and opens a connection.
		_, err := service.Restock(t.Context(), on, id, 1)
		must.Succeed(t, err)
		network.cut(tcpproxy.BeforeReply)
		if _, err := service.Restock(t.Context(), on, id, 3); !errors.Is(err, stock.ErrUnknown) {
			t.Errorf("%s: %v, want outcome unknown", on, err)
		}
		network.pass()
		direct.WantLeft(t, on, id, 14) // the restock took effect
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := service.Restock(cancelled, on, id, 3); !errors.Is(err, stock.ErrBusy) {
			t.Errorf("%s: %v, want busy: the request was cancelled before it was sent", on, err)
		}
	}
}
