package catalogue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	mysqlstore "stock/internal/stock/mysql"
	"stock/internal/stock/stocktest"
)

// wantRows checks the units of each row that the ledger has of a key.
func (o *orders) wantRows(key string, want ...int) {
	o.t.Helper()
	var got []int
	err := o.deps.MySQL.Select(&got, "SELECT count FROM ledger WHERE order_key = ? ORDER BY line", []byte(key))
	if err != nil || !slices.Equal(got, want) {
		o.t.Errorf("key %q has rows of %v units, %v, want %v", key, got, err, want)
	}
}

// restarted is the same goods in a replica of its own.
func (o *orders) restarted(a stocktest.Addresses) *orders {
	again := newOrders(o.t, a)
	again.ids = o.ids
	return again
}

func TestAnOrderThatIsSentAgainIsAnsweredWithEveryLine(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		a := stocktest.NewAddresses(t)
		o := newOrders(t, a, 10, 10)
		first, err := o.send(name, stock.MySQL, o.request("k", 3, 4))
		if err != nil || first.Replayed {
			t.Fatalf("%+v, %v", first, err)
		}
		if _, err := o.place(name, stock.MySQL, nil, 1, 1); err != nil {
			t.Fatal(err)
		}
		// In another order, with a goods twice, and with work to do, it is the same one.
		req, err := stock.NewOrder(stock.Line{GoodsID: o.ids[1], Count: 1}, stock.Line{GoodsID: o.ids[0], Count: 3}, stock.Line{GoodsID: o.ids[1], Count: 3})
		if err != nil {
			t.Fatal(err)
		}
		req.Key, req.Hold = "k", time.Millisecond
		again, err := o.restarted(a).send(name, stock.MySQL, req)
		if err != nil || !again.Replayed || !slices.Equal(again.Lines, first.Lines) {
			t.Errorf("answered %+v, and again %+v, %v", first, again, err)
		}
		o.wantLeft(stock.MySQL, 6, 5)
		o.wantRows("k", 3, 4)
	})
}

func TestASoldOutOrderThatIsSentAgainNamesItsGoodsAgain(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		a := stocktest.NewAddresses(t)
		o := newOrders(t, a, 10, 1, 10)
		for _, replica := range []*orders{o, o.restarted(a)} {
			receipt, err := replica.send(name, stock.MySQL, o.request("k", 1, 2, 3))
			line, named := errors.AsType[*stock.LineError](err)
			soldOut, told := errors.AsType[*stock.SoldOutError](err)
			if !named || !told || line.GoodsID != o.ids[1] || *soldOut != (stock.SoldOutError{GoodsID: o.ids[1], Asked: 2, Remaining: 1}) {
				t.Errorf("got %v, want that goods %d is sold out, with 1 remaining", err, o.ids[1])
			}
			if receipt.Replayed != (replica != o) {
				t.Errorf("replayed is %v", receipt.Replayed)
			}
			o.wantLeft(stock.MySQL, 10, 1, 10)
			if _, err := o.deps.MySQL.Exec("UPDATE good_stock SET stock = 10"); err != nil {
				t.Fatal(err)
			}
			if replica == o {
				if _, err := o.deps.MySQL.Exec("UPDATE good_stock SET stock = 1 WHERE goods_id = ?", o.ids[1]); err != nil {
					t.Fatal(err)
				}
			}
		}
		o.wantRows("k", 0)
		// Without a key nobody can ask again.
		if _, err := o.place(name, stock.MySQL, nil, 1, 20, 1); !errors.Is(err, stock.ErrSoldOut) {
			t.Error(err)
		}
		var rows int
		if err := o.deps.MySQL.Get(&rows, "SELECT COUNT(*) FROM ledger"); err != nil || rows != 1 {
			t.Errorf("the ledger has %d rows, %v, want 1", rows, err)
		}
		o.wantLeft(stock.MySQL, 10, 10, 10)
	})
}

