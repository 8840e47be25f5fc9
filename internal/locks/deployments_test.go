package locks_test

import (
	"context"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/locks"
	"stock/internal/locks/lockstest"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// process is a server that belongs to one test.
type process interface {
	Restart(context.Context) error
	Signal(syscall.Signal) error
}

// processes are the servers of a Private; empty if they are shared.
type processes []process

func (p processes) Restart(t testing.TB) {
	for _, server := range p {
		must.Succeed(t, server.Restart(t.Context()))
	}
}

func (p processes) Signal(t testing.TB, signal syscall.Signal) {
	for _, server := range p {
		if err := server.Signal(signal); err != nil {
			t.Error(err)
		}
	}
}

// inProcess is a Mutex, which needs no server.
type inProcess struct{ *locks.Mutex }

func (d inProcess) New(testing.TB, []string, locks.Options) locks.Locker { return d.Mutex }
func (inProcess) Addresses() []string                                    { return nil }
func (d inProcess) Held(_ testing.TB, key string) bool                   { return d.Mutex.InUse(key) }
func (inProcess) Left(testing.TB, string) []string                       { return nil }

func (inProcess) Steal(t testing.TB, _ string) { t.Fatal("a Mutex cannot be taken from its holder") }

// newOnRedis makes a lock from a connection to each of its masters.
type newOnRedis func(t testing.TB, masters []redis.UniversalClient, o locks.Options) locks.Locker

// onRedis is a lock on one Redis or on several independent ones.
type onRedis struct {
	processes
	masters   []*redis.Options
	observers []redis.UniversalClient
	lock      newOnRedis
}

func sharedRedis(masters int, lock newOnRedis) func(testing.TB) lockstest.Deployment {
	return func(t testing.TB) lockstest.Deployment {
		options := shared.Redlock(t, masters)
		return onRedis{masters: options, observers: connectAll(t, options), lock: lock}
	}
}

func ownRedis(masters int, lock newOnRedis) func(testing.TB) lockstest.Private {
	return func(t testing.TB) lockstest.Private {
		d := onRedis{lock: lock}
		for range masters {
			server := serverstest.StartRedis(t, servers.RedisOptions{AOF: true, Fsync: "always"})
			d.processes = append(d.processes, server)
			d.masters = append(d.masters, &redis.Options{Addr: server.Addr})
		}
		d.observers = connectAll(t, d.masters)
		return d
	}
}

func (d onRedis) New(t testing.TB, addresses []string, o locks.Options) locks.Locker {
	masters := slices.Clone(d.masters)
	for i, address := range addresses {
		masters[i] = &redis.Options{Addr: address, DB: d.masters[i].DB}
	}
	return d.lock(t, connectAll(t, masters), o)
}

func (d onRedis) Addresses() (addresses []string) {
	for _, master := range d.masters {
		addresses = append(addresses, master.Addr)
	}
	return addresses
}

func (d onRedis) Held(t testing.TB, key string) bool {
	return slices.ContainsFunc(d.observers, func(observer redis.UniversalClient) bool { return exists(t, observer, key) })
}

func (d onRedis) Steal(t testing.TB, key string) {
	for _, observer := range d.observers {
		del(t, observer, key)
	}
}

func (d onRedis) Left(t testing.TB, key string) (names []string) {
	for _, observer := range d.observers {
		scan := observer.Scan(t.Context(), 0, "*"+key+"*", 1000).Iterator()
		for scan.Next(t.Context()) {
			names = append(names, scan.Val())
		}
		must.Succeed(t, scan.Err())
	}
	return names
}

// onMySQL is MySQLGetLock on one server.
type onMySQL struct {
	processes
	server   *servers.MySQL
	observer *sqlx.DB
}

func sharedMySQL(t testing.TB) lockstest.Deployment {
	server := shared.MySQL(t)
	return onMySQL{server: server, observer: connectMySQL(t, server.DSN(""))}
}

func ownMySQL(t testing.TB) lockstest.Private {
	server := serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true})
	return onMySQL{processes{server}, server, connectMySQL(t, server.DSN(""))}
}

func (d onMySQL) New(t testing.TB, addresses []string, o locks.Options) locks.Locker {
	config, err := mysql.ParseDSN(d.server.DSN(""))
	must.Succeed(t, err)
	config.Addr = addresses[0]
	return locks.NewMySQLGetLock(connectMySQL(t, config.FormatDSN()), o)
}

func (d onMySQL) Addresses() []string { return []string{d.server.Addr} }

func (d onMySQL) Held(t testing.TB, key string) bool {
	return holderOf(t, d.observer, locks.UserLockName(key)).Valid
}

func (d onMySQL) Steal(t testing.TB, key string) {
	holder := holderOf(t, d.observer, locks.UserLockName(key))
	_, err := d.observer.ExecContext(t.Context(), "KILL ?", holder.Int64)
	must.Succeed(t, err)
}

func (d onMySQL) Left(t testing.TB, key string) []string {
	if d.Held(t, key) {
		return []string{key}
	}
	return nil
}

