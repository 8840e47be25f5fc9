package stream_test

import (
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/inventory"
	"stock/internal/stock/stocktest"
)

func TestSalesFromBeforeSetStockAreNotDeductedFromTheNewStock(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	deps := withoutMySQL(t, connect(t, a))
	seller := newReplica(t, deps, time.Hour)
	setter := newReplica(t, connect(t, a), time.Hour)
	setter.set(t, 1, 10)
	seller.sell(t, 1, 3)
	seller.close(t)
	setter.set(t, 1, 20)
	heir := newReplica(t, connect(t, a), 20*time.Millisecond)
	heir.wantStock(t, 1, 20, 20)
	if units := heir.recorded(t, 1); units != 3 {
		t.Errorf("%d units are recorded, want the 3 that were sold", units)
	}
	heir.sell(t, 1, 5)
	heir.wantStock(t, 1, 15, 15)
}

func TestConcurrentSetStocksLeaveTheSameStockInBothStores(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, time.Hour)
	for id := range int64(20) {
		var wg sync.WaitGroup
		for units := range int64(4) {
			wg.Go(func() {
				if err := r.service.SetStock(t.Context(), 1+id, units); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		inMySQL, err := r.service.Stock(t.Context(), stock.MySQL, 1+id)
		inRedis, err2 := r.service.Stock(t.Context(), stock.Redis, 1+id)
		if err := errors.Join(err, err2); err != nil || inMySQL != inRedis {
			t.Fatalf("MySQL has %d units, Redis has %d, %v, want the same", inMySQL, inRedis, err)
		}
	}
}

// Redis has a later epoch if MySQL was created again, or if a replica whose clock is ahead has set the stock.
func TestSetStockSetsARedisWithALaterEpoch(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, time.Hour)
	r.set(t, 1, 10)
	later := time.Now().Add(time.Minute).UnixMicro()
	must.Succeed(t, r.deps.Redis.Set(t.Context(), "stock:{1}:epoch", later, 0).Err())
	r.set(t, 1, 99)
	r.sell(t, 1, 3)
	r.wantStock(t, 1, 96, 96)
}

// Another strategy sold from MySQL. The sale in Redis is deducted nevertheless, and nobody waits for it.
func TestASaleIsDeductedEvenIfMySQLHasTooFewUnits(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, time.Hour)
	r.set(t, 1, 10)
	_, err := r.deps.MySQL.Exec("UPDATE good_stock SET stock = 1 WHERE goods_id = 1")
	must.Succeed(t, err)
	r.sell(t, 1, 3)
	r.wantStock(t, 1, 7, -2)
}

func TestARestockInRedisBeforeTheFirstSaleReachesMySQL(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, 20*time.Millisecond)
	r.set(t, 1, 10)
	if units, err := r.service.Restock(t.Context(), stock.Redis, 1, 5); err != nil || units != 15 {
		t.Fatalf("Restock: %d, %v, want 15", units, err)
	}
	r.wantStock(t, 1, 15, 15)
	r.sell(t, 1, 15)
	r.wantStock(t, 1, 0, 0)
}

func TestNothingIsSoldIfTheStockIsNotAWholeNumber(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, time.Hour)
	r.set(t, 1, 10)
	must.Succeed(t, r.deps.Redis.Set(t.Context(), "stock:{1}", "10.0", 0).Err())
	_, err := r.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
	if err == nil || errors.Is(err, stock.ErrUnknown) {
		t.Errorf("Deduct: %v, want a refusal", err)
	}
	_, err = r.service.Restock(t.Context(), stock.Redis, 1, 1)
	if err == nil || errors.Is(err, stock.ErrUnknown) {
		t.Errorf("Restock: %v, want a refusal", err)
	}
	r.close(t)
	entries, err := r.deps.Redis.XLen(t.Context(), "stock:{1}:sales").Result()
	if units := r.recorded(t, 1); err != nil || entries != 0 || units != 0 {
		t.Errorf("the stream has %d entries, %v, and %d units are recorded, want none", entries, err, units)
	}
}

// Redis does not roll a script back that fails in the middle.
func TestNothingIsSoldIfTheKeyCannotBeKept(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	deps := connect(t, a)
	deps.KeyTTL = time.Microsecond // 0 ms, which SET refuses
	r := newReplica(t, deps, time.Hour)
	r.set(t, 1, 10)
	if _, err := r.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 3, Key: "k"}); err == nil {
		t.Error("the sale was confirmed, but its key is not kept")
	}
	r.wantStock(t, 1, 10, 10)
}

func TestFillRedisCopiesTheStockOfMySQLOnce(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, time.Hour)
	r.set(t, 1, 10)
	must.Succeed(t, r.deps.Redis.FlushAll(t.Context()).Err())
	var wg sync.WaitGroup
	for range 4 { // as replicas do that start at the same time
		wg.Go(func() {
			if _, err := r.service.FillRedis(t.Context(), 1); err != nil {
				t.Error(err)
			}
			for range 2 {
				if _, err := r.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.wantStock(t, 1, 2, 2)
	if _, err := r.service.FillRedis(t.Context(), 1); err != nil {
		t.Error(err)
	}
	r.wantStock(t, 1, 2, 2)
}

func TestCloseEndsTheWriteBehind(t *testing.T) {
	a := stocktest.Addresses{MySQL: "root@tcp(127.0.0.1:1)/nowhere", Redis: stocktest.Servers.Redis(t)}
	before := goleak.IgnoreCurrent()
	deps := connect(t, a)
	redisOnly := inventory.New(stock.Deps{Redis: deps.Redis})
	must.Succeed(t, redisOnly.SetStock(t.Context(), 1, 10))
	r := newReplica(t, deps, time.Hour)
	r.sell(t, 1, 1) // it cannot be written to MySQL
	r.close(t)
	for _, c := range []io.Closer{deps.MySQL, deps.Redis} {
		must.Succeed(t, c.Close())
	}
	goleak.VerifyNone(t, before)
}

func TestRequestsThatShareACallOfTheScriptShareAnEntry(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	proxy, options := stocktest.ProxyRedis(t, a.Redis)
	proxy.Select(stocktest.Matching(stocktest.Evalsha))
	a.Redis = options
	r := stocktest.NewBatchReplica(t, "redis-stream", stock.Redis, connect(t, a), proxy, 12)
	stocktest.Sell(t, r, stock.Request{GoodsID: r.Item, Count: 1}) // now Redis knows the script
	stocktest.Drain(t, r.Service)
	first, others, release := r.Gather(t, 4, 7, 5, 2)
	release()
	stocktest.WantAnswers(t, stocktest.Answers(append([]<-chan stocktest.Answer{first}, others...)...),
		"10 remain", "6 remain", "sold out at 6", "1 remain", "sold out at 1")
	stocktest.Drain(t, r.Service)
	r.WantLeft(t, 1)
	r.Service.WantLeft(t, stock.MySQL, r.Item, 1)
	var entries []int64
	must.Succeed(t, r.Deps.MySQL.Select(&entries, "SELECT units FROM stream_sale ORDER BY units"))
	if !slices.Equal(entries, []int64{1, 1, 9}) {
		t.Errorf("the entries have %v units, want 1 each for the requests that came alone, and 9", entries)
	}
}
