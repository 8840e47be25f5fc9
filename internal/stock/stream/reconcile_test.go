package stream_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/inventory"
	"stock/internal/stock/stocktest"
	"stock/internal/stock/stream"
)

// writeEntry records the entry in the stream, of 2 units, and does not delete it.
func (r replica) writeEntry(t testing.TB, deducted bool) error {
	entry := r.deps.Redis.XRange(t.Context(), "stock:{1}:sales", "-", "+").Val()[0]
	_, err := r.deps.MySQL.Exec(`INSERT INTO stream_sale (goods_id, entry, nonce, units, epoch, deducted, written)
		VALUES (1, ?, ?, 2, ?, ?, UTC_TIMESTAMP(6))`, entry.ID, entry.Values["nonce"], entry.Values["epoch"], deducted)
	if deducted {
		_, err2 := r.deps.MySQL.Exec("UPDATE good_stock SET stock = stock - 2 WHERE goods_id = 1")
		err = errors.Join(err, err2)
	}
	return err
}

// setMySQLOnly sets the stock of item 1 like a SetStock that fails before it reaches Redis.
func (r replica) setMySQLOnly(t testing.TB, units int64) error {
	return inventory.New(stock.Deps{MySQL: r.deps.MySQL}).SetStock(t.Context(), 1, units)
}

// difference is a difference between Redis and MySQL.
type difference struct {
	name  string
	cause func(t *testing.T, r replica) error
	found stream.Balance
	redis int64 // units in Redis after mending
}

// run causes the difference after 3 of the 10 units of item 1 were sold and written to MySQL, and 2 were sold and are
// in the stream.
func (d difference) run(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis)
	if d.found.Finding == stream.NotInRedis { // FLUSHALL needs a server of its own
		a, _ = newServers(t)
	}
	r := newReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	r.sell(t, 1, 3)
	stocktest.Drain(t, r.service)
	r.close(t) // what is sold from now on stays in the stream
	r.sell(t, 1, 2)
	must.Succeed(t, d.cause(t, r))

	d.found.GoodsID = 1
	if got := r.reconcile(t, false); got != d.found {
		t.Errorf("found %+v, want %+v", got, d.found)
	}
	mendable := d.found.Finding.Mendable()
	if got := r.reconcile(t, true); got.Mended != mendable || got.Finding != d.found.Finding {
		t.Errorf("mending found %+v, want mended = %v", got, mendable)
	}
	r.service.WantLeft(t, stock.Redis, 1, d.redis)
	if got := r.reconcile(t, false); mendable && got.Finding != stream.Agree {
		t.Errorf("after mending: %+v, want agreement", got)
	}
}

