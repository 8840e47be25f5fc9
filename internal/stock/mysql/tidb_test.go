package mysql_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
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

// batch-ledger looks up keys with a read that locks nothing then, so it does not see that a key is in progress. It
// waits for the key when it records the sale, or finds it taken.
func TestTiDBSellsAKeyOnceAlsoIfABatchDoesNotSeeThatItIsInProgress(t *testing.T) {
	t.Parallel()
	a, connect := tidbUntold(t)
	batches := func(s *stocktest.Service) stock.Deducter { return s.Deducter(t, mysql.BatchLedgerName, stock.MySQL) }
	service := connect(a)
	id := service.NewItem(t, 100)
	sale := stock.Request{GoodsID: id, Count: 2, Key: "parked"}
	worker := stocktest.Park(t, batches(service), stocktest.WithWork(sale), stocktest.BeforeWrite)
	impatient := batches(connect(a.WithMySQLParam(t, "innodb_lock_wait_timeout", "1")))
	if _, err := impatient.Deduct(t.Context(), sale); !errors.Is(err, stock.ErrBusy) {
		t.Errorf("while the key is in progress: %v, want busy after a wait", err)
	}
	if err := worker.Resume(); err != nil {
		t.Error(err)
	}
	if receipt, err := impatient.Deduct(t.Context(), sale); !receipt.Replayed || receipt.Remaining != 98 {
		t.Errorf("after it was sold: %+v, %v, want 98 remaining, replayed", receipt, err)
	}
	const keys = 10
	var clients sync.WaitGroup
	for range 3 {
		replica := batches(connect(a))
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
	service.WantLeft(t, stock.MySQL, id, 98-keys)
}
