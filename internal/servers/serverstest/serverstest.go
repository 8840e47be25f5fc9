// Package serverstest provides tests with real servers. If a server is not installed, the test fails.
//
// The tests of a package share one server of each kind, which starts when a test first needs it. Each test gets a
// database of its own:
//
//	var shared serverstest.Servers
//
//	func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }
//
//	func TestSomething(t *testing.T) {
//		dsn := shared.Database(t)
//		client := redis.NewClient(shared.Redis(t))
//		…
//	}
//
// etcd and ZooKeeper have no databases: tests use different keys.
//
// A test that kills, pauses or restarts a server starts its own with StartMySQL, StartRedis, StartEtcd or
// StartZooKeeper.
//
// With go test -short, there is no server but the shared MySQL and one shared Redis: a test that needs another is
// skipped.
package serverstest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
)

// databases is the number of logical databases of a shared Redis, and so limits the calls of Redis and Redlock of a
// package.
const databases = 4096

// maxMasters is how many masters of Redlock there are at most.
const maxMasters = 8

// limit bounds how long a server may take to start or to carry out a test's request.
const limit = 5 * time.Minute

// Servers are shared by the tests of a package. The zero value is ready for use: servers start when first needed.
type Servers struct {
	mu        sync.Mutex
	stops     []func(context.Context) error // of all that have started
	mysql     *servers.MySQL
	masters   [maxMasters]*servers.Redis // Redis uses the first, Redlock all
	replica   *servers.Redis             // of the first master
	etcd      *servers.Etcd
	zookeeper *servers.ZooKeeper
	postgres  *servers.Postgres
	used      atomic.Int64 // number of databases handed out
}

// Long skips the test in short mode.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long, or needs more than the shared MySQL and Redis: leave -short out")
	}
}