func TestAKeyOfAnotherOrderIsRefused(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		o := newOrders(t, stocktest.NewAddresses(t), 10, 10)
		d := o.service.Deducter(t, name, stock.MySQL)
		deduction := stock.Request{GoodsID: o.ids[0], Count: 3, Key: "deducted"}
		if _, err := d.Deduct(t.Context(), deduction); err != nil {
			t.Fatal(err)
		}
		for _, counts := range [][]int{{3, 4}, {3}} {
			deduction.Key = fmt.Sprint("ordered ", len(counts))
			if _, err := o.send(name, stock.MySQL, o.request(deduction.Key, counts...)); err != nil {
				t.Fatal(err)
			}
			_, deducted := d.Deduct(t.Context(), deduction)
			_, ordered := o.send(name, stock.MySQL, o.request("deducted", counts...))
			_, other := o.send(name, stock.MySQL, o.request(deduction.Key, 2, 4))
			for _, err := range []error{deducted, ordered, other} {
				if !errors.Is(err, stock.ErrKeyReused) {
					t.Errorf("%v, want that the key was used for another order", err)
				}
			}
		}
		o.wantLeft(stock.MySQL, 1, 6)
	})
}

func TestAnOrderWhoseFirstRequestIsInProgressIsRefused(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		a := stocktest.NewAddresses(t)
		o := newOrders(t, a, 10, 10)
		replicas := []*orders{o, o.restarted(a)}
		first := o.request("k", 3, 4)
		asked := 0
		first.Pause = func(_ context.Context, at stock.Point) error {
			for _, replica := range replicas { // whichever point: between its goods too
				if _, err := replica.send(name, stock.MySQL, o.request("k", 3, 4)); !errors.Is(err, stock.ErrInProgress) {
					t.Errorf("at %s: %v, want in progress", at, err)
				}
				asked++
			}
			return nil
		}
		if _, err := o.send(name, stock.MySQL, first); err != nil || asked != 8 {
			t.Errorf("%v, asked %d times meanwhile", err, asked)
		}
		for _, replica := range replicas {
			if receipt, err := replica.send(name, stock.MySQL, o.request("k", 3, 4)); err != nil || !receipt.Replayed {
				t.Errorf("%+v, %v, want the first answer", receipt, err)
			}
		}
		o.wantLeft(stock.MySQL, 7, 6)
	})
}

// untilDone sends an order again until its answer is "done".
func (o *orders) untilDone(name string, req stock.OrderRequest) (receipt stock.OrderReceipt) {
	o.t.Helper()
	serverstest.Eventually(o.t, "the order is answered", func() bool {
		var err error
		receipt, err = o.send(name, stock.MySQL, req)
		if err != nil && !errors.Is(err, stock.ErrInProgress) {
			o.t.Fatal(err)
		}
		return err == nil
	})
	return receipt
}

// The connection is lost between the goods of an order, before its COMMIT and before the reply to that.
func TestAnOrderWhoseConnectionIsLostIsSoldOnceWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		a := stocktest.NewAddresses(t)
		direct := newOrders(t, a)
		config, err := mysql.ParseDSN(a.MySQL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := newProxy(t, config.Addr, regexp.MustCompile(`COMMIT$`))
		config.Addr = proxy.addr()
		a.MySQL = config.FormatDSN()
		proxied := newOrders(t, a)
		for _, test := range []struct {
			cut      cut // never: the connection is killed between the goods
			replayed bool
		}{{never, false}, {beforeSent, false}, {beforeReply, true}} {
			direct.stock(10, 10)
			proxied.ids = direct.ids
			key := fmt.Sprint("k", test.cut)
			req := proxied.request(key, 3, 4)
			if test.cut == never {
				req.Pause = func(_ context.Context, at stock.Point) error {
					if at == stock.AfterLock {
						killOthers(direct)
					}
					return nil
				}
			}
			proxy.arm(test.cut)
			if _, err := proxied.send(name, stock.MySQL, req); err == nil || test.replayed && !errors.Is(err, stock.ErrUnknown) {
				t.Errorf("cut %d: %v", test.cut, err)
			}
			// Until the server notices that the connection is gone, the first request is in progress.
			receipt := direct.untilDone(name, direct.request(key, 3, 4))
			if receipt.Replayed != test.replayed || len(receipt.Lines) != 2 || receipt.Lines[0].Remaining != 7 || receipt.Lines[1].Remaining != 6 {
				t.Errorf("cut %d, and sent again: %+v, want 7 and 6 remaining, replayed %v", test.cut, receipt, test.replayed)
			}
			direct.wantLeft(stock.MySQL, 7, 6)
			direct.wantRows(key, 3, 4)
			if test.cut == never {
				continue
			}
			// Sold out is known for certain, whether or not it was written down.
			proxy.arm(test.cut)
			if _, err := proxied.send(name, stock.MySQL, proxied.request("sold out "+key, 1, 100)); !errors.Is(err, stock.ErrUnavailable) || errors.Is(err, stock.ErrUnknown) {
				t.Errorf("cut %d of sold out: %v, want unavailable", test.cut, err)
			}
			direct.wantLeft(stock.MySQL, 7, 6)
		}
	})
}

