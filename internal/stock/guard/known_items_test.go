package guard_test

import (
	"errors"
	"testing"

	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/guard"
	"stock/internal/stock/stocktest"
)

func TestUnknownItemsAreNotRemembered(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis).Connect(t)
	id := stocktest.NewService(t, deps).NewItem(t, 10)
	for _, on := range bothStores {
		replica := guard.NewReplica(deps)
		d := replica.New(stocktest.Strategy(t, "lock-redis-lua"), new(locks.Mutex), on)
		for range 3 {
			_, err := d.Deduct(t.Context(), stock.Request{GoodsID: stocktest.NewItem(), Count: 1})
			if !errors.Is(err, stock.ErrUnknownItem) {
				t.Errorf("on %s: %v, want unknown item", on, err)
			}
			stocktest.Sell(t, d, stock.Request{GoodsID: id, Count: 1})
		}
		if n := replica.Remembered(on); n != 1 {
			t.Errorf("on %s: %d items are remembered, want the one that exists", on, n)
		}
	}
}
