package mysql_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"stock/internal/stock"
	mysqlstore "stock/internal/stock/mysql"
	"stock/internal/stock/stocktest"
)

// newOrders makes a replica and its items, in a database that no other test uses.
func newOrders(t testing.TB, units ...int64) (*stocktest.Orders, stocktest.Addresses) {
	t.Helper()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	return stocktest.NewOrders(t, a, units...), a
}

// wantRows checks the units of each of the key's rows in the ledger.
func wantRows(t testing.TB, o *stocktest.Orders, key string, want ...int) {
	t.Helper()
	var got []int
	err := o.Deps.MySQL.Select(&got, "SELECT count FROM ledger WHERE order_key = ? ORDER BY line", []byte(key))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("key %q has rows of %v units, %v, want %v", key, got, err, want)
	}
}

func TestAnOrderThatIsSentAgainIsAnsweredWithEveryLine(t *testing.T) {
	eachKeyed(t, func(t *testing.T, name string) {
		o, a := newOrders(t, 10, 10)
		first, err := o.Send(name, stock.MySQL, o.Request("k", 3, 4))
		if err != nil || first.Replayed {
			t.Fatalf("%+v, %v, want a new sale", first, err)
		}
		if _, err := o.Place(name, stock.MySQL, nil, 1, 1); err != nil {
			t.Fatal(err)
		}
		// The order is the same if its lines are sorted or split differently, and if there is work to do.
		req, err := stock.NewOrder(
			stock.Line{GoodsID: o.Items[1], Count: 1},
			stock.Line{GoodsID: o.Items[0], Count: 3},
			stock.Line{GoodsID: o.Items[1], Count: 3})
		if err != nil {
			t.Fatal(err)
		}
		req.Key, req.Hold = "k", time.Millisecond
		again, err := o.OnReplica(a).Send(name, stock.MySQL, req)
		if err != nil || !again.Replayed || !slices.Equal(again.Lines, first.Lines) {
			t.Errorf("answered %+v, then %+v, %v, want a replay with the same lines", first, again, err)
		}
		o.WantLeft(stock.MySQL, 6, 5)
		wantRows(t, o, "k", 3, 4)
	})
}

func TestASoldOutOrderThatIsSentAgainNamesTheSameItem(t *testing.T) {
	eachKeyed(t, func(t *testing.T, name string) {
		o, a := newOrders(t, 10, 1, 10)
		want := stock.SoldOutError{GoodsID: o.Items[1], Asked: 2, Remaining: 1}
		for _, test := range []struct {
			on       *stocktest.Orders
			replayed bool
			left     int64
		}{{o, false, 1}, {o.OnReplica(a), true, 10}} {
			receipt, err := test.on.Send(name, stock.MySQL, o.Request("k", 1, 2, 3))
			line, isLine := errors.AsType[*stock.LineError](err)
			soldOut, isSoldOut := errors.AsType[*stock.SoldOutError](err)
			if !isLine || !isSoldOut || line.GoodsID != o.Items[1] || *soldOut != want {
				t.Errorf("got %v, want that item %d is sold out with 1 remaining", err, o.Items[1])
			}
			if receipt.Replayed != test.replayed {
				t.Errorf("replayed is %v, want %v", receipt.Replayed, test.replayed)
			}
			o.WantLeft(stock.MySQL, 10, test.left, 10)
			if _, err := o.Deps.MySQL.Exec("UPDATE good_stock SET stock = 10"); err != nil {
				t.Fatal(err)
			}
		}
		wantRows(t, o, "k", 0)
		// An order without a key cannot be sent again: a refusal is not recorded.
		if _, err := o.Place(name, stock.MySQL, nil, 1, 20, 1); !errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("got %v, want sold out", err)
		}
		var rows int
		if err := o.Deps.MySQL.Get(&rows, "SELECT COUNT(*) FROM ledger"); err != nil || rows != 1 {
			t.Errorf("the ledger has %d rows, %v, want 1", rows, err)
		}
		o.WantLeft(stock.MySQL, 10, 10, 10)
	})
}

func TestAKeyThatWasUsedForAnotherOrderIsRefused(t *testing.T) {
	eachKeyed(t, func(t *testing.T, name string) {
		o, _ := newOrders(t, 10, 10)
		d := o.Service.Deducter(t, name, stock.MySQL)
		deduction := stock.Request{GoodsID: o.Items[0], Count: 3, Key: "deducted"}
		stocktest.Sell(t, d, deduction)
		for _, counts := range [][]int{{3, 4}, {3}} {
			deduction.Key = fmt.Sprint("ordered ", len(counts))
			if _, err := o.Send(name, stock.MySQL, o.Request(deduction.Key, counts...)); err != nil {
				t.Fatal(err)
			}
			_, deducted := d.Deduct(t.Context(), deduction)
			_, ordered := o.Send(name, stock.MySQL, o.Request("deducted", counts...))
			_, other := o.Send(name, stock.MySQL, o.Request(deduction.Key, 2, 4))
			for _, err := range []error{deducted, ordered, other} {
				if !errors.Is(err, stock.ErrKeyReused) {
					t.Errorf("%v, want key reused", err)
				}
			}
		}
		o.WantLeft(stock.MySQL, 1, 6)
	})
}

