package mysql_test

import (
	"context"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// sellAndRestock sells units by another strategy and puts them back before the first attempt writes (ABA).
func sellAndRestock(t testing.TB, service *stocktest.Service, goodsID int64, units int) stocktest.PauseFunc {
	t.Helper()
	other := service.Deducter(t, "update", stock.MySQL)
	return stocktest.Once(stocktest.BeforeWrite, func(ctx context.Context) {
		stocktest.Sell(t, other, stock.Request{GoodsID: goodsID, Count: units})
		if _, err := service.Restock(ctx, stock.MySQL, goodsID, int64(units)); err != nil {
			t.Error(err)
		}
	})
}

// The stock is the same as when it was read, but only a version or a timestamp shows that it was changed meanwhile.
func TestOnlyOptimisticStockOverlooksThatTheStockChangedAndCameBack(t *testing.T) {
	t.Parallel()
	_, service := newReplica(t)
	for name, attempts := range map[string]int{
		"optimistic-stock":        1, // the stale write is accepted
		"optimistic-version":      2,
		"optimistic-timestamp-us": 2,
	} {
		id := service.NewItem(t, 10)
		ctx := stocktest.WithPause(t.Context(), sellAndRestock(t, service, id, 2))
		receipt, err := service.Deducter(t, name, stock.MySQL).Deduct(ctx, stock.Request{GoodsID: id, Count: 3})
		if err != nil || receipt.Attempts != attempts || receipt.Remaining != 7 {
			t.Errorf("%s: %+v, %v, want 7 remaining after %d attempts", name, receipt, err, attempts)
		}
	}
}

// A clock that was set back, or has not moved between two writes, must not produce the same timestamp again.
func TestATimestampGrowsWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	deps, service := newReplica(t)
	id := service.NewItem(t, 10)
	deps.MySQL.MustExecContext(t.Context(),
		"UPDATE good_stock SET stamp = '2999-12-31 23:59:59.999999' WHERE goods_id = ?", id)
	stocktest.Sell(t, service.Deducter(t, "optimistic-timestamp-us", stock.MySQL), stock.Request{GoodsID: id, Count: 1})
	var stamp string
	err := deps.MySQL.GetContext(t.Context(), &stamp, "SELECT CAST(stamp AS CHAR) FROM good_stock WHERE goods_id = ?", id)
	if want := "3000-01-01 00:00:00.000000"; err != nil || stamp != want {
		t.Errorf("the timestamp is %s, %v, want %s", stamp, err, want)
	}
}
