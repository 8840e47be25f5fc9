package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jmoiron/sqlx"

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

func TestLedgerAnswersOutliveTheReplica(t *testing.T) {
	eachKeyed(t, func(t *testing.T, name string) {
		a := stocktest.NewAddresses(t, stock.NeedMySQL)
		req := stock.Request{GoodsID: 1, Count: 2, Key: "k"}
		for start := range 2 {
			service := stocktest.NewService(t, a.Connect(t))
			if start == 0 {
				service.Set(t, 1, 10)
			}
			receipt, err := service.Deducter(t, name, stock.MySQL).Deduct(t.Context(), req)
			if err != nil || receipt.Remaining != 8 || receipt.Replayed != (start == 1) {
				t.Errorf("start %d: %+v, %v, want 8 remaining, replayed %v", start, receipt, err, start == 1)
			}
			service.WantLeft(t, stock.MySQL, 1, 8)
			if err := service.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// The client gives up while its request waits for the row in the server.
func TestARequestThatTimedOutIsNotCarriedOutTwice(t *testing.T) {
	t.Parallel()
	deps, service := newReplica(t)
	d := service.Deducter(t, "update", stock.MySQL)
	id := service.NewItem(t, 10)
	unlock := stocktest.LockRow(t, deps.MySQL, id)
	req := stock.Request{GoodsID: id, Count: 3, Key: "k"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := d.Deduct(ctx, req)
		done <- err
	}()
	stocktest.WaitForRowLock(t, deps.MySQL)
	cancel()
	unlock()
	if err := <-done; err != nil {
		t.Errorf("%v, want a receipt: a statement that was sent does not end with its request", err)
	}
	if receipt := stocktest.RetryInProgress(t, d, req); !receipt.Replayed || receipt.Remaining != 7 {
		t.Errorf("sent again afterwards: %+v, want a replay with 7 remaining", receipt)
	}
	service.WantLeft(t, stock.MySQL, id, 7)
}

// tally adds up what buyers were answered. A key counts once.
type tally struct {
	t testing.TB

	mu              sync.Mutex
	byKey           map[string]keyedSale
	unitsWithoutKey int
}

type keyedSale struct {
	units     int
	remaining int64
}

// add records the answer to a request.
func (y *tally) add(req stock.Request, receipt stock.Receipt, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case err == nil && req.Key == "":
		y.unitsWithoutKey += req.Count
	case err == nil:
		sale := keyedSale{req.Count, receipt.Remaining}
		if before, ok := y.byKey[req.Key]; ok && before != sale {
			y.t.Errorf("key %s was answered with %+v and %+v", req.Key, before, sale)
		}
		y.byKey[req.Key] = sale
	case !errors.Is(err, stock.ErrSoldOut) && !errors.Is(err, stock.ErrInProgress):
		y.t.Error(err)
	}
}

// wantLedger checks that the ledger has what buyers were answered. It returns the units that were sold, with
// and without keys.
func (y *tally) wantLedger(db *sqlx.DB) (units int) {
	y.t.Helper()
	want := 0
	for key, sale := range y.byKey {
		want += sale.units
		var recorded int
		err := db.Get(&recorded, "SELECT count FROM ledger WHERE order_key = ?", []byte(key))
		if err != nil || recorded != sale.units {
			y.t.Errorf("the ledger has %d units for key %s, %v, want %d", recorded, key, err, sale.units)
		}
	}
	if err := db.Get(&units, "SELECT SUM(count) FROM ledger WHERE goods_id = 1"); err != nil || units != want {
		y.t.Errorf("the ledger has %d units, %v, want the %d of the receipts", units, err, want)
	}
	return units + y.unitsWithoutKey
}

// Half of the requests have a key. These are sent three times at once, to two replicas.
func TestTheLedgerAndTheStockAddUp(t *testing.T) {
	eachKeyed(t, func(t *testing.T, name string) {
		const initial, buyers, requests = 150, 16, 12
		a := stocktest.NewAddresses(t, stock.NeedMySQL)
		deps := a.Connect(t)
		first := stocktest.NewService(t, deps)
		replicas := []stock.Deducter{
			first.Deducter(t, name, stock.MySQL),
			stocktest.NewService(t, a.Connect(t)).Deducter(t, name, stock.MySQL),
		}
		first.Set(t, 1, initial)
		answers := &tally{t: t, byKey: map[string]keyedSale{}}
		var wg sync.WaitGroup
		for buyer := range buyers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(2, uint64(buyer)))
				for i := range requests {
					req := stock.Request{GoodsID: 1, Count: 1 + rng.IntN(3)}
					tries := 1
					if rng.IntN(2) == 0 {
						req.Key, tries = fmt.Sprintf("%d of %d", i, buyer), 3
					}
					var retries sync.WaitGroup
					for try := range tries {
						retries.Go(func() {
							receipt, err := replicas[(buyer+try)%2].Deduct(t.Context(), req)
							answers.add(req, receipt, err)
						})
					}
					retries.Wait()
				}
			})
		}
		wg.Wait()
		sold := answers.wantLedger(deps.MySQL)
		first.WantLeft(t, stock.MySQL, 1, int64(initial-sold))
	})
}
