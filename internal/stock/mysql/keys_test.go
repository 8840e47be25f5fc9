package mysql_test

import (
	"fmt"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func TestTheLedgerTellsFromWhichStockAndEpochASaleWasMade(t *testing.T) {
	t.Parallel()
	deps, service := newReplica(t)
	for name, store := range map[string]stock.Store{
		"update": stock.MySQL, "batch": stock.MySQL, "for-update": stock.MySQL, "slots": stock.Slots,
		"escrow": stock.Slots, "units": stock.Units, "mutex-around-tx": stock.MySQL,
	} {
		{ // the stock is set twice, so that it has a new epoch
			id := service.NewItem(t, 5)
			service.Set(t, id, 10)
			var epoch int64
			if err := deps.MySQL.Get(&epoch, "SELECT epoch FROM good_stock WHERE goods_id = ?", id); err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprint(name, id)
			stocktest.Sell(t, service.Deducter(t, name, store), stock.Request{GoodsID: id, Count: 3, Key: key})
			var row struct {
				GoodsID int64 `db:"goods_id"`
				Count   int
				Store   stock.Store
				Epoch   int64
			}
			err := deps.MySQL.Get(&row, "SELECT goods_id, count, store, epoch FROM ledger WHERE order_key = ?", []byte(key))
			if err != nil || row.GoodsID != id || row.Count != 3 || row.Store != store || row.Epoch != epoch {
				t.Errorf("%s: the ledger has %+v, %v, want 3 of item %d, of %s and epoch %d", name, row, err, id, store, epoch)
			}
		}
	}
}
