package stock_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/migrations"
)

var shared serverstest.Servers

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// addresses are the servers that the replicas of one test share.
type addresses struct {
	mysql   string
	redis   *redis.Options
	redlock []*redis.Options
}

func newAddresses(t testing.TB) addresses {
	a := addresses{shared.Database(t), shared.Redis(t), shared.Redlock(t, 3)}
	migrate(t, a.mysql)
	return a
}

func migrate(t testing.TB, dsn string) {
	db := sqlx.MustOpen("mysql", dsn)
	defer db.Close()
	if _, err := migrations.Up(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
}

// connect makes connections like those of one replica.
func (a addresses) connect(t testing.TB) stock.Deps {
	db := sqlx.MustOpen("mysql", a.mysql)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	deps := stock.Deps{
		MySQL:    db,
		Redis:    client(t, a.redis),
		LockWait: 20 * time.Second,
		Lease:    30 * time.Second,
		Poll:     time.Millisecond,
	}
	for _, master := range a.redlock {
		deps.Redlock = append(deps.Redlock, client(t, master))
	}
	return deps
}

func client(t testing.TB, options *redis.Options) redis.UniversalClient {
	o := *options
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	c := redis.NewClient(&o)
	t.Cleanup(func() { c.Close() })
	return c
}

// idle fails the test where a connection is still in use, a row or a key still locked.
func idle(t testing.TB, deps stock.Deps) {
	ctx := context.WithoutCancel(t.Context())
	if n := deps.MySQL.Stats().InUse; n != 0 {
		t.Errorf("%d MySQL connections are still in use", n)
	}
	var open int
	if err := deps.MySQL.GetContext(ctx, &open, `SELECT COUNT(*) FROM information_schema.innodb_trx trx
		JOIN information_schema.processlist process ON process.id = trx.trx_mysql_thread_id
		WHERE process.db = DATABASE()`); err != nil || open != 0 {
		t.Errorf("%d transactions are still open, %v", open, err)
	}
	for _, server := range append([]redis.UniversalClient{deps.Redis}, deps.Redlock...) {
		held, err := server.Keys(ctx, "lock:*").Result()
		if err != nil || len(held) != 0 {
			t.Errorf("still locked in Redis: %v, %v", held, err)
		}
	}
}

func TestCatalogue(t *testing.T) {
	a := newAddresses(t)
	stocktest.Run(t, stock.Catalogue, stocktest.Env{Connect: a.connect, Idle: idle})
}
