package stock_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/migrations"
)

var shared serverstest.Servers

func TestMain(m *testing.M) {
	// Connections are cut on purpose: what the drivers say of it is not worth reading.
	if err := mysql.SetLogger(&mysql.NopLogger{}); err != nil {
		panic(err)
	}
	redis.SetLogger(quietRedis{})
	os.Exit(shared.Run(m))
}

type quietRedis struct{}

func (quietRedis) Printf(context.Context, string, ...any) {}

type quietZooKeeper struct{}

func (quietZooKeeper) Printf(string, ...any) {}

// addresses are the servers that the replicas of one test share.
type addresses struct {
	mysql     string
	redis     *redis.Options
	redlock   []*redis.Options
	etcd      string
	zookeeper string
}

func newAddresses(t testing.TB) addresses {
	a := addresses{shared.Database(t), shared.Redis(t), shared.Redlock(t, 3), shared.Etcd(t), shared.ZooKeeper(t)}
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
	deps := stock.Deps{
		MySQL:      pool(t, a.mysql),
		MySQLLocks: pool(t, a.mysql),
		Redis:      client(t, a.redis),
		Etcd:       etcdClient(t, a.etcd),
		ZooKeeper:  zooKeeperClient(t, a.zookeeper),
		LockWait:   20 * time.Second,
		Lease:      30 * time.Second,
		Poll:       time.Millisecond,
	}
	for _, master := range a.redlock {
		deps.Redlock = append(deps.Redlock, client(t, master))
	}
	return deps
}

func pool(t testing.TB, dsn string) *sqlx.DB {
	db := sqlx.MustOpen("mysql", dsn)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	return db
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

func etcdClient(t testing.TB, address string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func zooKeeperClient(t testing.TB, address string) *zk.Conn {
	conn, _, err := zk.Connect([]string{address}, 30*time.Second, zk.WithLogger(quietZooKeeper{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// newService makes the service of one replica.
func newService(t testing.TB, deps stock.Deps) *stock.Service {
	service, err := stock.NewService(deps, stock.Catalogue)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return service
}

var goods atomic.Int64

// freshGoods is an id that no other test has, nor the suite, which counts from 1. etcd, ZooKeeper and MySQL's named locks
// have no databases that would keep them apart.
func freshGoods() int64 { return 1<<20 + goods.Add(1) }

// idle fails the test where a connection is still in use, a row or a key still locked.
func idle(t testing.TB, deps stock.Deps) {
	ctx := context.WithoutCancel(t.Context())
	// redis-stream writes to MySQL after it has replied.
	eventually(t, "no MySQL connection is in use", func() bool { return deps.MySQL.Stats().InUse == 0 })
	eventually(t, "no named lock is held or waited for", func() bool { return deps.MySQLLocks.Stats().InUse == 0 })
	eventually(t, "no row is locked", func() bool {
		_, err := deps.MySQL.ExecContext(ctx, "SELECT goods_id FROM good_stock FOR UPDATE NOWAIT")
		_, err2 := deps.MySQL.ExecContext(ctx, "SELECT goods_id FROM good_slot FOR UPDATE NOWAIT")
		return errors.Join(err, err2) == nil
	})
	for _, server := range append([]redis.UniversalClient{deps.Redis}, deps.Redlock...) {
		held, err := server.Keys(ctx, "lock-*}").Result() // what a lock remembers has more behind the brace
		if err != nil || len(held) != 0 {
			t.Errorf("still locked in Redis: %v, %v", held, err)
		}
	}
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	a := newAddresses(t)
	stocktest.Run(t, stock.Catalogue, stocktest.Env{Connect: a.connect, Idle: idle})
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
