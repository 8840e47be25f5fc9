package catalogue_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// One strategy for each way to keep keys. Redis flushes its append-only file after each command.
func TestASaleWithAKeyIsMadeOnceIfItsServerIsKilledMeanwhile(t *testing.T) {
	t.Parallel()
	inMySQL := serverstest.StartMySQL(t, servers.MySQLOptions{}) // durable
	inRedis := serverstest.StartRedis(t, servers.RedisOptions{AOF: true, Fsync: "always"})
	dsn, err := inMySQL.CreateDatabase(t.Context(), "stock")
	if err != nil {
		t.Fatal(err)
	}
	stocktest.Migrate(t, dsn)
	a := stocktest.Addresses{MySQL: dsn, Redis: &redis.Options{Addr: inRedis.Addr}}
	killed := func(restart func(context.Context) error) func() {
		return func() {
			if err := restart(t.Context()); err != nil { // kills it first
				t.Fatal(err)
			}
		}
	}
	for on, strategies := range map[stock.Store][]string{
		stock.MySQL: {"update", "for-update", "batch", "reserve", "lock-redis-lua", "lock-redis-fenced"},
		stock.Slots: {"slots", "escrow"},
		stock.Units: {"units"},
	} {
		t.Run(string(on), func(t *testing.T) { stocktest.RunCrashes(t, a, on, strategies, killed(inMySQL.Restart)) })
	}
	t.Run("redis", func(t *testing.T) {
		strategies := []string{"redis-script", "redis-stream", "redis-watch", "lock-redis-lua", "lock-redis-fenced"}
		stocktest.RunCrashes(t, a, stock.Redis, strategies, killed(inRedis.Restart))
	})
}
