package mysql_test

import (
	"context"
	"sync"
	"testing"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// If a request gave up its connection when its client hangs up, the pool would open another, while the server keeps the
// session until it stops waiting for the row.
func TestClientsThatHangUpLeaveNoSessionsBehind(t *testing.T) {
	deduct := func(name string) func(*testing.T, stock.Deps, *stocktest.Service, int64) func(context.Context) {
		return func(t *testing.T, _ stock.Deps, service *stocktest.Service, id int64) func(context.Context) {
			deducter := service.Deducter(t, name, stock.MySQL)
			return func(ctx context.Context) { _, _ = deducter.Deduct(ctx, stock.Request{GoodsID: id, Count: 1}) }
		}
	}
	order := func(t *testing.T, _ stock.Deps, service *stocktest.Service, id int64) func(context.Context) {
		orderer, _, err := service.ResolveOrders("update", stock.MySQL)
		must.Succeed(t, err)
		free := stock.Line{GoodsID: service.NewItem(t, 100), Count: 1}
		request, err := stock.NewOrder(free, stock.Line{GoodsID: id, Count: 1})
		must.Succeed(t, err)
		return func(ctx context.Context) { _, _ = orderer.Order(ctx, request) }
	}
	for name, prepare := range map[string]func(
		*testing.T, stock.Deps, *stocktest.Service, int64,
	) func(context.Context){
		"for-update": deduct("for-update"), "serializable": deduct("serializable"),
		"order": order,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := stocktest.NewAddresses(t, stock.NeedMySQL)
			outside, deps := stocktest.MySQL(t, a.MySQL), a.Connect(t)
			service := stocktest.NewService(t, deps)
			id := service.NewItem(t, 100)
			buy := prepare(t, deps, service, id)
			unlock := stocktest.LockRow(t, outside, id)
			var clients sync.WaitGroup
			for range 3 {
				ctx, hangUp := context.WithCancel(t.Context())
				requests := 2 * deps.MySQL.Stats().MaxOpenConnections
				for range requests {
					clients.Go(func() { buy(ctx) })
				}
				serverstest.Eventually(t, "every request has a connection or waits for one", func() bool {
					return deps.MySQL.Stats().InUse+deps.MySQLShares.Waiting() >= requests
				})
				stocktest.WaitForRowLocks(t, outside, deps.MySQL.Stats().MaxOpenConnections/2)
				hangUp()
				serverstest.Eventually(t, "nobody waits for a share", func() bool { return deps.MySQLShares.Waiting() == 0 })
			}
			serverstest.Eventually(t, "the server has no session but those of the pools", func() bool {
				var sessions int
				err := outside.Get(&sessions, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()")
				must.Succeed(t, err)
				return sessions <= outside.Stats().OpenConnections+deps.MySQL.Stats().OpenConnections+
					deps.MySQLLocks.Stats().OpenConnections+deps.MySQLHealth.Stats().OpenConnections
			})
			unlock()
			clients.Wait()
			stocktest.WantIdle(t, deps)
			service.WantLeft(t, stock.MySQL, id, 100)
		})
	}
}