func TestReconcileFindsDifferencesAndMendsThoseThatMySQLProves(t *testing.T) {
	t.Parallel()
	const stockKey = "stock:{1}"
	for _, test := range []difference{
		{
			"no difference", func(*testing.T, replica) error { return nil },
			stream.Balance{Finding: stream.Agree, Redis: 5, MySQL: 7, Pending: 2}, 5,
		},
		{
			"Redis has lost a write", func(t *testing.T, r replica) error {
				return r.deps.Redis.IncrBy(t.Context(), stockKey, 4).Err()
			},
			stream.Balance{Finding: stream.TooMany, Redis: 9, MySQL: 7, Pending: 2}, 5,
		},
		{
			"units sold from MySQL only", func(_ *testing.T, r replica) error {
				_, err := r.deps.MySQL.Exec("UPDATE good_stock SET stock = 1")
				return err
			},
			stream.Balance{Finding: stream.TooMany, Redis: 5, MySQL: 1, Pending: 2}, -1, // one unit too many was sold
		},
		{
			"units taken from Redis without an entry", func(t *testing.T, r replica) error {
				return r.deps.Redis.DecrBy(t.Context(), stockKey, 1).Err()
			},
			stream.Balance{Finding: stream.TooFew, Redis: 4, MySQL: 7, Pending: 2}, 4,
		},
		{
			"Redis has lost all data", func(t *testing.T, r replica) error {
				return r.deps.Redis.FlushAll(t.Context()).Err()
			},
			stream.Balance{Finding: stream.NotInRedis, MySQL: 7}, 7,
		},
		{
			"the stock was set in MySQL only", func(t *testing.T, r replica) error {
				return errors.Join(r.writeEntry(t, true), r.setMySQLOnly(t, 100))
			},
			stream.Balance{Finding: stream.OlderInRedis, Redis: 5, MySQL: 100}, 100,
		},
		{
			"the stock was set in MySQL only, and a sale is in the stream", func(t *testing.T, r replica) error {
				return r.setMySQLOnly(t, 100)
			},
			stream.Balance{Finding: stream.SoldFromOlder, Redis: 5, MySQL: 100, Stale: 2}, 5,
		},
		{
			"the stock was set in MySQL only, and a sale was written since", func(t *testing.T, r replica) error {
				return errors.Join(r.setMySQLOnly(t, 100), r.writeEntry(t, false))
			},
			stream.Balance{Finding: stream.SoldFromOlder, Redis: 5, MySQL: 100}, 5,
		},
		{
			"MySQL was restored from before the stock was set", func(_ *testing.T, r replica) error {
				_, err := r.deps.MySQL.Exec("UPDATE good_stock SET epoch = epoch - 1")
				return err
			},
			stream.Balance{Finding: stream.OlderInMySQL, Redis: 5, MySQL: 7, Stale: 2}, 5,
		},
		{
			"MySQL has lost the item", func(_ *testing.T, r replica) error {
				_, err := r.deps.MySQL.Exec("DELETE FROM good_stock WHERE goods_id = 1")
				return err
			},
			stream.Balance{Finding: stream.NotInMySQL, Redis: 5, Stale: 2}, 5,
		},
		{
			"the entry was written, but not deleted", func(t *testing.T, r replica) error {
				return r.writeEntry(t, true)
			},
			stream.Balance{Finding: stream.Agree, Redis: 5, MySQL: 5}, 5,
		},
	} {
		t.Run(test.name, test.run)
	}
}

// Reconcile locks the item's row in MySQL while it reads Redis, so that concurrent sales make no difference.
func TestReconcileIsExactWhileUnitsAreSold(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, time.Hour)
	r.set(t, 1, abundance)
	must.Succeed(t, r.deps.Redis.IncrBy(t.Context(), "stock:{1}", 7).Err())
	buyers := startBuyers(t, r)
	for range 20 {
		buyers.waitForSales(t, 10)
		if got := r.reconcile(t, false); got.Difference() != 7 {
			t.Fatalf("found %+v: a difference of %d, want 7", got, got.Difference())
		}
	}
	if got := r.reconcile(t, true); !got.Mended {
		t.Errorf("found %+v, want it mended", got)
	}
	buyers.waitForSales(t, 10)
	buyers.stop()
	buyers.wantStock(t, abundance)
}

func TestReconcileKnowsTheItemsOfBothStores(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, time.Hour)
	r.set(t, 7, 10)
	r.set(t, 8, 10)
	r.sell(t, 8, 1)
	stocktest.Drain(t, r.service)
	_, err := r.deps.MySQL.Exec("DELETE FROM good_stock WHERE goods_id = 8")
	must.Succeed(t, err)
	got, err := r.service.Items(t.Context())
	if want := []int64{1, 7, 8}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the items are %v, %v, want %v", got, err, want)
	}
	if _, err := r.service.Reconcile(t.Context(), 9, true); !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("Reconcile: %v, want unknown item", err)
	}
	alone := stream.Admin{Redis: r.deps.Redis}
	if _, err := alone.Reconcile(t.Context(), 7, true); !errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("Reconcile: %v, want unavailable", err)
	}
}
