package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/access"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/httpapi"
	"stock/internal/stock/retention"
	"stock/internal/stock/share"
)

// serveOptions are the settings of the service. Those that it passes on are flags of httpapi.Config, and of the Deps in
// it.
type serveOptions struct {
	httpapi.Config
	storeOptions
	listen, adminListen  string
	drainDelay           time.Duration
	drainLimit           time.Duration
	reservationRetention time.Duration
}

func newServe(getenv func(string) string) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve deductions over HTTP until SIGTERM or SIGINT",
		Long: `Serve deductions over HTTP until SIGTERM or SIGINT. Then /readyz answers 503, after --drain-delay no more
connections are accepted, open connections are closed with their next reply, requests in progress are finished, and the
exit status is 0. A second signal kills the process at once.

The service also starts while its servers are down. A strategy whose server is not configured is listed as unavailable
and answers 503. /readyz answers 200 if every configured server answers and takes writes.

--redis is one server, several of a Redis Cluster or, with --redis-master, the Sentinels that watch the master of that
name. A Cluster and Sentinels may lose the last writes, stock and locks alike, when a Redis replica takes over, because
Redis replicates after it has replied. In the DSN, interpolateParams, clientFoundRows, multiStatements and parseTime are
always on. innodb_lock_wait_timeout is --lock-wait, unless the DSN sets a shorter one; readTimeout is --request-timeout
less 3 s, and at least --lock-wait plus 2 s, and wait_timeout is --mysql-idle-timeout, unless the DSN sets them. The
account should not be exempt from read_only: no SUPER, CONNECTION_ADMIN or READ ONLY ADMIN.

Passwords are read from STOCK_MYSQL_PASSWORD (unless the DSN has one), STOCK_REDIS_PASSWORD (of every Redis server),
STOCK_REDIS_SENTINEL_PASSWORD, STOCK_ETCD_PASSWORD and STOCK_ZOOKEEPER_PASSWORD; or from the files that these variables
with _FILE at the end name. A server with TLS is checked: its certificate must be signed by a trusted CA and name the
host. The service never falls back to a connection without TLS, except with tls=preferred or allowFallbackToPlaintext in
the DSN.

An item may take one more of the --mysql-conns only while it uses fewer than are free: a locked row keeps at most half
of them, and all requests with hold_ms together keep at most half.

A strategy with a fence refuses tokens below the last one. If a lock service loses its data and counts from 1 again, all
its requests are refused as busy. Setting the stock on the admin listener (PUT /admin/stock/{goods_id}) forgets the
tokens.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.accounts.read(getenv); err != nil {
				return err
			}
			return o.serve(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	setFlags(cmd, getenv, o.flagGroups()...)
	return cmd
}

func (o *serveOptions) flagGroups() []flagGroup {
	hostname, _ := os.Hostname() // without one, the name is "stock"
	return []flagGroup{
		group("Addresses", func(f *pflag.FlagSet) {
			f.StringVar(&o.listen, "listen", "127.0.0.1:8080",
				"`host:port` of the public listener; port 0 is any free port, which is logged")
			f.StringVar(&o.adminListen, "admin-listen", "127.0.0.1:9090",
				"`host:port` of the admin listener (metrics, profiles, setting the stock), never to be exposed; none if empty")
			f.StringSliceVar(&o.AdminNames, "admin-names", nil,
				"`names` by which clients such as Prometheus may address the admin listener, in addition to IP addresses, "+
					"localhost and names without a dot, comma-separated; a request with another Host is refused")
			f.StringVar(&o.Replica, "replica", cmp.Or(hostname, "stock"), "`name` of this replica, in the header X-Replica")
		}),
		group("Servers", o.serverFlags),
		group("Strategies", func(f *pflag.FlagSet) {
			f.StringVar(&o.DefaultStrategy, "default-strategy", "update",
				"`name` of the strategy for requests that name none; GET /strategies lists them")
			f.DurationVar(&o.Deps.LockWait, "lock-wait", 10*time.Second,
				"longest wait for a lock, a retry or a connection before a request is refused as busy")
			f.DurationVar(&o.Deps.Lease, "lease", 30*time.Second,
				"time after which the lock of a dead holder expires; also the session timeout of ZooKeeper, "+
					"which by default allows 4 s to 40 s")
			f.DurationVar(&o.Deps.Poll, "poll", 50*time.Millisecond, "time between two attempts to take a lock that polls")
			f.DurationVar(&o.Deps.KeyTTL, "key-ttl", 24*time.Hour,
				"how long Redis keeps the answer to a sale with an Idempotency-Key, and how long MySQL and Redis keep the "+
					"cancellation of a key that sold nothing; then the key is new. MySQL keeps sales until stock prune")
			f.DurationVar(&o.Deps.RefusalTTL, "sold-out-retention", time.Minute,
				"how long MySQL and Redis keep a refusal, such as \"sold out\", of a request with a key; it must exceed the time "+
					"for which clients and load balancers send again")
			f.DurationVar(&o.reservationRetention, "reservation-retention", 10*time.Minute,
				"time for which a reservation that sold nothing is kept after it expires, or would have expired; "+
					"after that, it is unknown and its key is new")
			f.BoolVar(&o.RequireKey, "require-key", false,
				"refuse a deduction or an order without an Idempotency-Key if its strategy keeps keys")
		}),
		group("Limits", func(f *pflag.FlagSet) {
			f.DurationVar(&o.RequestTimeout, "request-timeout", 15*time.Second, "longest time for one request")
			f.DurationVar(&o.MaxTTL, "max-ttl", 24*time.Hour, "longest time for which a reservation may hold units (ttl_ms)")
			f.DurationVar(&o.drainDelay, "drain-delay", 0,
				"time at shutdown in which /readyz answers 503 and connections are still accepted, "+
					"for load balancers that watch it; nginx needs none")
			f.DurationVar(&o.drainLimit, "drain-timeout", 20*time.Second,
				"longest time at shutdown for requests in progress, which are then canceled")
		}),
		group("Lab, never in production", func(f *pflag.FlagSet) {
			f.DurationVar(&o.MaxHold, "max-hold", 0,
				"largest hold_ms to accept: lets clients hold locks and connections; 0 accepts none")
		}),
	}
}

func (o *serveOptions) serverFlags(f *pflag.FlagSet) {
	o.dsnFlag(f)
	f.IntVar(&o.mysqlConns, "mysql-conns", 32, "most `connections` to MySQL, in addition to those of --mysql-lock-conns")
	f.IntVar(&o.mysqlLockConns, "mysql-lock-conns", 32,
		"most `connections` to MySQL for named locks: one per item that is locked or waited for")
	f.DurationVar(&o.mysqlIdle, "mysql-idle-timeout", 0,
		"time after which MySQL ends a silent session and frees what it has locked, as when the host has vanished; "+
			"0 is --request-timeout plus 5 s")
	f.BoolVar(&o.tidb, "tidb", false,
		"the server of --mysql-dsn is TiDB, which cannot run serializable and units")
	o.redisFlag(f)
	f.BoolVar(&o.redisReplica, "redis-replica", false,
		"each master of --redis has a Redis replica, which lock-redis-wait needs")
	f.StringSliceVar(&o.redlock, "redlock", nil,
		"independent Redis masters for Redlock and MultiLock, a comma-separated list of `host:port`: "+
			"an odd number, at least three")
	f.StringSliceVar(&o.etcd, "etcd", nil, "members of an etcd cluster, a comma-separated list of `host:port`")
	o.accounts.etcd.flags(f, "etcd", access.Usage,
		"`user` of etcd; if empty, etcd knows the user by the certificate, or has none")
	f.StringSliceVar(&o.zookeeper, "zookeeper", nil,
		"members of a ZooKeeper ensemble, a comma-separated list of `host:port`")
	o.accounts.zookeeper.flags(f, "zookeeper", access.Usage,
		"`user` of ZooKeeper (digest), to whom the nodes of the locks then belong; open to everybody if empty")
}

// minLease is the shortest --lease. A shorter one could expire during an ordinary pause of a busy machine.
const minLease = 100 * time.Millisecond

// minRequestTimeout is the shortest --request-timeout: a request with less than two seconds left is refused as busy.
const minRequestTimeout = 3 * time.Second

// maxSession is the longest ZooKeeper session by default, 20 ticks. ZooKeeper shortens a longer one without the client
// reporting it, so that a lock would rely on a lease that has expired.
const maxSession = 40 * time.Second

// limits are those of the flags by themselves. Redis and the strategies count in milliseconds.
func (o *serveOptions) limits() []limit {
	lease := limit{flag: "lease", value: o.Deps.Lease, least: minLease, because: ", or it expires during ordinary work"}
	if len(o.zookeeper) > 0 {
		lease.most = maxSession
		lease.because = ": shorter ones expire during ordinary work, and ZooKeeper shortens longer ones"
	}
	return []limit{
		{flag: "lock-wait", value: o.Deps.LockWait, least: time.Millisecond},
		lease,
		{flag: "poll", value: o.Deps.Poll, least: time.Millisecond},
		{flag: "key-ttl", value: o.Deps.KeyTTL, least: time.Millisecond},
		{flag: "sold-out-retention", value: o.Deps.RefusalTTL, least: time.Millisecond},
		{flag: "reservation-retention", value: o.reservationRetention, least: time.Millisecond},
		{
			flag: "request-timeout", value: o.RequestTimeout, least: minRequestTimeout,
			because: ", because MySQL waits for rows in whole seconds and may answer a second late",
		},
		{flag: "drain-delay", value: o.drainDelay},
		{flag: "drain-timeout", value: o.drainLimit, least: time.Millisecond},
		{flag: "max-ttl", value: o.MaxTTL, least: stock.MinTTL, most: stock.MaxTTL},
		{flag: "max-hold", value: o.MaxHold, most: stock.MaxHold},
	}
}

// validate returns the first mistake in the flags.
func (o *serveOptions) validate() error {
	errs := []error{checkAddress("listen", o.listen), o.checkAdminNames(), o.checkStores()}
	if o.adminListen != "" {
		errs = append(errs, checkAddress("admin-listen", o.adminListen))
	}
	for _, l := range o.limits() {
		errs = append(errs, l.check())
	}
	if o.MaxHold%time.Millisecond != 0 {
		errs = append(errs, usagef("--max-hold is %v: it must be in whole milliseconds", o.MaxHold))
	}
	if o.mysqlConns < 1 || o.mysqlLockConns < 1 {
		errs = append(errs, usagef("--mysql-conns is %d and --mysql-lock-conns is %d: they must be at least 1",
			o.mysqlConns, o.mysqlLockConns))
	}
	for _, pair := range []struct {
		short, long           string // flags
		shortValue, longValue time.Duration
		because               string
	}{
		{"poll", "lease", o.Deps.Poll, o.Deps.Lease, ""},
		{
			"lock-wait", "request-timeout", o.Deps.LockWait, o.RequestTimeout,
			", or a request that waited has no time left to work",
		},
		{
			"request-timeout", "mysql-idle-timeout", o.RequestTimeout, cmp.Or(o.mysqlIdle, math.MaxInt64),
			", or MySQL ends the sessions of requests at work",
		},
	} {
		if pair.shortValue >= pair.longValue {
			errs = append(errs, usagef("--%s is %v and --%s is %v: --%[1]s must be shorter%[5]s",
				pair.short, pair.shortValue, pair.long, pair.longValue, pair.because))
		}
	}
	return cmp.Or(errs...)
}

// host returns the host of an address that checkAddress has accepted, or an empty string.
func host(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// checkAdminNames refuses what no Host header can match.
func (o *serveOptions) checkAdminNames() error {
	for _, name := range o.AdminNames {
		if name == "" || strings.ContainsAny(name, ":/*[] ") {
			return usagef("--admin-names has %q: it must be a name like stock.example.com, without a port", name)
		}
	}
	return nil
}

// serve opens the servers, serves until ctx ends, and closes the servers.
func (o *serveOptions) serve(ctx context.Context, stderr io.Writer) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	o.Log = newLogger(stderr).With(slog.String("replica", o.Replica))
	o.Deps.Log, o.Deps.KeyPrefix = o.Log, o.keyPrefix
	o.Registry, o.Version = prometheus.NewRegistry(), buildVersion()
	o.AdminNames = append(o.AdminNames, host(o.adminListen))
	o.Registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	var opened closers
	defer func() { err = errors.Join(err, opened.close()) }()
	if err := o.openServers(&opened); err != nil {
		return err
	}
	if o.Strategies, err = catalogue.Build(o.Deps, catalogue.Strategies); err != nil {
		return err
	}
	opened.add(o.Strategies.Close)
	o.Strategies.Sweep()
	if o.Deps.MySQL != nil {
		opened.add(retention.Expire(o.Deps, retention.Ages{
			Refusals: o.Deps.RefusalTTL, Cancellations: o.Deps.KeyTTL, Reservations: o.reservationRetention,
		}).Close)
	}
	api, err := httpapi.New(o.Config)
	if err != nil {
		return usagef("--default-strategy: %w", err)
	}
	if o.mysqlDSN == "" {
		o.Log.Warn("no --mysql-dsn: the strategies that need MySQL are unavailable and answer 503")
	}
	return o.serveHTTP(ctx, api)
}

// closers closes what was opened, the last first.
type closers []func() error

func (c *closers) add(closer func() error) { *c = append(*c, closer) }

func (c *closers) close() error {
	var errs []error
	for _, closer := range slices.Backward(*c) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// openServers opens the configured servers and exports the statistics of their pools. It also adds to opened when it
// fails.
func (o *serveOptions) openServers(opened *closers) (err error) {
	deps := &o.Deps
	if o.mysqlDSN != "" {
		if err := o.openMySQLPools(opened); err != nil {
			return err
		}
		deps.TiDB = o.tidb
	}
	if len(o.redis) > 0 {
		deps.Redis, deps.RedisReplica = o.openRedis(o.master, o.redis...), o.redisReplica
		opened.add(deps.Redis.Close)
		exportPool(o.Registry, "redis", strings.Join(o.redis, ","), deps.Redis)
	}
	for _, address := range o.redlock {
		master := o.openRedis("", address)
		opened.add(master.Close)
		deps.Redlock = append(deps.Redlock, master)
		exportPool(o.Registry, "redlock", address, master)
	}
	if len(o.etcd) > 0 {
		if deps.Etcd, err = o.openEtcd(); err != nil {
			return err
		}
		opened.add(deps.Etcd.Close)
	}
	if len(o.zookeeper) > 0 {
		var closeZooKeeper func() error
		if deps.ZooKeeper, closeZooKeeper, err = o.openZooKeeper(deps.Lease, o.Log); err != nil {
			return err
		}
		opened.add(closeZooKeeper)
		if as := o.accounts.zookeeper; as.user != "" {
			// Not zk.AuthACL, which would also admit whoever has a certificate with the same name.
			deps.ZooKeeperACL = zk.DigestACL(zk.PermAll, as.user, as.password)
		}
	}
	return nil
}

// poolConfig is that of the connections of all pools.
func (o *serveOptions) poolConfig() (*driver.Config, error) {
	config, err := o.mysqlConfig()
	if err == nil {
		limitWaits(config, o.Deps.LockWait, o.RequestTimeout)
		o.limitIdle(config, o.RequestTimeout)
	}
	return config, err
}

// openMySQLPools opens one pool for statements, one for named locks, so that waiting for a lock does not take the
// connections that its holder needs, and one for readiness.
func (o *serveOptions) openMySQLPools(opened *closers) error {
	deps := &o.Deps
	config, err := o.poolConfig()
	if err != nil {
		return err
	}
	deps.MySQLReply = config.ReadTimeout
	for pool, conns := range map[**sqlx.DB]int{
		&deps.MySQL: o.mysqlConns, &deps.MySQLLocks: o.mysqlLockConns, &deps.MySQLHealth: 1,
	} {
		if *pool, err = openMySQL(config, conns); err != nil {
			return err
		}
		opened.add((*pool).Close)
	}
	deps.MySQLHealth.SetMaxIdleConns(0)
	deps.MySQLShares = share.New(o.mysqlConns)
	o.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stock_mysql_share_waiting",
			Help: "Requests waiting because their item uses its share of the connections to MySQL.",
		}, func() float64 { return float64(deps.MySQLShares.Waiting()) }),
		collectors.NewDBStatsCollector(deps.MySQL.DB, "mysql"),
		collectors.NewDBStatsCollector(deps.MySQLLocks.DB, "mysql_locks"),
	)
	return nil
}
