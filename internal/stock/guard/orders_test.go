package guard_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// Items of different hash slots cannot be written at once: a crash could leave half an order.
func TestARedisClusterTakesNoOrders(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { cluster.Close() })
	service := stocktest.NewService(t, stock.Deps{Redis: cluster})
	if _, _, err := service.ResolveOrders("lock-redis-lua", stock.Redis); !errors.Is(err, stock.ErrNoOrders) {
		t.Errorf("got %v, want that it takes no orders", err)
	}
}

// An order may have half of the connections that can be reserved. One more is left for deductions.
func TestAnOrderNeedsAConnectionForEachOfItsNamedLocks(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL), 10, 10, 10)
	o.Deps.MySQLLocks.SetMaxOpenConns(5)
	o.Service = stocktest.NewService(t, o.Deps)
	if _, err := o.Place("lock-mysql-getlock", stock.MySQL, nil, 1, 1, 1); !errors.Is(err, stock.ErrNoOrders) {
		t.Errorf("3 items: %v, want that it takes no such orders", err)
	}
	if _, err := o.Place("lock-mysql-getlock", stock.MySQL, nil, 1, 1); err != nil {
		t.Errorf("2 items: %v", err)
	}
}

// More orders than the pool has connections linger after their first lock. If each had taken one connection by then,
// all of them would wait for a second one until their lock wait ends.
func TestOrdersAndDeductionsThatWantMoreConnectionsThanThereAreAllEnd(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis))
	o.Deps.MySQLLocks.SetMaxOpenConns(7)
	o.Service = stocktest.NewService(t, o.Deps)
	var wg sync.WaitGroup
	var check []func()
	linger := func(context.Context) { time.Sleep(20 * time.Millisecond) }
	for _, name := range []string{"lock-mysql-getlock", "lock-multi"} {
		for _, on := range bothStores {
			d := o.Service.Deducter(t, name, on)
			for range 2 {
				orders := *o
				orders.Renew(10, 10, 10)
				wg.Go(func() {
					for range 3 {
						if _, err := orders.Place(name, on, stocktest.Once(stocktest.AfterLock, linger), 1, 1, 1); err != nil {
							t.Errorf("%s on %s: %v", name, on, err)
						}
					}
				})
				wg.Go(func() {
					for _, id := range orders.Items {
						stocktest.Sell(t, d, stock.Request{GoodsID: id, Count: 1})
					}
				})
				check = append(check, func() { orders.WantLeft(on, 6, 6, 6) })
			}
		}
	}
	wg.Wait()
	for _, wantLeft := range check {
		wantLeft()
	}
}

// A later holder sells one of two items before the order is written: the other item is not written either. The stock is
// what the order has read, so only the token tells.
func TestALateOrderIsRefusedCompletely(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis))
	for _, on := range bothStores {
		o.Items = []int64{-stocktest.NewItem(), 1} // item 1 is written last
		for _, id := range o.Items {
			o.Service.Set(t, id, 10)
		}
		sellMeanwhile := stocktest.Once(stocktest.BeforeWrite, func(ctx context.Context) {
			later := stock.Holder{Issuer: "lock-redis-fenced", Token: 1 << 62}
			if err := sellAs(ctx, o.Deps, on, 1, later); err != nil {
				t.Error(err)
			}
		})
		_, err := o.Place("lock-redis-fenced", on, sellMeanwhile, 3, 4)
		line, isLine := errors.AsType[*stock.LineError](err)
		if !isLine || line.GoodsID != 1 || !errors.Is(err, stock.ErrFenced) ||
			!strings.Contains(err.Error(), "token 4611686018427387904 of lock-redis-fenced") {
			t.Errorf("on %s: %v, want that item 1 is fenced", on, err)
		}
		o.WantLeft(on, 10, 10)
	}
}

// The script checks every item before it writes the first one: Redis does not roll back a script that fails.
func TestAnOrderOnRedisWritesNothingIfAnItemIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis))
	for _, name := range []string{"lock-redis-lua", "lock-redis-fenced"} {
		o.Renew(10, 10)
		deleteLastItem := stocktest.Once(stocktest.BeforeWrite, func(ctx context.Context) {
			if err := o.Deps.Redis.Del(ctx, "stock:{"+strconv.FormatInt(o.Items[1], 10)+"}").Err(); err != nil {
				t.Error(err)
			}
		})
		_, err := o.Place(name, stock.Redis, deleteLastItem, 3, 4)
		line, isLine := errors.AsType[*stock.LineError](err)
		if !isLine || line.GoodsID != o.Items[1] || !errors.Is(err, stock.ErrUnknownItem) {
			t.Errorf("%s: %v, want that item %d is unknown", name, err, o.Items[1])
		}
		o.Service.WantLeft(t, stock.Redis, o.Items[0], 10)
	}
}
