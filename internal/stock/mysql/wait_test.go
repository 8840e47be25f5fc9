package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// wantBusySoon expects a request that waits less than others to be refused long before their 2 minutes have passed.
func wantBusySoon(t *testing.T, d stock.Deducter, goodsID int64, limit time.Duration) (took time.Duration) {
	t.Helper()
	began := time.Now()
	_, err := d.Deduct(stock.LimitWait(t.Context(), limit), stock.Request{GoodsID: goodsID, Count: 1})
	took = time.Since(began)
	if !errors.Is(err, stock.ErrBusy) || took > time.Minute {
		t.Errorf("Deduct that may wait for %v: %v after %v, want busy soon", limit, err, took)
	}
	return took
}

// A limit below a second is rounded up, because MySQL counts in seconds. A limit of 0 is exact in MariaDB.
func TestARequestWaitsForARowNoLongerThanItsLimit(t *testing.T) {
	onMySQL(t, func(t *testing.T, strategy stock.Strategy) {
		a := stocktest.NewAddresses(t, stock.NeedMySQL)
		outside, deps := stocktest.MySQL(t, a.MySQL), impatient(t, a)
		service := stocktest.NewService(t, deps)
		id, d := service.NewItem(t, 10), service.Deducter(t, strategy.Name, "")
		before := session(t, deps)
		unlock := stocktest.LockRow(t, outside, id)
		wantBusySoon(t, d, id, 0)
		if took := wantBusySoon(t, d, id, 300*time.Millisecond); took < 300*time.Millisecond {
			t.Errorf("a request that may wait for 300 ms was refused after %v", took)
		}
		unlock()
		sold := stock.LimitWait(t.Context(), 0)
		if _, err := d.Deduct(sold, stock.Request{GoodsID: id, Count: 1}); err != nil {
			t.Errorf("a try after the row was unlocked: %v", err)
		}
		if after := session(t, deps); after != before || after.Wait != rowWait {
			t.Errorf("the connection was %v and is %v", before, after)
		}
		stocktest.WantIdle(t, deps)
	})
}

// Another request is faster while a try is between its read and its write.
func TestATryOfAnOptimisticStrategyIsNotRepeated(t *testing.T) {
	t.Parallel()
	_, service := newReplica(t)
	for _, name := range []string{"optimistic-version", "optimistic-spin", "optimistic-timestamp-us", "optimistic-stock"} {
		id := service.NewItem(t, 10)
		d := service.Deducter(t, name, stock.MySQL)
		overtake := stocktest.Once(stocktest.BeforeWrite, func(context.Context) {
			stocktest.Sell(t, d, stock.Request{GoodsID: id, Count: 1})
		})
		ctx := stocktest.WithPause(stock.LimitWait(t.Context(), 0), overtake)
		_, err := d.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
		if !errors.Is(err, stock.ErrBusy) || !strings.Contains(err.Error(), "each of 1 tries") {
			t.Errorf("%s: %v, want busy after one try", name, err)
		}
		service.WantLeft(t, stock.MySQL, id, 9)
	}
}

// The requests of a batch wait as long as usual. One that waits less must not join them.
func TestATryDoesNotWaitForABatch(t *testing.T) {
	for name, on := range map[string]stock.Store{
		"batch": stock.MySQL, "escrow": stock.Slots,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := stocktest.NewAddresses(t, stock.NeedMySQL)
			outside, deps := stocktest.MySQL(t, a.MySQL), a.Connect(t)
			service := stocktest.NewService(t, deps)
			id, d := service.NewItem(t, 10), service.Deducter(t, name, on)
			unlock := stocktest.LockRow(t, outside, id)
			sold := stocktest.Start(t.Context(), d, stock.Request{GoodsID: id, Count: 1})
			stocktest.WaitForRowLock(t, outside)
			wantBusySoon(t, d, id, 0)
			unlock()
			must.Succeed(t, (<-sold).Err)
			service.WantLeft(t, on, id, 9)
		})
	}
}

// It would only cost a transaction of its own.
func TestARequestThatMayWaitAsLongAsTheOthersJoinsTheirBatch(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 10)
	first, _, release := r.Gather(t)
	other := r.Ask(stock.LimitWait(t.Context(), r.Deps.LockWait), r.Item, 2)
	serverstest.Eventually(t, "the request waits for the batch under way", func() bool { return r.Waiting() == 1 })
	release()
	stocktest.WantAnswers(t, stocktest.Answers(first, other), "9 remain", "7 remain")
}
