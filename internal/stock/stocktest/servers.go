package stocktest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/share"
	"stock/migrations"
)

// Servers are the servers that all tests of one package share.
var Servers serverstest.Servers

// Main is the TestMain of a package whose tests use Servers. It silences the drivers, since tests cut connections on
// purpose.
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

// Addresses are the servers that the replicas of one test share. A server that the test does not need is empty.
type Addresses struct {
	MySQL        string // DSN of a database that no other test uses
	Redis        *redis.Options
	KeyPrefix    string // see stock.Deps
	RedisReplica bool   // Redis has a Redis replica
	Redlock      []*redis.Options
	Etcd         string
	ZooKeeper    string
}

// NewAddresses starts the servers that the test needs, all if it names none, and migrates a new database.
func NewAddresses(t testing.TB, needs ...stock.Need) Addresses {
	t.Helper()
	needed := func(need stock.Need) bool { return len(needs) == 0 || slices.Contains(needs, need) }
	var a Addresses
	if needed(stock.NeedMySQL) {
		a.MySQL = NewDatabase(t)
	}
	if needed(stock.NeedRedis) {
		a.Redis = Servers.Redis(t)
	}
	if needed(stock.NeedRedisReplica) {
		Servers.AddRedisReplica(t)
		a.RedisReplica = true
	}
	if needed(stock.NeedRedlock) {
		a.Redlock = Servers.Redlock(t, 3)
	}
	if needed(stock.NeedEtcd) {
		a.Etcd = Servers.Etcd(t)
	}
	if needed(stock.NeedZooKeeper) {
		a.ZooKeeper = Servers.ZooKeeper(t)
	}
	return a
}

// LimitToPrefix returns the addresses with an account of Redis that may touch only keys and channels with a prefix. Any
// other is an error.
func (a Addresses) LimitToPrefix(t testing.TB, prefix string) Addresses {
	t.Helper()
	serverstest.SetUser(t, a.Redis, []string{"ACL SETUSER limited on >secret ~" + prefix + "* &" + prefix + "* +@all"})
	limited := *a.Redis
	limited.Username, limited.Password = "limited", "secret"
	a.Redis, a.KeyPrefix = &limited, prefix
	return a
}

// NewDatabase creates a database that no other test uses, and migrates it.
func NewDatabase(t testing.TB) (dsn string) {
	t.Helper()
	dsn = Servers.Database(t)
	Migrate(t, dsn)
	return dsn
}

// Migrate brings a database's schema up to date.
func Migrate(t testing.TB, dsn string) {
	t.Helper()
	db := sqlx.MustOpen("mysql", dsn)
	defer db.Close()
	_, err := migrations.Up(t.Context(), db.DB)
	must.Succeed(t, err)
}

// Connect opens connections like those of one replica. They are closed when the test ends.
func (a Addresses) Connect(t testing.TB) stock.Deps {
	t.Helper()
	deps := stock.Deps{
		LockWait: 2 * time.Minute, Lease: 30 * time.Second, Poll: time.Millisecond,
		KeyTTL: time.Hour, RefusalTTL: time.Hour, KeyPrefix: a.KeyPrefix,
	}
	if a.MySQL != "" {
		deps.MySQL, deps.MySQLLocks, deps.MySQLHealth = MySQL(t, a.MySQL), MySQL(t, a.MySQL), MySQL(t, a.MySQL)
		deps.MySQLHealth.SetMaxIdleConns(0)
		deps.TiDB = serverstest.TiDB != ""
		deps.MySQLShares = share.New(deps.MySQL.Stats().MaxOpenConnections)
	}
	if a.Redis != nil {
		deps.Redis, deps.RedisReplica = Redis(t, a.Redis), a.RedisReplica
	}
	for _, master := range a.Redlock {
		deps.Redlock = append(deps.Redlock, Redis(t, master))
	}
	if a.Etcd != "" {
		deps.Etcd = etcdClient(t, a.Etcd)
	}
	if a.ZooKeeper != "" {
		deps.ZooKeeper = zooKeeperClient(t, a.ZooKeeper)
	}
	return deps
}

// WithMySQLParam returns the addresses with a parameter added to the DSN, such as a system variable of the session.
func (a Addresses) WithMySQLParam(t testing.TB, name, value string) Addresses {
	t.Helper()
	config := parseDSN(t, a.MySQL)
	config.Params = map[string]string{name: value}
	a.MySQL = config.FormatDSN()
	return a
}

func parseDSN(t testing.TB, dsn string) *mysql.Config {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	must.Succeed(t, err)
	return config
}

// MySQL opens a pool that is closed when the test ends. It pauses requests: see WithPause.
func MySQL(t testing.TB, dsn string) *sqlx.DB {
	t.Helper()
	db, err := openMySQL(parseDSN(t, dsn))
	must.Succeed(t, err)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	return db
}

// Redis returns a client that never retries and is closed when the test ends. It pauses requests: see
// WithPause.
func Redis(t testing.TB, options *redis.Options) redis.UniversalClient {
	client := serverstest.RedisClient(t, options)
	client.AddHook(pausingRedis{})
	return client
}

func etcdClient(t testing.TB, address string) *clientv3.Client {
	config := clientv3.Config{Endpoints: []string{address}, DialTimeout: time.Second, Logger: zap.NewNop()}
	client, err := clientv3.New(config)
	must.Succeed(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func zooKeeperClient(t testing.TB, address string) *zk.Conn {
	quiet := zk.WithLogger(quietZooKeeper{})
	conn, _, err := zk.Connect([]string{address}, 30*time.Second, quiet, zk.WithLogInfo(false))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return conn
}