// onMySQLRow is MySQLRow on one server.
type onMySQLRow struct {
	processes
	config   *mysql.Config
	observer *sqlx.DB
}

// newOnMySQLRow makes the table as the migration does.
func newOnMySQLRow(t testing.TB, p processes, dsn string) onMySQLRow {
	schema, err := os.ReadFile("../../migrations/00001_schema.sql")
	must.Succeed(t, err)
	const create = "CREATE TABLE IF NOT EXISTS lock_row"
	_, table, _ := strings.Cut(string(schema), create)
	table, _, _ = strings.Cut(table, ";")
	observer := connectMySQL(t, dsn)
	_, err = observer.ExecContext(t.Context(), create+table)
	must.Succeed(t, err)
	config, err := mysql.ParseDSN(dsn)
	must.Succeed(t, err)
	return onMySQLRow{p, config, observer}
}

func sharedMySQLRow(t testing.TB) lockstest.Deployment {
	return newOnMySQLRow(t, nil, shared.Database(t))
}

func ownMySQLRow(t testing.TB) lockstest.Private {
	server, dsn := serverstest.StartDatabase(t, servers.MySQLOptions{Relaxed: true})
	return newOnMySQLRow(t, processes{server}, dsn)
}

func (d onMySQLRow) New(t testing.TB, addresses []string, o locks.Options) locks.Locker {
	config := d.config.Clone()
	config.Addr = addresses[0]
	return locks.NewMySQLRow(connectMySQL(t, config.FormatDSN()), o)
}

func (d onMySQLRow) Addresses() []string { return []string{d.config.Addr} }

func (d onMySQLRow) Held(t testing.TB, key string) bool { return len(d.Left(t, key)) > 0 }

func (d onMySQLRow) Steal(t testing.TB, key string) {
	_, err := d.observer.ExecContext(t.Context(), "DELETE FROM lock_row WHERE name = ?", key)
	must.Succeed(t, err)
}

func (d onMySQLRow) Left(t testing.TB, key string) (names []string) {
	err := d.observer.SelectContext(context.WithoutCancel(t.Context()), &names,
		"SELECT name FROM lock_row WHERE name = ?", key)
	must.Succeed(t, err)
	return names
}

// onEtcd is Etcd on one server.
type onEtcd struct {
	processes
	addr     string
	observer *clientv3.Client
}

func sharedEtcd(t testing.TB) lockstest.Deployment {
	addr := shared.Etcd(t)
	return onEtcd{addr: addr, observer: connectEtcd(t, addr)}
}

func ownEtcd(t testing.TB) lockstest.Private {
	server := serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true})
	return onEtcd{processes{server}, server.Addr, connectEtcd(t, server.Addr)}
}

func (d onEtcd) New(t testing.TB, addresses []string, o locks.Options) locks.Locker {
	return locks.NewEtcd(connectEtcd(t, addresses[0]), o)
}

func (d onEtcd) Addresses() []string { return []string{d.addr} }

func (d onEtcd) Left(t testing.TB, key string) []string {
	keys, _ := etcdQueue(t, d.observer, locks.NodeName(key))
	return keys
}

func (d onEtcd) Held(t testing.TB, key string) bool { return len(d.Left(t, key)) > 0 }

func (d onEtcd) Steal(t testing.TB, key string) {
	_, err := d.observer.Delete(t.Context(), d.Left(t, key)[0])
	must.Succeed(t, err)
}

// onZooKeeper is ZooKeeper on one server.
type onZooKeeper struct {
	processes
	addr     string
	observer *zk.Conn
}

func sharedZooKeeper(t testing.TB) lockstest.Deployment {
	addr := shared.ZooKeeper(t)
	return onZooKeeper{addr: addr, observer: connectZooKeeper(t, addr, time.Minute)}
}

func ownZooKeeper(t testing.TB) lockstest.Private {
	server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{Relaxed: true})
	return onZooKeeper{processes{server}, server.Addr, connectZooKeeper(t, server.Addr, time.Minute)}
}

func (d onZooKeeper) New(t testing.TB, addresses []string, o locks.Options) locks.Locker {
	o.Lease = min(o.Lease, time.Minute) // the server's longest session
	// The client waits a second before it tries an address again. Repeat it to avoid that, as if there were more
	// servers.
	quiet := zk.WithLogger(log.New(io.Discard, "", 0))
	conn, _, err := zk.Connect(slices.Repeat(addresses, 3), o.Lease, promptZooKeeper, quiet)
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return locks.NewZooKeeper(conn, "/locks", nil, o)
}

func (d onZooKeeper) Addresses() []string { return []string{d.addr} }

// Left lists the nodes of the holder and the waiters. The node of key itself stays.
func (d onZooKeeper) Left(t testing.TB, key string) []string {
	return zkQueue(t, d.observer, locks.NodeName(key))
}

func (d onZooKeeper) Held(t testing.TB, key string) bool { return len(d.Left(t, key)) > 0 }

func (d onZooKeeper) Steal(t testing.TB, key string) {
	must.Succeed(t, d.observer.Delete(d.Left(t, key)[0], -1))
}
