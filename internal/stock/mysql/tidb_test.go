package mysql_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// tidbUntold returns the addresses of a TiDB, and a function that connects a replica without --tidb. It skips the test
// if the server is not TiDB.
func tidbUntold(t *testing.T) (a stocktest.Addresses, connect func(stocktest.Addresses) *stocktest.Service) {
	t.Helper()
	if serverstest.TiDB == "" {
		t.Skip("these tests do not run on TiDB: see make test-tidb")
	}
	return stocktest.NewAddresses(t, stock.NeedMySQL), func(a stocktest.Addresses) *stocktest.Service {
		deps := a.Connect(t)
		deps.TiDB = false
		return stocktest.NewService(t, deps)
	}
}

// A service that was not told that its server is TiDB must not sell units twice either.
func TestTiDBSellsNothingByStatementsThatItLacks(t *testing.T) {
	t.Parallel()
	a, connect := tidbUntold(t)
	service := connect(a)
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

func TestTiDBSellsOnceForEachKey(t *testing.T) {
	t.Parallel()
	a, connect := tidbUntold(t)
	service := connect(a)
	id := service.NewItem(t, 100)
	const keys = 10
	var clients sync.WaitGroup
	for range 3 {
		replica := connect(a).Deducter(t, "batch", stock.MySQL)
		for i := range keys {
			clients.Go(func() {
				sale := stock.Request{GoodsID: id, Count: 1, Key: strconv.Itoa(i)}
				if _, err := replica.Deduct(t.Context(), sale); err != nil && !errors.Is(err, stock.ErrInProgress) {
					t.Error(err)
				}
			})
		}
	}
	clients.Wait()
	service.WantLeft(t, stock.MySQL, id, 100-keys)
}