// orderTally adds up what buyers were answered. A key counts once.
type orderTally struct {
	t testing.TB

	mu    sync.Mutex
	byKey map[string][]stock.LineReceipt
	units map[int64]int64 // by item
	keyed map[int64]int64 // of them, by requests with a key
}

// add records the answer to an order.
func (y *orderTally) add(req stock.OrderRequest, receipt stock.OrderReceipt, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	before, known := y.byKey[req.Key]
	switch {
	case err == nil && !known:
		for _, line := range receipt.Lines {
			y.units[line.GoodsID] += int64(line.Count)
			if req.Key != "" {
				y.keyed[line.GoodsID] += int64(line.Count)
			}
		}
		if req.Key != "" {
			y.byKey[req.Key] = receipt.Lines
		}
	case err == nil && !slices.Equal(before, receipt.Lines):
		y.t.Errorf("key %s was answered with %v and %v", req.Key, before, receipt.Lines)
	case err != nil && !errors.Is(err, stock.ErrSoldOut) && !errors.Is(err, stock.ErrInProgress):
		y.t.Error(err)
	}
}

// wantLedger checks that the ledger has what buyers were answered.
func (y *orderTally) wantLedger(o *stocktest.Orders) {
	y.t.Helper()
	for key, lines := range y.byKey {
		var counts []int
		for _, line := range lines {
			counts = append(counts, line.Count)
		}
		wantRows(y.t, o, key, counts...)
	}
	for _, id := range o.Items {
		var recorded int64
		err := o.Deps.MySQL.Get(&recorded, "SELECT COALESCE(SUM(count), 0) FROM ledger WHERE goods_id = ?", id)
		if err != nil || recorded != y.keyed[id] {
			y.t.Errorf("the ledger has %d units of item %d, %v, want the %d of the receipts",
				recorded, id, err, y.keyed[id])
		}
	}
}

// Orders have one to three lines in random order. Half of them have a key: these are sent three times at once, to two
// replicas.
func TestTheLedgerOfOrdersAndTheStockAddUp(t *testing.T) {
	eachKeyed(t, func(t *testing.T, name string) {
		const initial, buyers, rounds = 100, 8, 8
		o, a := newOrders(t, initial, initial, initial)
		replicas := []*stocktest.Orders{o, o.OnReplica(a)}
		answers := &orderTally{t: t}
		answers.byKey, answers.units, answers.keyed = map[string][]stock.LineReceipt{}, map[int64]int64{}, map[int64]int64{}
		var wg sync.WaitGroup
		for buyer := range buyers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(3, uint64(buyer)))
				for i := range rounds {
					var lines []stock.Line
					for _, item := range rng.Perm(3)[:1+rng.IntN(3)] {
						lines = append(lines, stock.Line{GoodsID: o.Items[item], Count: 1 + rng.IntN(3)})
					}
					req, err := stock.NewOrder(lines...)
					if err != nil {
						t.Error(err)
						return
					}
					tries := 1
					if rng.IntN(2) == 0 {
						req.Key, tries = fmt.Sprintf("%d of %d", i, buyer), 3
					}
					var retries sync.WaitGroup
					for try := range tries {
						retries.Go(func() {
							receipt, err := replicas[(buyer+try)%2].Send(name, stock.MySQL, req)
							answers.add(req, receipt, err)
						})
					}
					retries.Wait()
				}
			})
		}
		wg.Wait()
		answers.wantLedger(o)
		var left []int64
		for _, id := range o.Items {
			left = append(left, initial-answers.units[id])
		}
		o.WantLeft(stock.MySQL, left...)
	})
}

// The rows of an order are deleted together, although the row of a line is a moment younger than that of the key.
func TestPruneLedgerDeletesAnOrderWithAllOfItsLines(t *testing.T) {
	t.Parallel()
	o, _ := newOrders(t, 10, 10)
	for i, key := range []string{"old", "young"} {
		if _, err := o.Send("update", stock.MySQL, o.Request(key, 3, 4)); err != nil {
			t.Fatal(err)
		}
		_, err := o.Deps.MySQL.Exec(`UPDATE ledger SET created_at = created_at - INTERVAL 2 HOUR
			WHERE order_key = ? AND line = ?`, []byte(key), i)
		if err != nil {
			t.Fatal(err)
		}
	}
	deleted, err := mysqlstore.PruneLedger(t.Context(), o.Deps.MySQL, time.Hour)
	if err != nil || deleted != 2 {
		t.Errorf("%d rows were deleted, %v, want 2", deleted, err)
	}
	wantRows(t, o, "old")
	wantRows(t, o, "young", 3, 4)
}
