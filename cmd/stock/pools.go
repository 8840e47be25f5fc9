package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"

	"stock/internal/access"
	"stock/internal/locks"
	"stock/internal/monotonic"
)

// storeOptions are the addresses of the servers. A server with an empty address is not configured.
type storeOptions struct {
	mysqlDSN       string
	mysqlConns     int
	mysqlLockConns int
	mysqlIdle      time.Duration // 0: a little more than a request may take
	redis          []string
	keyPrefix      string
	master         string // name of the master that the Sentinels at redis watch
	redisReplica   bool
	tidb           bool
	redlock        []string
	etcd           []string
	zookeeper      []string
	accounts       accounts
}

func (o *storeOptions) dsnFlag(f *pflag.FlagSet) {
	f.StringVar(&o.mysqlDSN, "mysql-dsn", "",
		"`DSN` of MySQL, MariaDB or TiDB: user:password@tcp(host:port)/database; keep passwords in the environment")
	o.accounts.mysql.flags(f, "mysql", access.Usage, "")
}

func (o *storeOptions) redisFlag(f *pflag.FlagSet) {
	f.StringSliceVar(&o.redis, "redis", nil,
		"`host:port` of Redis; a comma-separated list is a Redis Cluster or, with --redis-master, Sentinels")
	f.StringVar(&o.master, "redis-master", "", "`name` of the master that the Sentinels of --redis watch")
	f.StringVar(&o.keyPrefix, "key-prefix", "",
		"`text` before every key and channel in Redis and every name of a lock, for servers that others use as well")
	o.accounts.redis.flags(f, "redis", access.Usage+"; for every Redis server and Sentinel",
		"`user` of every Redis server, if not the default user")
	o.accounts.sentinel.flags(f, "redis-sentinel", "", "`user` of the Sentinels, if not the default user")
}

// mysqlConfig returns the configuration of a connection to MySQL, with the password and TLS, and with what the
// strategies rely on.
func (o *storeOptions) mysqlConfig() (*mysql.Config, error) {
	config, err := access.MySQL(o.mysqlDSN, o.accounts.mysql.password, o.accounts.mysql.tls)
	if err != nil {
		return nil, usagef("--mysql-dsn %v", err)
	}
	if config.DBName == "" || strings.ContainsAny(config.DBName, ":@") {
		return nil, usagef("--mysql-dsn names no database: it must end like /stock")
	}
	config.InterpolateParams = true // one round trip per statement instead of two
	config.ClientFoundRows = true   // count the rows that matched: 0 means that there is no such row
	config.MultiStatements = true   // a whole transaction in one message
	config.ParseTime = true
	if config.Timeout == 0 {
		config.Timeout = 2 * time.Second // to connect
	}
	return config, nil
}

// limitWaits has the server end a wait for a row lock after --lock-wait, or sooner if the DSN says so. Then it is known
// that nothing was written. Unless the DSN limits the wait for a reply, limitWaits does: to longer than a wait for a
// row, and shorter than most requests still have. So a silent server is noticed without a context for each statement,
// which the driver would have to watch (stock.Deps.MySQLReply).
func limitWaits(config *mysql.Config, lockWait, requestTimeout time.Duration) {
	const rowLockWait = "innodb_lock_wait_timeout" // whole seconds
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	longest := int(math.Ceil(lockWait.Seconds()))
	if seconds, err := strconv.Atoi(config.Params[rowLockWait]); err != nil || seconds > longest {
		config.Params[rowLockWait] = strconv.Itoa(longest)
	}
	if config.ReadTimeout == 0 {
		config.ReadTimeout = max(time.Duration(longest+2)*time.Second, requestTimeout-3*time.Second)
	}
}

// limitIdle makes the server end a session that is silent for longer than any request lasts, unless the DSN sets
// wait_timeout. It then rolls back its transaction and frees its named locks, which a host that has vanished would
// otherwise keep for 8 hours, the default of wait_timeout. All of MySQL, MariaDB and TiDB have that variable, and only
// it ends a session that holds GET_LOCK.
func (o *storeOptions) limitIdle(config *mysql.Config, requestTimeout time.Duration) {
	if _, set := config.Params[waitTimeout]; !set {
		idle := cmp.Or(o.mysqlIdle, requestTimeout+idleMargin)
		config.Params[waitTimeout] = strconv.Itoa(int(math.Ceil(idle.Seconds())))
	}
}

const (
	waitTimeout = "wait_timeout" // whole seconds
	idleMargin  = 5 * time.Second
)

// setPool limits a pool. It closes an idle connection long before the server would. If the server closed it, a request
// that was sent at that very moment would have an unknown outcome.
func setPool(db *sql.DB, config *mysql.Config, conns int) {
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns) // the default of 2 would close and open connections all the time
	if seconds, err := strconv.Atoi(config.Params[waitTimeout]); err == nil {
		db.SetConnMaxIdleTime(time.Duration(seconds) * time.Second / 2)
	}
}

