package mysql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// sellAndRestock sells units by another strategy and puts them back before the first attempt writes (ABA).
func sellAndRestock(t testing.TB, service *stocktest.Service, goodsID int64, units int) stocktest.PauseFunc {
	t.Helper()
	other := service.Deducter(t, "update", stock.MySQL)
	return stocktest.Once(stocktest.BeforeWrite, func(ctx context.Context) {
		stocktest.Sell(t, other, stock.Request{GoodsID: goodsID, Count: units})
		if _, err := service.Restock(ctx, stock.MySQL, goodsID, int64(units)); err != nil {
			t.Error(err)
		}
	})
}

// The stock is the same as when it was read, but only a version or a timestamp shows that it was changed meanwhile.
func TestOnlyOptimisticStockOverlooksThatTheStockChangedAndCameBack(t *testing.T) {
	t.Parallel()
	_, service := newReplica(t)
	for name, attempts := range map[string]int{
		"optimistic-stock":        1, // the stale write is accepted
		"optimistic-version":      2,
		"optimistic-timestamp-us": 2,
	} {
		id := service.NewItem(t, 10)
		ctx := stocktest.WithPause(t.Context(), sellAndRestock(t, service, id, 2))
		receipt, err := service.Deducter(t, name, stock.MySQL).Deduct(ctx, stock.Request{GoodsID: id, Count: 3})
		if err != nil || receipt.Attempts != attempts || receipt.Remaining != 7 {
			t.Errorf("%s: %+v, %v, want 7 remaining after %d attempts", name, receipt, err, attempts)
		}
	}
}

// A clock that was set back, or has not moved between two writes, must not produce the same timestamp again.
func TestATimestampGrowsWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	deps, service := newReplica(t)
	id := service.NewItem(t, 10)
	deps.MySQL.MustExecContext(t.Context(),
		"UPDATE good_stock SET stamp = '2999-12-31 23:59:59.999999' WHERE goods_id = ?", id)
	stocktest.Sell(t, service.Deducter(t, "optimistic-timestamp-us", stock.MySQL), stock.Request{GoodsID: id, Count: 1})
	var stamp string
	err := deps.MySQL.GetContext(t.Context(), &stamp, "SELECT CAST(stamp AS CHAR) FROM good_stock WHERE goods_id = ?", id)
	if want := "3000-01-01 00:00:00.000000"; err != nil || stamp != want {
		t.Errorf("the timestamp is %s, %v, want %s", stamp, err, want)
	}
}

// Both transactions have read the row: they share its lock, and neither can write. The server rolls back one of them.
func TestSerializableRetriesAfterADeadlock(t *testing.T) {
	t.Parallel()
	_, service := newReplica(t)
	d, id, bothHaveRead := service.Deducter(t, "serializable", stock.MySQL), service.NewItem(t, 10), stocktest.Barrier(2)
	receipts := make(chan stock.Receipt, 2)
	for count := 1; count <= 2; count++ {
		go func() {
			ctx := stocktest.WithPause(t.Context(), stocktest.Once(stocktest.AfterRead, bothHaveRead))
			receipt, err := d.Deduct(ctx, stock.Request{GoodsID: id, Count: count})
			if err != nil {
				t.Errorf("Deduct: %v", err)
			}
			receipts <- receipt
		}()
	}
	a, b := <-receipts, <-receipts
	if a.Attempts+b.Attempts != 3 || min(a.Remaining, b.Remaining) != 7 {
		t.Errorf("%+v and %+v, want 3 attempts and 7 remaining", a, b)
	}
}

// A lock wait that times out rolls back its statement only: the strategy must roll back the transaction.
func TestSerializableRollsBackAfterALockWaitTimeout(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	holder := stocktest.MySQL(t, a.MySQL)
	deps := a.WithMySQLParam(t, "innodb_lock_wait_timeout", "1").Connect(t)
	deps.LockWait = 10 * time.Millisecond
	service := stocktest.NewService(t, deps)
	id := service.NewItem(t, 10)
	row := stocktest.Begin(t, holder)
	_, err := row.Exec("SELECT stock FROM good_stock WHERE goods_id = ? LOCK IN SHARE MODE", id)
	must.Succeed(t, err)
	_, err = service.Deducter(t, "serializable", stock.MySQL).Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1})
	if !errors.Is(err, stock.ErrBusy) {
		t.Errorf("Deduct: %v, want busy", err)
	}
	must.Succeed(t, row.Rollback())
	stocktest.WantIdle(t, deps)
}
