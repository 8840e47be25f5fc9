package guard_test

import (
	"errors"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// A holder of the lock would overwrite what another strategy puts back meanwhile.
func TestASaleUnderALockWithoutAFenceIsCancelledByItsStrategyOnly(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis).Connect(t))
	for _, c := range []struct {
		store         stock.Store
		seller, other string
	}{
		{stock.MySQL, "lock-redis-lua", "update"},
		{stock.MySQL, "lock-redis-lua", "lock-redis-owner"},
		{stock.MySQL, "lock-redis-lua", "lock-redis-fenced"},
		{stock.MySQL, "mutex-around-tx", "update"},
		{stock.Redis, "lock-redis-lua", "redis-script"},
	} {
		seller, other := service.Deducter(t, c.seller, c.store), service.Deducter(t, c.other, c.store)
		id := service.NewItem(t, 10)
		sold := stock.Request{GoodsID: id, Count: 4, Key: c.seller + " before " + c.other}
		stocktest.Sell(t, seller, sold)
		holder := stocktest.Park(t, seller, stocktest.WithWork(stock.Request{GoodsID: id, Count: 2}), stocktest.BeforeWrite)
		cancel := stock.CancelRequest{SaleID: stock.SaleID{Key: sold.Key}}
		_, err := other.(stock.Canceller).CancelSale(t.Context(), cancel)
		if !errors.Is(err, stock.ErrKeyReused) || !strings.Contains(err.Error(), "strategy "+c.seller+",") {
			t.Errorf("%s cancels a sale by %s: %v, want a refusal that names the strategy", c.other, c.seller, err)
		}
		must.Succeed(t, holder.Resume())
		found, err := other.(stock.Canceller).Sale(t.Context(), cancel.SaleID)
		if err != nil || found.State != stock.SaleDone || found.Guard != c.seller {
			t.Errorf("%s reads a sale by %s: %+v, %v, want it sold", c.other, c.seller, found, err)
		}
		for range 2 {
			found, err = seller.(stock.Canceller).CancelSale(t.Context(), cancel)
			if err != nil || found.State != stock.SaleCancelled {
				t.Errorf("%s cancels its sale: %+v, %v, want cancelled", c.seller, found, err)
			}
		}
		service.WantLeft(t, c.store, id, 8)
	}
}