// Run runs the tests, stops the servers and returns the exit code. Call it from TestMain.
func (s *Servers) Run(m *testing.M) int {
	code := m.Run()
	for _, stop := range slices.Backward(s.stops) {
		if err := stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// TiDB is the path of tidb-server, which the shared server then is instead of MySQL; empty for MySQL. The tests of
// package catalogue pass with both (make test-tidb).
var TiDB = os.Getenv("STOCK_TIDB")

// once starts a shared server, unless it is running.
func once[S any, Server interface {
	*S
	Stop(context.Context) error
}](t testing.TB, s *Servers, kept *Server, start func(context.Context) (Server, error)) Server {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if *kept == nil {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		server, err := start(ctx)
		must.Succeed(t, err)
		*kept, s.stops = server, append(s.stops, server.Stop)
	}
	return *kept
}

// MySQL returns the shared server. Its durability is relaxed.
func (s *Servers) MySQL(t testing.TB) *servers.MySQL {
	t.Helper()
	return once(t, s, &s.mysql, func(ctx context.Context) (*servers.MySQL, error) {
		if TiDB != "" {
			return servers.StartTiDB(ctx, TiDB)
		}
		return servers.StartMySQL(ctx, servers.MySQLOptions{Relaxed: true})
	})
}

// Database creates an empty database on the shared MySQL server and returns its DSN. It is dropped after the test.
func (s *Servers) Database(t testing.TB) (dsn string) {
	t.Helper()
	mysql := s.MySQL(t)
	name := fmt.Sprintf("test_%d", s.used.Add(1))
	dsn, err := mysql.CreateDatabase(t.Context(), name)
	must.Succeed(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		must.Succeed(t, mysql.DropDatabase(ctx, name))
	})
	return dsn
}

// Redis returns options of a client of the shared Redis server, on an empty logical database that no other test has.
func (s *Servers) Redis(t testing.TB) *redis.Options {
	t.Helper()
	return s.Redlock(t, 1)[0]
}

// Redlock returns options of clients of n shared, independent Redis masters, each on an empty logical database that no
// other test has.
func (s *Servers) Redlock(t testing.TB, n int) []*redis.Options {
	t.Helper()
	if n > 1 {
		Long(t)
	}
	var options []*redis.Options
	db := int(s.used.Add(1))
	if db >= databases {
		t.Fatalf("the tests of this package need more than %d Redis databases: raise serverstest.databases", databases)
	}
	for i := range n {
		master := once(t, s, &s.masters[i], func(ctx context.Context) (*servers.Redis, error) {
			return servers.StartRedis(ctx, servers.RedisOptions{Databases: databases})
		})
		options = append(options, &redis.Options{Addr: master.Addr, DB: db})
	}
	return options
}

// AddRedisReplica gives the shared Redis server a Redis replica, unless it has one.
func (s *Servers) AddRedisReplica(t testing.TB) {
	t.Helper()
	Long(t)
	master := s.Redis(t).Addr
	once(t, s, &s.replica, func(ctx context.Context) (*servers.Redis, error) {
		o := servers.RedisOptions{Name: "redis-replica", Databases: databases, ReplicaOf: master}
		return servers.StartRedis(ctx, o)
	})
}

// Etcd returns the host:port of the shared etcd server. Its durability is relaxed.
func (s *Servers) Etcd(t testing.TB) (addr string) {
	t.Helper()
	Long(t)
	return once(t, s, &s.etcd, func(ctx context.Context) (*servers.Etcd, error) {
		return servers.StartEtcd(ctx, servers.EtcdOptions{Relaxed: true})
	}).Addr
}

// ZooKeeper returns the host:port of the shared ZooKeeper server. Its durability is relaxed.
func (s *Servers) ZooKeeper(t testing.TB) (addr string) {
	t.Helper()
	Long(t)
	return once(t, s, &s.zookeeper, func(ctx context.Context) (*servers.ZooKeeper, error) {
		return servers.StartZooKeeper(ctx, servers.ZooKeeperOptions{Relaxed: true})
	}).Addr
}

// Postgres creates an empty database on the shared PostgreSQL server, which stops without dropping it, and returns its
// DSN.
func (s *Servers) Postgres(t testing.TB) (dsn string) {
	t.Helper()
	Long(t)
	postgres := once(t, s, &s.postgres, func(ctx context.Context) (*servers.Postgres, error) {
		return servers.StartPostgres(ctx, servers.PostgresOptions{Relaxed: true})
	})
	dsn, err := postgres.CreateDatabase(t.Context(), fmt.Sprintf("test_%d", s.used.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// StartMySQL starts a server for this test alone, which may stop, kill or restart it.
func StartMySQL(t testing.TB, o servers.MySQLOptions) *servers.MySQL {
	t.Helper()
	Long(t)
	server, err := servers.StartMySQL(t.Context(), o)
	return started(t, server, err)
}

// StartDatabase starts a MySQL server for this test alone, with an empty database.
func StartDatabase(t testing.TB, o servers.MySQLOptions) (server *servers.MySQL, dsn string) {
	t.Helper()
	server = StartMySQL(t, o)
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	return server, dsn
}

// StartRedis starts a server for this test alone, which may stop, kill or restart it.
func StartRedis(t testing.TB, o servers.RedisOptions) *servers.Redis {
	t.Helper()
	Long(t)
	server, err := servers.StartRedis(t.Context(), o)
	return started(t, server, err)
}

// StartEtcd starts a server for this test alone, which may stop, kill or restart it.
func StartEtcd(t testing.TB, o servers.EtcdOptions) *servers.Etcd {
	t.Helper()
	Long(t)
	server, err := servers.StartEtcd(t.Context(), o)
	return started(t, server, err)
}

// StartZooKeeper starts a server for this test alone, which may stop, kill or restart it.
func StartZooKeeper(t testing.TB, o servers.ZooKeeperOptions) *servers.ZooKeeper {
	t.Helper()
	Long(t)
	server, err := servers.StartZooKeeper(t.Context(), o)
	return started(t, server, err)
}

// started fails the test if the server did not start. Otherwise the server is stopped after the test.
func started[S interface{ Stop(context.Context) error }](t testing.TB, server S, err error) S {
	t.Helper()
	must.Succeed(t, err)
	StopAfterTest(t, server)
	return server
}

// StopAfterTest stops a server when the test ends.
func StopAfterTest(t testing.TB, server interface{ Stop(context.Context) error }) {
	t.Helper()
	t.Cleanup(func() { must.Succeed(t, server.Stop(context.Background())) })
}
