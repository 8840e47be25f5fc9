package mysql_test

import (
	"errors"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func TestOnlyAStrategyOfTheStoreKnowsASale(t *testing.T) {
	t.Parallel()
	_, service := newReplica(t)
	id := service.NewItem(t, 10)
	update, slots := service.Deducter(t, "update", stock.MySQL), service.Deducter(t, "slots", stock.Slots)
	stocktest.Sell(t, update, stock.Request{GoodsID: id, Count: 1, Key: "sold"})
	_, err := slots.(stock.Canceller).Sale(t.Context(), stock.SaleID{Key: "sold"})
	if !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("read the sale: %v, want the key of another store", err)
	}
	cancel := stock.CancelRequest{SaleID: stock.SaleID{Key: "unknown"}}
	for _, d := range []stock.Deducter{update, slots, update} {
		sale, err := d.(stock.Canceller).CancelSale(t.Context(), cancel)
		if err != nil || sale.State != stock.SaleNeverSold {
			t.Errorf("cancel an unknown key: %+v, %v, want never sold", sale, err)
		}
	}
}
