package stocktest

import (
	"context"
	"errors"
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
	"stock/internal/stock/catalogue"
	"stock/internal/stock/health"
	"stock/internal/stock/inventory"
	"stock/internal/stock/stream"
	"stock/migrations"
)

// Servers are the servers that all tests of one package share.
var Servers serverstest.Servers

// Main is the TestMain of a package whose tests use Servers. It silences drivers, whose connections are cut on purpose.
func Main(m *testing.M) int {
	if err := mysql.SetLogger(&mysql.NopLogger{}); err != nil {
		panic(err)
	}
	redis.SetLogger(quietRedis{})
	return Servers.Run(m)
}

type quietRedis struct{}

func (quietRedis) Printf(context.Context, string, ...any) {}

type quietZooKeeper struct{}

func (quietZooKeeper) Printf(string, ...any) {}

// Addresses are the servers that the replicas of one test share.
type Addresses struct {
	MySQL     string // DSN of a database of the test's own
	Redis     *redis.Options
	Redlock   []*redis.Options
	Etcd      string
	ZooKeeper string
}

// NewAddresses starts the servers and migrates a database.
func NewAddresses(t testing.TB) Addresses {
	return Addresses{
		MySQL:     NewDatabase(t),
		Redis:     Servers.Redis(t),
		Redlock:   Servers.Redlock(t, 3),
		Etcd:      Servers.Etcd(t),
		ZooKeeper: Servers.ZooKeeper(t),
	}
}

// NewDatabase makes a database of the test's own and migrates it.
func NewDatabase(t testing.TB) (dsn string) {
	dsn = Servers.Database(t)
	Migrate(t, dsn)
	return dsn
}

// Migrate brings a database's schema up to date.
func Migrate(t testing.TB, dsn string) {
	t.Helper()
	db := sqlx.MustOpen("mysql", dsn)
	defer db.Close()
	if _, err := migrations.Up(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
}

// Connect makes connections like those of one replica.
func (a Addresses) Connect(t testing.TB) stock.Deps {
	deps := stock.Deps{
		MySQL:      MySQL(t, a.MySQL),
		MySQLLocks: MySQL(t, a.MySQL),
		Redis:      Redis(t, a.Redis),
		Etcd:       etcdClient(t, a.Etcd),
		ZooKeeper:  zooKeeperClient(t, a.ZooKeeper),
		LockWait:   20 * time.Second,
		Lease:      30 * time.Second,
		Poll:       time.Millisecond,
	}
	for _, master := range a.Redlock {
		deps.Redlock = append(deps.Redlock, Redis(t, master))
	}
	return deps
}

// MySQL opens a pool that is closed when the test ends.
func MySQL(t testing.TB, dsn string) *sqlx.DB {
	db := sqlx.MustOpen("mysql", dsn)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	return db
}

// Redis makes a client that never retries and is closed when the test ends.
func Redis(t testing.TB, options *redis.Options) redis.UniversalClient {
	o := *options
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	c := redis.NewClient(&o)
	t.Cleanup(func() { c.Close() })
	return c
}

func etcdClient(t testing.TB, address string) *clientv3.Client {
	config := clientv3.Config{Endpoints: []string{address}, DialTimeout: time.Second, Logger: zap.NewNop()}
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func zooKeeperClient(t testing.TB, address string) *zk.Conn {
	quiet := zk.WithLogger(quietZooKeeper{})
	conn, _, err := zk.Connect([]string{address}, 30*time.Second, quiet, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// Service is what one replica does, without HTTP.
type Service struct {
	*catalogue.Registry
	*inventory.Inventory
	stream.Admin
	deps stock.Deps
}

// NewService builds strategies, all of the catalogue if none are named. It is closed when the test ends.
func NewService(t testing.TB, deps stock.Deps, strategies ...stock.Strategy) *Service {
	t.Helper()
	if strategies == nil {
		strategies = catalogue.Strategies
	}
	registry, err := catalogue.Build(deps, strategies)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := registry.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Service{registry, inventory.New(deps), stream.Admin{MySQL: deps.MySQL, Redis: deps.Redis}, deps}
}

// Check is health.Check.
func (s *Service) Check(ctx context.Context) map[stock.Need]error { return health.Check(ctx, s.deps) }

// Deducter returns a strategy on a store.
func (s *Service) Deducter(t testing.TB, name string, on stock.Store) stock.Deducter {
	t.Helper()
	deducter, _, err := s.Resolve(name, on)
	if err != nil {
		t.Fatal(err)
	}
	return deducter
}

// Drain waits until every sale of redis-stream is in MySQL.
func Drain(t testing.TB, s *Service) {
	t.Helper()
	serverstest.Eventually(t, "every sale is in MySQL", func() bool {
		backlog, err := s.Backlog(t.Context())
		return err == nil && backlog.Sales == 0
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
	t.Fatalf("the catalogue has no %s", name)
	return stock.Strategy{}
}

var items atomic.Int64

// NewItem returns an id that no other test has. etcd, ZooKeeper and MySQL's named locks have no databases that would keep
// tests apart.
func NewItem() int64 { return 1<<20 + items.Add(1) }

// WantIdle fails the test if a connection is still in use, or a row or a key still locked.
func WantIdle(t testing.TB, deps stock.Deps) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	// redis-stream writes to MySQL after it has replied.
	serverstest.Eventually(t, "no MySQL connection is in use", func() bool { return deps.MySQL.Stats().InUse == 0 })
	serverstest.Eventually(t, "no named lock is held or waited for", func() bool {
		return deps.MySQLLocks.Stats().InUse == 0
	})
	serverstest.Eventually(t, "no row is locked", func() bool {
		_, err := deps.MySQL.ExecContext(ctx, "SELECT goods_id FROM good_stock FOR UPDATE NOWAIT")
		_, err2 := deps.MySQL.ExecContext(ctx, "SELECT goods_id FROM good_slot FOR UPDATE NOWAIT")
		return errors.Join(err, err2) == nil
	})
	for _, server := range append([]redis.UniversalClient{deps.Redis}, deps.Redlock...) {
		held, err := server.Keys(ctx, "lock-*}").Result() // other keys of a lock have a suffix behind the brace
		if err != nil || len(held) != 0 {
			t.Errorf("still locked in Redis: %v, %v", held, err)
		}
	}
}
