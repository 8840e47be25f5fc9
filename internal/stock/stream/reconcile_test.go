package stream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/stock"
	"stock/internal/stock/inventory"
	"stock/internal/stock/stocktest"
	"stock/internal/stock/stream"
)

func (r streamReplica) reconcile(t testing.TB, id int64, mend bool) stream.Balance {
	t.Helper()
	balance, err := r.service.Reconcile(t.Context(), id, mend)
	if err != nil {
		t.Fatal(err)
	}
	return balance
}

// writeEntry records the entry that is on its way, of 2 units, and leaves it in the stream.
func (r streamReplica) writeEntry(t testing.TB, deducted bool) error {
	entry := r.deps.Redis.XRange(t.Context(), "stock:{1}:sales", "-", "+").Val()[0]
	_, err := r.deps.MySQL.Exec(`INSERT INTO stream_sale (goods_id, entry, nonce, units, epoch, deducted, written)
		VALUES (1, ?, ?, 2, ?, ?, UTC_TIMESTAMP(6))`, entry.ID, entry.Values["nonce"], entry.Values["epoch"], deducted)
	if deducted {
		_, err2 := r.deps.MySQL.Exec("UPDATE good_stock SET stock = stock - 2 WHERE goods_id = 1")
		err = errors.Join(err, err2)
	}
	return err
}

// setMySQLAlone sets goods 1 as a SetStock does that fails halfway.
func (r streamReplica) setMySQLAlone(t testing.TB, units int64) error {
	return inventory.New(stock.Deps{MySQL: r.deps.MySQL}).SetStock(t.Context(), 1, units)
}

// Each case spoils goods 1, of which 3 of 10 were sold and written, and 2 more are on their way to MySQL.
func TestReconcileTellsWhatDiffersAndMendsWhatMySQLProves(t *testing.T) {
	t.Parallel()
	const stockKey, epochKey = "stock:{1}", "stock:{1}:epoch"
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, r streamReplica) error
		want  stream.Balance // as found
		redis int64          // units after mending
	}{
		{
			"nothing", func(*testing.T, streamReplica) error { return nil },
			stream.Balance{Finding: stream.Agree, Redis: 5, MySQL: 7, Pending: 2}, 5,
		},
		{
			"Redis has lost a write", func(t *testing.T, r streamReplica) error { return r.deps.Redis.IncrBy(t.Context(), stockKey, 4).Err() },
			stream.Balance{Finding: stream.TooMany, Redis: 9, MySQL: 7, Pending: 2}, 5,
		},
		{
			"units sold from MySQL alone", func(_ *testing.T, r streamReplica) error {
				_, err := r.deps.MySQL.Exec("UPDATE good_stock SET stock = 1")
				return err
			},
			stream.Balance{Finding: stream.TooMany, Redis: 5, MySQL: 1, Pending: 2}, -1, // one more than there was is promised
		},
		{
			"units taken from Redis without an entry", func(t *testing.T, r streamReplica) error { return r.deps.Redis.DecrBy(t.Context(), stockKey, 1).Err() },
			stream.Balance{Finding: stream.TooFew, Redis: 4, MySQL: 7, Pending: 2}, 4,
		},
		{
			"all data of Redis lost", func(t *testing.T, r streamReplica) error { return r.deps.Redis.FlushAll(t.Context()).Err() },
			stream.Balance{Finding: stream.NotInRedis, MySQL: 7}, 7,
		},
		{
			"the stock was set in MySQL alone", func(t *testing.T, r streamReplica) error {
				return errors.Join(r.writeEntry(t, true), r.setMySQLAlone(t, 100))
			},
			stream.Balance{Finding: stream.OlderInRedis, Redis: 5, MySQL: 100}, 100,
		},
		{
			"the stock was set in MySQL alone, and a sale is on its way", func(t *testing.T, r streamReplica) error { return r.setMySQLAlone(t, 100) },
			stream.Balance{Finding: stream.SoldFromOlder, Redis: 5, MySQL: 100, Stale: 2}, 5,
		},
		{
			"the stock was set in MySQL alone, and a sale has come since", func(t *testing.T, r streamReplica) error {
				return errors.Join(r.setMySQLAlone(t, 100), r.writeEntry(t, false))
			},
			stream.Balance{Finding: stream.SoldFromOlder, Redis: 5, MySQL: 100}, 5,
		},
		{
			"MySQL was restored from before the stock was set", func(_ *testing.T, r streamReplica) error {
				_, err := r.deps.MySQL.Exec("UPDATE good_stock SET epoch = epoch - 1")
				return err
			},
			stream.Balance{Finding: stream.OlderInMySQL, Redis: 5, MySQL: 7, Stale: 2}, 5,
		},
		{
			"MySQL has lost the goods", func(_ *testing.T, r streamReplica) error {
				_, err := r.deps.MySQL.Exec("DELETE FROM good_stock WHERE goods_id = 1")
				return err
			},
			stream.Balance{Finding: stream.NotInMySQL, Redis: 5, Stale: 2}, 5,
		},
		{
			"the entry is written and not yet deleted", func(t *testing.T, r streamReplica) error { return r.writeEntry(t, true) },
			stream.Balance{Finding: stream.Agree, Redis: 5, MySQL: 5}, 5,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
			a.Redis = stocktest.Servers.Redis(t)
			if test.want.Finding == stream.NotInRedis { // FLUSHALL is for a server of one's own
				a, _ = streamServers(t, servers.RedisOptions{})
			}
			r := newStreamReplica(t, connect(t, a), time.Hour)
			r.set(t, 1, 10)
			r.sell(t, 1, 3)
			stocktest.Drain(t, r.service)
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
			if got := r.reconcile(t, 1, false); mendable && got.Finding != stream.Agree {
				t.Errorf("after mending: %+v, want agreement", got)
			}
		})
	}
}

