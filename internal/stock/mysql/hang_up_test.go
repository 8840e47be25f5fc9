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
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	outside, deps := stocktest.MySQL(t, a.MySQL), a.Connect(t)
	service := stocktest.NewService(t, deps)
	id, buy := service.NewItem(t, 100), service.Deducter(t, "for-update", stock.MySQL)
	unlock := stocktest.LockRow(t, outside, id)
	var clients sync.WaitGroup
	for range 3 {
		ctx, hangUp := context.WithCancel(t.Context())
		requests := 2 * deps.MySQL.Stats().MaxOpenConnections
		for range requests {
			clients.Go(func() { _, _ = buy.Deduct(ctx, stock.Request{GoodsID: id, Count: 1}) })
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
}