// Limits for limitWaits in commands that a user waits for.
const (
	commandLockWait = 5 * time.Second
	commandTimeout  = 18 * time.Second
)

// openMySQL returns a pool that connects when it is first used, so that the service starts while MySQL is down.
func openMySQL(config *mysql.Config, conns int) (*sqlx.DB, error) {
	config.Logger = &mysql.NopLogger{} // the driver also returns what it logs
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err // does not happen with a config that was parsed from a DSN
	}
	db := sql.OpenDB(connector)
	setPool(db, config, conns)
	return sqlx.NewDb(db, "mysql"), nil
}

// openRedis returns a client of one server, of a Cluster if there are several addresses, or of the master that
// Sentinels watch. It connects when it is first used.
//
// As long as redirections are allowed, a Cluster client sends a command again even if it may have been carried out, and
// ignores MaxRetries. Without redirections, it gets MOVED while hash slots move or a Redis replica takes over: the
// request is refused, and the client reads the new layout for the next one.
func (o *storeOptions) openRedis(master string, addresses ...string) redis.UniversalClient {
	options := &redis.UniversalOptions{
		Addrs:                 addresses,
		MasterName:            master,
		Username:              o.accounts.redis.user,
		Password:              o.accounts.redis.password,
		SentinelUsername:      o.accounts.sentinel.user,
		SentinelPassword:      o.accounts.sentinel.password,
		TLSConfig:             o.accounts.redis.tls,
		PoolSize:              64,
		ContextTimeoutEnabled: true, // otherwise a stopped server would delay a request for the whole read timeout
		MaxRetries:            -1,   // a retry after a lost reply would carry out the command twice
		MaxRedirects:          -1,
		DialerRetries:         1,
		DialTimeout:           time.Second,
		ReadTimeout:           3 * time.Second,
		WriteTimeout:          3 * time.Second,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			// A feature of Redis Enterprise. With go-redis 9.23, Conns of one client (locks.RedisWait) otherwise race.
			Mode: maintnotifications.ModeDisabled,
		},
	}
	if master != "" || len(addresses) == 1 {
		return redis.NewUniversalClient(options)
	}
	cluster := options.Cluster()
	cluster.ClusterStateReloadInterval = time.Second // the only way to notice that a master is gone
	cluster.DisableRoutingPolicies = true            // every command has a key, whose hash slot decides where it goes
	return redis.NewClusterClient(cluster)
}

// zookeeperHandshake is how long a server of ZooKeeper may take to answer a new connection.
const zookeeperHandshake = 5 * time.Second

// zookeeperPatience is how long the service waits for ZooKeeper when it starts, so that it does not call itself unready
// for a moment although all is well. If ZooKeeper is down, the client goes on connecting in the background.
const zookeeperPatience = time.Second

// openZooKeeper returns a client, and a function that closes it. After the client dies, its locks expire with the
// session, which must not be longer than the server's limit: see maxSession.
func (o *storeOptions) openZooKeeper(
	session time.Duration, log *slog.Logger,
) (conn *zk.Conn, closeConn func() error, err error) {
	dial := locks.LimitZooKeeperHandshake(o.dialZooKeeper, zookeeperHandshake)
	conn, _, err = zk.Connect(o.zookeeper, session, zk.WithDialer(dial),
		zk.WithHostProvider(new(hosts)), zk.WithLogInfo(false), zk.WithLogger(&zookeeperLog{log: log}))
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	introduce(ctx, conn, o.accounts.zookeeper)
	return conn, func() error { cancel(); conn.Close(); return nil }, nil
}

func (o *storeOptions) dialZooKeeper(network, address string, timeout time.Duration) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	if o.accounts.zookeeper.tls == nil {
		return dialer.Dial(network, address)
	}
	return tls.DialWithDialer(dialer, network, address, o.accounts.zookeeper.tls)
}

// introduce waits for a session, and then tells ZooKeeper who the client is. Once a server has taken that, the client
// repeats it on each new connection before anything else. If ZooKeeper is down, introduce returns after
// zookeeperPatience and goes on in the background until ctx ends; a lock that somebody asks for before that is refused.
func introduce(ctx context.Context, conn *zk.Conn, as account) {
	done := make(chan struct{})
	introduced := func() bool {
		return conn.State() == zk.StateHasSession &&
			(as.user == "" || conn.AddAuth("digest", []byte(as.user+":"+as.password)) == nil)
	}
	go func() {
		defer close(done)
		for !introduced() && monotonic.Sleep(ctx, 10*time.Millisecond) == nil {
		}
	}()
	select {
	case <-done:
	case <-time.After(zookeeperPatience):
	}
}