// Reconcile holds MySQL still while it looks: what is sold meanwhile is no difference.
func TestReconcileFindsNoDifferenceWhileUnitsAreSold(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
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

// A backlog is read a thousand entries at a time: all at once, a large one would hold up Redis.
func TestReconcileReadsALongStreamInPages(t *testing.T) {
	t.Parallel()
	const sales = 2500
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, abundance)
	if err := r.service.Close(); err != nil {
		t.Fatal(err)
	}
	epoch := r.deps.Redis.Get(t.Context(), "stock:{1}:epoch").Val()
	_, err := r.deps.Redis.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range sales {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: "stock:{1}:sales", Values: []any{"units", 1, "epoch", epoch, "nonce", i}})
		}
		pipe.DecrBy(t.Context(), "stock:{1}", sales)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.deps.Redis.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if got := r.reconcile(t, 1, false); got.Finding != stream.Agree || got.Pending != sales {
		t.Errorf("found %+v, want %d units on their way", got, sales)
	}
	ranges, err := r.deps.Redis.SlowLogGet(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, command := range ranges {
		if command.Args[0] == "xrange" {
			pages++
			if !slices.Contains(command.Args, "1000") {
				t.Errorf("Redis was asked to %v, want no more than 1000 entries", command.Args)
			}
		}
	}
	if pages != 3 {
		t.Errorf("Redis was asked for %d pages, want 3", pages)
	}
}

func TestReconcileKnowsTheGoodsOfBothStores(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 7, 10)
	r.set(t, 8, 10)
	r.sell(t, 8, 1)
	stocktest.Drain(t, r.service)
	if _, err := r.deps.MySQL.Exec("DELETE FROM good_stock WHERE goods_id = 8"); err != nil {
		t.Fatal(err)
	}
	got, err := r.service.Items(t.Context())
	if want := []int64{1, 7, 8}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the goods are %v, %v, want %v", got, err, want)
	}
	if _, err := r.service.Reconcile(t.Context(), 9, true); !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("Reconcile: %v, want unknown goods", err)
	}
	alone := stream.Admin{Redis: r.deps.Redis}
	if _, err := alone.Reconcile(t.Context(), 7, true); !errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("Reconcile: %v, want unavailable", err)
	}
}
