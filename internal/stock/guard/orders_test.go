package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// A later holder writes one of two items before the order does, and leaves its stock as it was: only the token shows
// that. The other item is not written either.
func TestALateOrderIsRefusedCompletely(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis))
	o.Items = []int64{-stocktest.NewItem(), 1} // item 1 is written last
	for _, id := range o.Items {
		o.Service.Set(t, id, 10)
	}
	sellMeanwhile := stocktest.Once(stocktest.BeforeWrite, func(ctx context.Context) {
		later := stock.Holder{Issuer: "lock-redis-fenced", Token: 1 << 62}
		if err := sellAs(ctx, o.Deps, stock.MySQL, 1, later); err != nil {
			t.Error(err)
		}
	})
	_, err := o.Place("lock-redis-fenced", stock.MySQL, sellMeanwhile, 3, 4)
	line, isLine := errors.AsType[*stock.LineError](err)
	if !isLine || line.GoodsID != 1 || !errors.Is(err, stock.ErrFenced) ||
		!strings.Contains(err.Error(), "token 4611686018427387904 of lock-redis-fenced") {
		t.Errorf("%v, want that item 1 is fenced", err)
	}
	o.WantLeft(stock.MySQL, 10, 10)
}
