package stock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"stock/internal/servers"
	"stock/internal/stock"
)

func (r streamReplica) reconcile(t testing.TB, id int64, mend bool) stock.Balance {
	t.Helper()
	balance, err := r.service.Reconcile(t.Context(), id, mend)
	if err != nil {
		t.Fatal(err)
	}
	return balance
}

// Each case spoils goods 1, of which 3 of 10 were sold and written, and 2 more are on their way to MySQL.
func TestReconcileTellsWhatDiffersAndMendsWhatMySQLProves(t *testing.T) {
	t.Parallel()
	const stockKey, epochKey = "stock:{1}", "stock:{1}:epoch"
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, r streamReplica) error
		want  stock.Balance // as found
		redis int64         // units after mending
	}{
		{
			"nothing", func(*testing.T, streamReplica) error { return nil },
			stock.Balance{Finding: stock.Agree, Redis: 5, MySQL: 7, Pending: 2}, 5,
		},
		{
			"Redis has lost a write", func(t *testing.T, r streamReplica) error { return r.deps.Redis.IncrBy(t.Context(), stockKey, 4).Err() },
			stock.Balance{Finding: stock.TooMany, Redis: 9, MySQL: 7, Pending: 2}, 5,
		},
		{
			"units sold from MySQL alone", func(_ *testing.T, r streamReplica) error {
				_, err := r.deps.MySQL.Exec("UPDATE good_stock SET stock = 1")
				return err
			},
			stock.Balance{Finding: stock.TooMany, Redis: 5, MySQL: 1, Pending: 2}, -1, // one more than there was is promised
		},
		{
			"units taken from Redis without an entry", func(t *testing.T, r streamReplica) error { return r.deps.Redis.DecrBy(t.Context(), stockKey, 1).Err() },
			stock.Balance{Finding: stock.TooFew, Redis: 4, MySQL: 7, Pending: 2}, 4,
		},
		{
			"all data of Redis lost", func(t *testing.T, r streamReplica) error { return r.deps.Redis.FlushAll(t.Context()).Err() },
			stock.Balance{Finding: stock.NotInRedis, MySQL: 7}, 7,
		},
		{
			"the stock was set in MySQL alone", func(_ *testing.T, r streamReplica) error {
				mysql := stock.Deps{MySQL: r.deps.MySQL, MySQLLocks: r.deps.MySQL}
				service, err := stock.NewService(mysql, nil)
				if err != nil {
					return err
				}
				return service.SetStock(t.Context(), 1, 100)
			},
			stock.Balance{Finding: stock.OlderInRedis, Redis: 5, MySQL: 100, Stale: 2}, 100,
		},
		{
			"MySQL was restored from before the stock was set", func(_ *testing.T, r streamReplica) error {
				_, err := r.deps.MySQL.Exec("UPDATE good_stock SET epoch = epoch - 1")
				return err
			},
			stock.Balance{Finding: stock.OlderInMySQL, Redis: 5, MySQL: 7, Stale: 2}, 5,
		},
		{
			"MySQL has lost the goods", func(_ *testing.T, r streamReplica) error {
				_, err := r.deps.MySQL.Exec("DELETE FROM good_stock WHERE goods_id = 1")
				return err
			},
			stock.Balance{Finding: stock.NotInMySQL, Redis: 5, Stale: 2}, 5,
		},
		{
			"the entry is written and not yet deleted", func(t *testing.T, r streamReplica) error {
				entries := r.deps.Redis.XRange(t.Context(), "stock:{1}:sales", "-", "+").Val()
				_, err := r.deps.MySQL.Exec("INSERT INTO stream_sale (goods_id, entry, units, epoch) VALUES (1, ?, 2, 0)", entries[0].ID)
				_, err2 := r.deps.MySQL.Exec("UPDATE good_stock SET stock = stock - 2")
				return errors.Join(err, err2)
			},
			stock.Balance{Finding: stock.Agree, Redis: 5, MySQL: 5}, 5,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := addresses{mysql: shared.Database(t)}
			migrate(t, a.mysql)
			a.redis = shared.Redis(t)
			if test.want.Finding == stock.NotInRedis { // FLUSHALL is for a server of one's own
				a, _ = streamServers(t, servers.RedisOptions{})
			}
			r := newStreamReplica(t, a.stream(t), time.Hour)
			r.set(t, 1, 10)
			r.sell(t, 1, 3)
			drained(t, r.service)
			// A replica whose MySQL is out of reach leaves its sales in the stream.
			if err := r.service.Close(); err != nil {
				t.Fatal(err)
			}
			r.sell(t, 1, 2)
			if err := test.spoil(t, r); err != nil {
				t.Fatal(err)
			}

			test.want.GoodsID = 1
			if got := r.reconcile(t, 1, false); got != test.want {
				t.Errorf("found %+v, want %+v", got, test.want)
			}
			mendable := test.want.Finding.Mendable()
			if got := r.reconcile(t, 1, true); got.Mended != mendable || got.Finding != test.want.Finding {
				t.Errorf("mending found %+v, want mended: %v", got, mendable)
			}
			if units, err := r.service.Stock(t.Context(), stock.Redis, 1); err != nil || units != test.redis {
				t.Errorf("Redis has %d after that, %v, want %d", units, err, test.redis)
			}
			if got := r.reconcile(t, 1, false); mendable && got.Finding != stock.Agree {
				t.Errorf("after mending: %+v, want agreement", got)
			}
		})
	}
}

// Reconcile holds MySQL still while it looks: what is sold meanwhile is no difference.
func TestReconcileFindsNoDifferenceWhileUnitsAreSold(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, a.stream(t), time.Hour)
	r.set(t, 1, abundance)
	if err := r.deps.Redis.IncrBy(t.Context(), "stock:{1}", 7).Err(); err != nil {
		t.Fatal(err)
	}
	shoppers := newShoppers(t, func(ctx context.Context, count int) error {
		_, err := r.Deduct(ctx, stock.Request{GoodsID: 1, Count: count})
		return err
	})
	for range 20 {
		shoppers.sells(t, 10)
		if got := r.reconcile(t, 1, false); got.Difference() != 7 {
			t.Fatalf("found %+v: a difference of %d, want 7", got, got.Difference())
		}
	}
	if got := r.reconcile(t, 1, true); !got.Mended {
		t.Errorf("found %+v, want it mended", got)
	}
	shoppers.sells(t, 10)
	shoppers.stop()
	shoppers.wantAll(t, r, 1, abundance)
}

func TestReconcileKnowsTheGoodsOfBothStores(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, a.stream(t), time.Hour)
	r.set(t, 7, 10)
	r.set(t, 8, 10)
	r.sell(t, 8, 1)
	drained(t, r.service)
	if _, err := r.deps.MySQL.Exec("DELETE FROM good_stock WHERE goods_id = 8"); err != nil {
		t.Fatal(err)
	}
	got, err := r.service.GoodsToReconcile(t.Context())
	if want := []int64{1, 7, 8}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the goods are %v, %v, want %v", got, err, want)
	}
	if _, err := r.service.Reconcile(t.Context(), 9, true); !errors.Is(err, stock.ErrUnknownGoods) {
		t.Errorf("Reconcile: %v, want unknown goods", err)
	}
	alone, err := stock.NewService(stock.Deps{Redis: r.deps.Redis}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Reconcile(t.Context(), 7, true); !errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("Reconcile: %v, want unavailable", err)
	}
}