// killOthers ends every connection to the database but those of the killer that is at it.
func killOthers(o *orders) {
	var ids []int64
	if err := o.deps.MySQL.Select(&ids, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"); err != nil {
		o.t.Error(err)
	}
	for _, id := range ids {
		_, _ = o.deps.MySQL.Exec("KILL ?", id) // one may be gone
	}
}

// Buyers send orders of goods in any order, some with a key and up to three times at once, to two replicas, and
// deductions between. Of every goods, the ledger and the stock make up what there was, and each receipt is in the
// ledger once.
func TestTheLedgerOfOrdersAndTheStockMakeUpWhatThereWas(t *testing.T) {
	t.Parallel()
	idempotent(t, func(t *testing.T, name string) {
		const initial, buyers, rounds = 100, 8, 8
		a := stocktest.NewAddresses(t)
		o := newOrders(t, a, initial, initial, initial)
		replicas := []*orders{o, o.restarted(a)}
		var mu sync.Mutex
		sold := map[string][]stock.LineReceipt{} // by key
		told := map[int64]int64{}                // units, by goods
		var wg sync.WaitGroup
		for buyer := range buyers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(3, uint64(buyer)))
				for i := range rounds {
					var lines []stock.Line
					for _, at := range rng.Perm(3)[:1+rng.IntN(3)] {
						lines = append(lines, stock.Line{GoodsID: o.ids[at], Count: 1 + rng.IntN(3)})
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
							receipt, err := replicas[(buyer+try)%2].send(name, stock.MySQL, req)
							mu.Lock()
							defer mu.Unlock()
							before, known := sold[req.Key]
							switch {
							case err == nil && (req.Key == "" || !known):
								for _, line := range receipt.Lines {
									told[line.GoodsID] += int64(line.Count)
								}
								if req.Key != "" {
									sold[req.Key] = receipt.Lines
								}
							case err == nil && !slices.Equal(before, receipt.Lines):
								t.Errorf("key %s: %v, and %v", req.Key, before, receipt.Lines)
							case err != nil && !errors.Is(err, stock.ErrSoldOut) && !errors.Is(err, stock.ErrInProgress):
								t.Error(err)
							}
						})
					}
					retries.Wait()
				}
			})
		}
		wg.Wait()
		for key, lines := range sold {
			var counts []int
			for _, line := range lines {
				counts = append(counts, line.Count)
			}
			o.wantRows(key, counts...)
		}
		for i, id := range o.ids {
			var written int64
			if err := o.deps.MySQL.Get(&written, "SELECT COALESCE(SUM(count), 0) FROM ledger WHERE goods_id = ?", id); err != nil || written != told[id] {
				t.Errorf("the ledger has %d units of goods %d, %v, clients were told of %d", written, i, err, told[id])
			}
		}
		o.wantLeft(stock.MySQL, initial-told[o.ids[0]], initial-told[o.ids[1]], initial-told[o.ids[2]])
	})
}

// The row of a line is a moment younger than the claim of its order.
func TestAnOrderIsForgottenWithAllOfItsLines(t *testing.T) {
	t.Parallel()
	o := newOrders(t, stocktest.NewAddresses(t), 10, 10)
	for i, key := range []string{"old", "young"} {
		if _, err := o.send("ledger", stock.MySQL, o.request(key, 3, 4)); err != nil {
			t.Fatal(err)
		}
		if _, err := o.deps.MySQL.Exec("UPDATE ledger SET created_at = created_at - INTERVAL 2 HOUR WHERE order_key = ? AND line = ?", []byte(key), i); err != nil {
			t.Fatal(err)
		}
	}
	if deleted, err := mysqlstore.PruneLedger(t.Context(), o.deps.MySQL, time.Hour); err != nil || deleted != 2 {
		t.Errorf("%d rows were deleted, %v, want 2", deleted, err)
	}
	o.wantRows("old")
	o.wantRows("young", 3, 4)
}
