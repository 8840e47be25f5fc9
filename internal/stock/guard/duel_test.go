package guard_test

import (
	"errors"
	"net/url"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

const initial = 10 // units

// duel is two replicas that sell the same item. The first one can lose its lock on the lock's server without noticing,
// like a holder that is stopped until its lease has ended.
type duel struct {
	first, second stock.Deducter
	item          int64
	on            stock.Store
	service       *stocktest.Service
	expireFirst   func() // takes away the first replica's lock
}

// newDuel gives each replica a strategy.
func newDuel(t *testing.T, first, second string, on stock.Store) duel {
	t.Helper()
	a := stocktest.NewAddresses(t)
	deps := a.Connect(t)
	d := duel{on: on, service: stocktest.NewService(t, deps)}
	d.second = d.service.Deducter(t, second, on)
	d.item = d.service.NewItem(t, initial)
	proxy := tcpproxy.New(t, a.ZooKeeper)
	a.ZooKeeper = proxy.Addr()
	d.first = stocktest.NewService(t, a.Connect(t)).Deducter(t, first, on)
	for _, replica := range []stock.Deducter{d.first, d.second} {
		stocktest.Sell(t, replica, d.request(1)) // from now on, it reads the item only under the lock
	}
	d.setStock(t, initial)
	d.expireFirst = func() {
		if first == "lock-zookeeper" {
			proxy.BlackHole() // ZooKeeper would notify the holder at once
		}
		deleteLock(t, deps, first, d.item)
	}
	return d
}

// deleteLock deletes an item's lock on its server. A holder notices when it renews its lease.
func deleteLock(t testing.TB, deps stock.Deps, strategy string, goodsID int64) {
	t.Helper()
	key := strategy + ":{" + strconv.FormatInt(goodsID, 10) + "}"
	node := url.PathEscape(key)
	var deleted int64
	var err error
	switch strategy {
	case "lock-etcd":
		var reply *clientv3.DeleteResponse
		if reply, err = deps.Etcd.Delete(t.Context(), "locks/"+node+"/", clientv3.WithPrefix()); err == nil {
			deleted = reply.Deleted
		}
	case "lock-zookeeper":
		var waiters []string
		waiters, _, err = deps.ZooKeeper.Children("/stock/" + node)
		for _, waiter := range waiters {
			err = errors.Join(err, deps.ZooKeeper.Delete("/stock/"+node+"/"+waiter, -1))
			deleted++
		}
	default:
		deleted, err = deps.Redis.Del(t.Context(), key).Result()
	}
	if err != nil || deleted != 1 {
		t.Fatalf("%d locks %s were deleted, %v, want 1", deleted, key, err)
	}
}

func (d duel) request(count int) stock.Request { return stock.Request{GoodsID: d.item, Count: count} }

func (d duel) setStock(t testing.TB, units int64) {
	t.Helper()
	d.service.Set(t, d.item, units)
}

func (d duel) wantLeft(t testing.TB, want int64) {
	t.Helper()
	d.service.WantLeft(t, d.on, d.item, want)
}
