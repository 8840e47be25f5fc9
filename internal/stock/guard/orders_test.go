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

// An order that needs more connections than the pool has would wait forever. One more is left for deductions that wait
// for a lock.
func TestAnOrderNeedsAConnectionForEachOfItsNamedLocks(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL), 10, 10, 10)
	o.Deps.MySQLLocks.SetMaxOpenConns(3)
	o.Service = stocktest.NewService(t, o.Deps)
	if _, err := o.Place("lock-mysql-getlock", stock.MySQL, nil, 1, 1, 1); !errors.Is(err, stock.ErrNoOrders) {
		t.Errorf("3 items: %v, want that it takes no such orders", err)
	}
	if _, err := o.Place("lock-mysql-getlock", stock.MySQL, nil, 1, 1); err != nil {
		t.Errorf("2 items: %v", err)
	}
}

// Together the orders need three times as many connections as the pool has. If each of them took some, all would wait
// until their lock wait ends.
func TestOrdersTakeTheConnectionsOfTheirNamedLocksOneOrderAtATime(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis))
	o.Deps.MySQLLocks.SetMaxOpenConns(4)
	o.Service = stocktest.NewService(t, o.Deps)
	began := time.Now()
	var wg sync.WaitGroup
	for _, name := range []string{"lock-mysql-getlock", "lock-multi"} {
		for _, on := range bothStores {
			orders := *o
			orders.Renew(10, 10, 10)
			wg.Go(func() {
				for range 3 {
					if _, err := orders.Place(name, on, nil, 1, 1, 1); err != nil {
						t.Errorf("%s on %s: %v", name, on, err)
					}
				}
				orders.WantLeft(on, 7, 7, 7)
			})
		}
	}
	wg.Wait()
	if took, wait := time.Since(began), o.Deps.LockWait; took > wait/2 {
		t.Errorf("the orders took %v, want at most half of the lock wait of %v", took, wait)
	}
}

// A later holder registers for one of two items before the order is written: the other item is not written either.
func TestALateOrderIsRefusedCompletely(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis))
	for _, on := range bothStores {
		o.Items = []int64{-stocktest.NewItem(), 1} // item 1 is written last
		for _, id := range o.Items {
			o.Service.Set(t, id, 10)
		}
		registerAnother := stocktest.Once(stock.BeforeWrite, func(ctx context.Context) error {
			later := stock.Holder{Issuer: "lock-redis-fenced", Token: 1 << 62}
			return registerForItem1(ctx, asHolder(o.Deps, on, later))
		})
		_, err := o.Place("lock-redis-fenced", on, registerAnother, 3, 4)
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
		deleteLastItem := stocktest.Once(stock.BeforeWrite, func(ctx context.Context) error {
			return o.Deps.Redis.Del(ctx, "stock:{"+strconv.FormatInt(o.Items[1], 10)+"}").Err()
		})
		_, err := o.Place(name, stock.Redis, deleteLastItem, 3, 4)
		line, isLine := errors.AsType[*stock.LineError](err)
		if !isLine || line.GoodsID != o.Items[1] || !errors.Is(err, stock.ErrUnknownItem) {
			t.Errorf("%s: %v, want that item %d is unknown", name, err, o.Items[1])
		}
		o.Service.WantLeft(t, stock.Redis, o.Items[0], 10)
	}
}
