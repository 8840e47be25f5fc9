package mysql_test

import (
	"errors"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// On Galera, the statements of a transaction are sent one by one. That works with every MySQL.
func TestStatementsThatAreSentOneByOneSellOnce(t *testing.T) {
	eachKeyed(t, func(t *testing.T, name string) {
		deps := stocktest.NewAddresses(t, stock.NeedMySQL).Connect(t)
		deps.Galera = true
		service := stocktest.NewService(t, deps)
		item := service.NewItem(t, 10)
		strategy := service.Deducter(t, name, stock.MySQL)
		for n := range 2 {
			receipt, err := strategy.Deduct(t.Context(), stock.Request{GoodsID: item, Count: 3, Key: "a"})
			must.Succeed(t, err)
			if receipt.Remaining != 7 || receipt.Replayed != (n == 1) {
				t.Errorf("answer %d: %d units remain, replayed %v; want 7, %v", n, receipt.Remaining, receipt.Replayed, n == 1)
			}
		}
		var soldOut *stock.SoldOutError
		for range 2 {
			_, err := strategy.Deduct(t.Context(), stock.Request{GoodsID: item, Count: 8, Key: "b"})
			if !errors.As(err, &soldOut) || soldOut.Remaining != 7 {
				t.Errorf("8 of 7 units: %v, want sold out", err)
			}
		}
		service.WantLeft(t, stock.MySQL, item, 7)
	})
}
