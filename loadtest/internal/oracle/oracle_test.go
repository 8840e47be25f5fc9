package oracle

import (
	"database/sql"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/history"
	"stock/migrations"
)

// backend is a MySQL and a Redis server with stock in them, and an oracle that sees them. They are the test's own,
// because the statements of other clients would be counted, too.
type backend struct {
	*Oracle
	db    *sql.DB
	redis *redis.Client
}

func startBackend(t *testing.T) backend {
	t.Helper()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true})
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	store, master := serverstest.StartRedis(t, servers.RedisOptions{}), serverstest.StartRedis(t, servers.RedisOptions{})

	config, err := mysql.ParseDSN(dsn)
	must.Succeed(t, err)
	config.MultiStatements = true
	config.ParseTime = true
	db, err := sql.Open("mysql", config.FormatDSN())
	must.Succeed(t, err)
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(1)
	_, err = migrations.Up(t.Context(), db)
	must.Succeed(t, err)
	client := redis.NewClient(&redis.Options{Addr: store.Addr})
	t.Cleanup(func() { client.Close() })

	o, err := Open(t.Context(), Config{MySQLDSN: dsn, Redis: []string{store.Addr}, Redlock: []string{master.Addr}})
	must.Succeed(t, err)
	t.Cleanup(func() { o.Close() })
	b := backend{Oracle: o, db: db, redis: client}
	b.exec(t, "REPLACE INTO good_stock (goods_id, stock) VALUES (1, 41), (2, -3)")
	b.exec(t, "INSERT INTO good_slot (goods_id, slot, stock) VALUES (2, 0, 4), (2, 1, 0), (2, 2, 3)")
	b.exec(t, "INSERT INTO unit_stock (goods_id, unmade, made) VALUES (2, 9, 3)")
	b.exec(t, "INSERT INTO good_unit (goods_id, unit) VALUES (2, 1), (2, 3)")
	must.Succeed(t, client.MSet(t.Context(), "stock:{1}", 51, "stock:{2}", -4).Err())
	return b
}

func (b backend) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := b.db.ExecContext(t.Context(), statement)
	must.Succeed(t, err)
}

func TestOracleReadsAndCounts(t *testing.T) {
	t.Parallel()
	b := startBackend(t)
	t.Run("stock", b.testStock)
	t.Run("ledger", b.testLedger)
	t.Run("counters", b.testCounters)
	t.Run("servers", b.testServers)
}

func (b backend) testStock(t *testing.T) {
	for store, want := range map[string]map[int64]int64{
		MySQL: {1: 41, 2: -3},
		Redis: {1: 51, 2: -4},
		Slots: {1: migrations.FirstStock, 2: 7},
		Units: {1: migrations.FirstStock, 2: 11},
	} {
		got, err := b.Stock(t.Context(), store, []int64{1, 2})
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("stock in %s: %v, %v, want %v", store, got, err, want)
		}
		_, err = b.Stock(t.Context(), store, []int64{1, 99})
		if err == nil || !strings.HasSuffix(err.Error(), "no item 99") {
			t.Errorf("stock of an unknown item in %s: error %v", store, err)
		}
	}
}

func (b backend) testLedger(t *testing.T) {
	b.exec(t, `INSERT INTO ledger (order_key, line, goods_id, count, remaining, outcome, fingerprint, created_at) VALUES
		('7-1-0', 0, 1, 2, 39, 'done', '', NOW()), ('7-1-1', 0, 1, 0, 1, 'sold-out', '', NOW()),
		('7-10-0', 0, 1, 3, 36, 'done', '', NOW()), ('7-1', 0, 1, 4, 32, 'done', '', NOW()),
		('\0own', 0, 1, 5, 27, 'done', '', NOW())`)
	want := []history.Entry{
		{Key: "7-1-0", GoodsID: 1, Count: 2, Remaining: 39},
		{Key: "7-1-1", GoodsID: 1, Remaining: 1},
	}
	if got, err := b.Ledger(t.Context(), "7-1"); err != nil || !slices.Equal(got, want) {
		t.Errorf("ledger of the deductions 7-1-…: %v, %v, want %v", got, err, want)
	}
}

func (b backend) testCounters(t *testing.T) {
	before, err := b.Counters(t.Context())
	must.Succeed(t, err)
	for range 7 {
		b.exec(t, "UPDATE good_stock SET stock = stock - 1 WHERE goods_id = 1")
	}
	for range 5 {
		must.Succeed(t, b.redis.Decr(t.Context(), "stock:{1}").Err())
	}
	// The oracle's own statements do not count as work of the service.
	for _, store := range Stores {
		_, err := b.Stock(t.Context(), store, []int64{1, 2})
		must.Succeed(t, err)
	}
	_, err = b.Ledger(t.Context(), "7-1")
	must.Succeed(t, err)
	_, err = b.Servers(t.Context())
	must.Succeed(t, err)
	after, err := b.Counters(t.Context())
	must.Succeed(t, err)
	if got, want := after.Since(before), (Counters{MySQLStatements: 7, RedisCommands: 5}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func (b backend) testServers(t *testing.T) {
	found, err := b.Servers(t.Context())
	if err != nil || len(found) != 2 {
		t.Fatalf("servers %v, %v, want MySQL and Redis", found, err)
	}
	for i, names := range [][]string{
		{"innodb_flush_log_at_trx_commit", "sync_binlog", "transaction_isolation"},
		{"appendonly", "appendfsync"},
	} {
		if found[i].Version == "" {
			t.Errorf("%s has no version", found[i].Name)
		}
		for _, name := range names {
			if found[i].Settings[name] == "" {
				t.Errorf("the settings of %s lack %s: %v", found[i].Name, name, found[i].Settings)
			}
		}
	}
}
