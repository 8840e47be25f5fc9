package mysql_test

import (
	"errors"
	"strings"
	"testing"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// A service that was not told that its server is TiDB must not sell units twice either.
func TestTiDBSellsNothingByStatementsThatItLacks(t *testing.T) {
	if serverstest.TiDB == "" {
		t.Skip("these tests do not run on TiDB: see make test-tidb")
	}
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL).Connect(t)
	deps.TiDB = false
	service := stocktest.NewService(t, deps)
	id := service.NewItem(t, 10)
	for name, test := range map[string]struct {
		store stock.Store
		want  string
	}{
		"units":        {stock.Units, "SKIP LOCKED"},
		"serializable": {stock.MySQL, "SERIALIZABLE"},
	} {
		_, err := service.Deducter(t, name, test.store).Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1})
		if !errors.Is(err, stock.ErrUnavailable) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want unavailable because of %s", name, err, test.want)
		}
		service.WantLeft(t, test.store, id, 10)
	}
}