// hosts provides ZooKeeper's servers in turn and by name. The client's default resolves every name once at the start:
// it fails if one cannot be resolved, and does not find a server that has moved.
type hosts struct {
	servers []string
	next    int
	tried   int // since the last connection
}

func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

func (h *hosts) Len() int { return len(h.servers) }

// Next also reports whether all servers have failed, so that the client should pause.
func (h *hosts) Next() (server string, pause bool) {
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	pause = h.tried > 0 && h.tried%len(h.servers) == 0
	h.tried++
	return server, pause
}

func (h *hosts) Connected() { h.tried = 0 }

// zookeeperLog gets the client's messages about its connections. The client does not return their errors, so one that
// the user can do something about is logged as a warning, once a minute at most.
type zookeeperLog struct {
	log    *slog.Logger
	mu     sync.Mutex
	warned time.Time
}

func (l *zookeeperLog) Printf(format string, v ...any) {
	message := fmt.Sprintf(format, v...)
	remedy := access.Remedy(errors.New(message))
	l.mu.Lock()
	defer l.mu.Unlock()
	if remedy != "" && time.Since(l.warned) > time.Minute {
		l.warned = time.Now()
		l.log.Warn("cannot connect to ZooKeeper", slog.String("message", message), slog.String("remedy", remedy))
	}
}

// checkStores accepts no address of a server, and flags about servers only with their addresses.
func (o *storeOptions) checkStores() error {
	for _, rule := range []struct {
		flag        string
		given, fits bool
		needs       string
	}{
		{"tidb", o.tidb, o.mysqlDSN != "", "--mysql-dsn, the TiDB server"},
		{"redis-master", o.master != "", len(o.redis) > 0, "--redis, the addresses of the Sentinels"},
		{"redis-replica", o.redisReplica, len(o.redis) > 0, "--redis, the masters that have Redis replicas"},
		{
			"redis-tls", o.accounts.redis.settings != "", len(o.redis)+len(o.redlock) > 0,
			"--redis, the addresses of the servers",
		},
		{"redis-sentinel-user", o.accounts.sentinel.user != "", o.master != "", "--redis-master and Sentinels"},
	} {
		if rule.given && !rule.fits {
			return usagef("--%s needs %s", rule.flag, rule.needs)
		}
	}
	if n := len(o.redlock); n > 0 && (n < 3 || n%2 == 0) { // so that there is a majority
		return usagef("--redlock has %d address(es): it needs an odd number of independent masters, at least 3", n)
	}
	return cmp.Or(o.checkKeyPrefix(), checkServers("redis", o.redis), checkServers("redlock", o.redlock),
		checkServers("etcd", o.etcd), checkServers("zookeeper", o.zookeeper))
}

// maxKeyPrefix leaves room for the rest of a name in 64 characters, the longest name that GET_LOCK takes.
const maxKeyPrefix = 24

var keyPrefix = regexp.MustCompile(fmt.Sprintf(`^[0-9a-z._:-]{0,%d}$`, maxKeyPrefix))

// checkKeyPrefix accepts a prefix that keeps names as they are: GET_LOCK ignores case, braces decide the hash slot in
// Redis Cluster, and a slash would be a parent node in ZooKeeper.
func (o *storeOptions) checkKeyPrefix() error {
	if keyPrefix.MatchString(o.keyPrefix) {
		return nil
	}
	return usagef("--key-prefix is %q: it must have at most %d lower-case letters, digits, or any of . _ : -",
		o.keyPrefix, maxKeyPrefix)
}

// checkServers accepts a list of different addresses.
func checkServers(flag string, addresses []string) error {
	if err := access.CheckServers(addresses); err != nil {
		return usagef("--%s %v", flag, err)
	}
	return nil
}

// exportPool exports the statistics of a Redis client's pool, as collectors.NewDBStatsCollector does for MySQL. The
// same server may have several uses, so the use is a label.
func exportPool(registry prometheus.Registerer, use, address string, client redis.UniversalClient) {
	registry = prometheus.WrapRegistererWith(prometheus.Labels{"use": use, "server": address}, registry)
	for state, count := range map[string]func(*redis.PoolStats) uint32{
		"idle": func(s *redis.PoolStats) uint32 { return s.IdleConns },
		"used": func(s *redis.PoolStats) uint32 { return s.TotalConns - s.IdleConns },
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stock_redis_pool_connections", Help: "Connections of the Redis pool.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(count(client.PoolStats())) }))
	}
	for result, count := range map[string]func(*redis.PoolStats) uint32{
		"hit":     func(s *redis.PoolStats) uint32 { return s.Hits },
		"miss":    func(s *redis.PoolStats) uint32 { return s.Misses },
		"timeout": func(s *redis.PoolStats) uint32 { return s.Timeouts },
	} {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "stock_redis_pool_gets_total",
			Help:        "Requests for a connection of the Redis pool: hit found one, miss opened one, timeout got none.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(count(client.PoolStats())) }))
	}
}
