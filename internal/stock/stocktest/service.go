package stocktest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/health"
	"stock/internal/stock/inventory"
	"stock/internal/stock/stream"
)

// Service is what one replica does, without HTTP.
type Service struct {
	*catalogue.Registry
	*inventory.Inventory
	stream.Admin
	*health.Checker

	deps stock.Deps
}

// NewService builds the given strategies, or the whole catalogue if none are given. It is closed when the test ends.
func NewService(t testing.TB, deps stock.Deps, strategies ...stock.Strategy) *Service {
	t.Helper()
	if strategies == nil {
		strategies = catalogue.Strategies
	}
	registry, err := catalogue.Build(deps, strategies)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, registry.Close()) })
	return &Service{
		Registry:  registry,
		Inventory: inventory.New(deps),
		Admin:     stream.NewAdmin(deps),
		Checker:   health.New(deps),
		deps:      deps,
	}
}

// Deducter returns a strategy on a store, or on its default store if on is empty.
func (s *Service) Deducter(t testing.TB, name string, on stock.Store) stock.Deducter {
	t.Helper()
	deducter, _, err := s.Resolve(name, on)
	must.Succeed(t, err)
	return deducter
}

// NewItem creates an item with this stock in every store.
func (s *Service) NewItem(t testing.TB, units int64) (goodsID int64) {
	t.Helper()
	id := NewItem()
	s.Set(t, id, units)
	return id
}

// Set sets the stock of an item in every store.
func (s *Service) Set(t testing.TB, goodsID, units int64) {
	t.Helper()
	must.Succeed(t, s.SetStock(t.Context(), goodsID, units))
}

// Left returns the stock of an item in one store.
func (s *Service) Left(t testing.TB, on stock.Store, goodsID int64) int64 {
	t.Helper()
	units, err := s.Stock(context.WithoutCancel(t.Context()), on, goodsID)
	must.Succeed(t, err)
	return units
}

// WantLeft checks the stock of an item in one store.
func (s *Service) WantLeft(t testing.TB, on stock.Store, goodsID, want int64) {
	t.Helper()
	if left := s.Left(t, on, goodsID); left != want {
		t.Errorf("%s has %d units of item %d, want %d", on, left, goodsID, want)
	}
}

// Drain waits until every sale of redis-stream is in MySQL.
func Drain(t testing.TB, s *Service) {
	t.Helper()
	serverstest.Eventually(t, "every sale is in MySQL", func() bool {
		backlog, err := s.Backlog(t.Context())
		return err == nil && backlog.Entries == 0
	})
}

// Strategy returns a row of the catalogue.
func Strategy(t testing.TB, name string) stock.Strategy {
	t.Helper()
	for _, s := range catalogue.Strategies {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("the catalogue has no strategy %s", name)
	return stock.Strategy{}
}

var items atomic.Int64

// NewItem returns an id that no other test uses. The locks of etcd, ZooKeeper and MySQL are shared by all tests of a
// package, whichever database they use.
func NewItem() int64 { return 1<<20 + items.Add(1) }

// wantUnused checks that no connection is in use.
func wantUnused(t testing.TB, deps stock.Deps) {
	t.Helper()
	// Eventually: redis-stream writes to MySQL after it has replied.
	serverstest.Eventually(t, "no connection to MySQL is in use", func() bool { return deps.MySQL.Stats().InUse == 0 })
	serverstest.Eventually(t, "no named lock is held or waited for", func() bool {
		return deps.MySQLLocks.Stats().InUse == 0
	})
}

// WantIdle checks that no connection is in use and that no row and no key is locked.
func WantIdle(t testing.TB, deps stock.Deps) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	wantUnused(t, deps)
	serverstest.Eventually(t, "no row is locked", func() bool {
		_, err := deps.MySQL.ExecContext(ctx, "SELECT goods_id FROM good_stock FOR UPDATE NOWAIT")
		_, err2 := deps.MySQL.ExecContext(ctx, "SELECT goods_id FROM good_slot FOR UPDATE NOWAIT")
		_, err3 := deps.MySQL.ExecContext(ctx, "SELECT goods_id FROM unit_stock FOR UPDATE NOWAIT")
		_, err4 := deps.MySQL.ExecContext(ctx, "SELECT goods_id FROM good_unit FOR UPDATE NOWAIT")
		return errors.Join(err, err2, err3, err4) == nil
	})
	masters := deps.Redlock
	if deps.Redis != nil {
		masters = append([]redis.UniversalClient{deps.Redis}, masters...)
	}
	for _, master := range masters {
		held, err := master.Keys(ctx, deps.KeyPrefix+"lock-*}").Result() // other keys of a lock have a suffix after the brace
		if err != nil || len(held) != 0 {
			t.Errorf("Redis still has the locks %v, %v", held, err)
		}
	}
}
