package stream_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/stock/stream"
)

// replica is a replica of the service that sells by redis-stream.
type replica struct {
	deps    stock.Deps
	service *stocktest.Service
	stock.Deducter
}

// newReplica makes a replica that takes over entries once they are unacknowledged for the lease.
func newReplica(t testing.TB, deps stock.Deps, lease time.Duration) replica {
	t.Helper()
	deps.Lease = lease
	service := stocktest.NewService(t, deps, stocktest.Strategy(t, "redis-stream"))
	return replica{deps, service, service.Deducter(t, "redis-stream", stock.Redis)}
}

// newSingleReplica makes a replica with servers of its own.
func newSingleReplica(t testing.TB, lease time.Duration) replica {
	t.Helper()
	a, _ := newServers(t)
	return newReplica(t, connect(t, a), lease)
}

func (r replica) set(t testing.TB, id, units int64) {
	t.Helper()
	r.service.Set(t, id, units)
}

func (r replica) sell(t testing.TB, id int64, count int) {
	t.Helper()
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: count})
}

// close closes the replica before the test ends.
func (r replica) close(t testing.TB) {
	t.Helper()
	must.Succeed(t, r.service.Close())
}

// wantStock waits until the streams are empty, and checks the stock in both stores.
func (r replica) wantStock(t testing.TB, id, inRedis, inMySQL int64) {
	t.Helper()
	stocktest.Drain(t, r.service)
	r.service.WantLeft(t, stock.Redis, id, inRedis)
	r.service.WantLeft(t, stock.MySQL, id, inMySQL)
}

// recorded returns the units of an item's sales in stream_sale.
func (r replica) recorded(t testing.TB, id int64) (units int64) {
	t.Helper()
	err := r.deps.MySQL.Get(&units, "SELECT COALESCE(SUM(units), 0) FROM stream_sale WHERE goods_id = ?", id)
	must.Succeed(t, err)
	return units
}

// pendingEntries returns how many entries of item 1 were delivered and are not acknowledged.
func (r replica) pendingEntries(t testing.TB) int64 {
	t.Helper()
	pending, err := r.deps.Redis.XPending(t.Context(), "stock:{1}:sales", "stock").Result()
	must.Succeed(t, err)
	return pending.Count
}

// reconcile reconciles item 1.
func (r replica) reconcile(t testing.TB, mend bool) stream.Balance {
	t.Helper()
	balance, err := r.service.Reconcile(t.Context(), 1, mend)
	must.Succeed(t, err)
	return balance
}

// newServers starts a Redis server and makes a database that no other test uses.
func newServers(t testing.TB) (stocktest.Addresses, *servers.Redis) {
	a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	a.Redis = &redis.Options{Addr: server.Addr}
	return a, server
}

// connect makes the connections that redis-stream needs.
func connect(t testing.TB, a stocktest.Addresses) stock.Deps {
	mysql := stocktest.MySQL(t, a.MySQL)
	return stock.Deps{MySQL: mysql, MySQLLocks: mysql, Redis: stocktest.Redis(t, a.Redis)}
}

// withoutMySQL replaces MySQL by a server that does not answer, so that sales stay in the stream.
func withoutMySQL(t testing.TB, deps stock.Deps) stock.Deps {
	deps.MySQL = stocktest.MySQL(t, "root@tcp(127.0.0.1:1)/nowhere")
	return deps
}

// limitUser creates a user of Redis who has all permissions but some. It returns the options of a client of that user.
func limitUser(t testing.TB, server *servers.Redis, limits ...any) *redis.Options {
	t.Helper()
	admin := stocktest.Redis(t, &redis.Options{Addr: server.Addr})
	command := []any{"ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all"}
	must.Succeed(t, admin.Do(t.Context(), append(command, limits...)...).Err())
	return &redis.Options{Addr: server.Addr, Username: "limited", Password: "secret"}
}

// newEntry makes an entry for the stream of an item.
func newEntry(goodsID, units int64, epoch any) *redis.XAddArgs {
	values := []any{"units", units, "epoch", epoch, "nonce", 7}
	return &redis.XAddArgs{Stream: fmt.Sprintf("stock:{%d}:sales", goodsID), Values: values}
}

// reusedEntry makes an entry for the stream of item 1 with the id of an earlier entry.
func reusedEntry(id string, units int64, epoch any) *redis.XAddArgs {
	entry := newEntry(1, units, epoch)
	entry.ID = id
	return entry
}

// takeAllConnections makes everyone who needs a connection of the pool wait until it is resumed.
func takeAllConnections(t testing.TB, db *sqlx.DB) (resume func()) {
	t.Helper()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	must.Succeed(t, err)
	resume = sync.OnceFunc(func() { conn.Close() })
	t.Cleanup(resume)
	return resume
}

func atoi(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must.Succeed(t, err)
	return n
}
