package main

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// storeOptions say where the servers are. An empty one is not configured.
type storeOptions struct {
	mysqlDSN       string
	mysqlConns     int
	mysqlLockConns int
	redis          []string
	master         string // name of the master that the Sentinels at redis watch
	redisConns     int
	redlock        []string
	password       string // of every Redis server
	etcd           []string
	zookeeper      []string
}

func (o *storeOptions) dsnFlag(f *pflag.FlagSet) {
	f.StringVar(&o.mysqlDSN, "mysql-dsn", "", "`DSN` of MySQL, MariaDB or TiDB: user:password@tcp(host:port)/database; keep passwords in the environment")
}

func (o *storeOptions) redisFlag(f *pflag.FlagSet) {
	f.StringSliceVar(&o.redis, "redis", nil, "`host:port` of Redis; a comma-separated list of several is a Redis Cluster or, with --redis-master, Sentinels")
	f.StringVar(&o.master, "redis-master", "", "`name` of the master that the Sentinels given by --redis watch")
}

// parseDSN checks a DSN and sets what the strategies rely on, whatever the DSN says. Its errors are sentences of our own:
// a password in the wrong place is part of an address, a protocol or a database, and the driver's errors quote those.
func parseDSN(dsn string) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil || !reachable(config) {
		return nil, usagef("--mysql-dsn is malformed: it must be like user:password@tcp(127.0.0.1:3306)/stock, or user:password@unix(/path/of/the/socket)/stock")
	}
	if config.DBName == "" || strings.ContainsAny(config.DBName, ":@") {
		return nil, usagef("--mysql-dsn names no database: it must end like /stock")
	}
	config.InterpolateParams = true // one round trip a statement in place of two
	config.ClientFoundRows = true   // rows affected counts the rows that matched: 0 says that there is no such row
	config.ParseTime = true
	if config.Timeout == 0 {
		config.Timeout = 2 * time.Second // to connect
	}
	return config, nil
}

// reachable says whether a DSN names a server in a way that is sure to hold no password.
func reachable(config *mysql.Config) bool {
	return config.Net == "unix" || config.Net == "tcp" && isHostPort(config.Addr)
}

// limitWaits makes the server itself end a wait for a row's lock, with an answer (nothing was written), before the
// request's time is over, which would leave the outcome open; and it bounds the wait for the reply to a COMMIT or to a
// write, which no context does. What the DSN says of either stands.
func limitWaits(config *mysql.Config, lockWait, requestTimeout time.Duration) {
	const rowLockWait = "innodb_lock_wait_timeout" // whole seconds
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	if config.Params[rowLockWait] == "" {
		config.Params[rowLockWait] = strconv.Itoa(int(math.Ceil(lockWait.Seconds())))
	}
	if config.ReadTimeout == 0 {
		config.ReadTimeout = requestTimeout + 5*time.Second
	}
}

// limitCommand limits the waits of a command that somebody waits for.
func limitCommand(config *mysql.Config) { limitWaits(config, 5*time.Second, 10*time.Second) }

// openMySQL makes a pool. It connects when the pool is first used, so that the service starts while MySQL is down.
func openMySQL(config *mysql.Config, conns int, log *slog.Logger) (*sqlx.DB, error) {
	config.Logger = driverLog{log}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err // not for a DSN that parseDSN has passed
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns) // as many: else a burst closes and opens connections all the time
	return sqlx.NewDb(db, "mysql"), nil
}

// driverLog passes on what the driver logs. It also returns it as an error, so that it is worth little here.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("mysql driver", slog.Any("message", v)) }

// openRedis makes a client of one server, of a Cluster where there are several addresses, or of the master that Sentinels
// watch. It connects when it is first used.
//
// A client of a Cluster sends a command again, even one that may have been carried out, for every redirection that it is
// allowed, whatever MaxRetries says. Without any, it is told MOVED while slots move or a replica takes over, which is a
// refusal, reads the new layout, and finds its way on the next request.
func (o *storeOptions) openRedis(master string, addresses ...string) redis.UniversalClient {
	options := &redis.UniversalOptions{
		Addrs:                 addresses,
		MasterName:            master,
		Password:              o.password,
		PoolSize:              o.redisConns,
		ContextTimeoutEnabled: true, // else a stopped server holds a request for the whole read timeout
		MaxRetries:            -1,   // a retry of a command whose reply was lost would do it twice
		MaxRedirects:          -1,
		DialerRetries:         1,
		DialTimeout:           time.Second,
		ReadTimeout:           3 * time.Second,
		WriteTimeout:          3 * time.Second,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled, // a feature of Redis Enterprise
		},
	}
	if master != "" || len(addresses) == 1 {
		return redis.NewUniversalClient(options)
	}
	cluster := options.Cluster()
	cluster.ClusterStateReloadInterval = time.Second // nothing but this tells of a master that is gone
	cluster.DisableRoutingPolicies = true            // every command here names a key, whose slot says where it goes
	return redis.NewClusterClient(cluster)
}

// openEtcd makes a client, which connects in the background.
func (o *storeOptions) openEtcd() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:            o.etcd,
		DialTimeout:          time.Second,
		DialKeepAliveTime:    10 * time.Second, // the least that gRPC allows: it finds out about a server that is silent
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			// Requests fail between two tries: by default for up to two minutes after the servers are back.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		})},
		Logger: zap.NewNop(), // what matters comes back as an error
	})
}

// openZooKeeper makes a client, which connects in the background. Its session, with all that it holds, outlives a client
// that died by session, which must not be longer than the server's limit: see longestSession.
func (o *storeOptions) openZooKeeper(session time.Duration, log *slog.Logger) (*zk.Conn, error) {
	conn, _, err := zk.Connect(o.zookeeper, session, zk.WithHostProvider(new(hosts)), zk.WithLogInfo(false), zk.WithLogger(zookeeperLog{log}))
	return conn, err
}

// hosts takes ZooKeeper's servers in turn and by name. The client's own way is to resolve every name once, at the start:
// it fails while one cannot be resolved, and does not find a server that has moved.
type hosts struct {
	servers []string
	next    int
	tried   int // since the last connection
}

func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

func (h *hosts) Len() int { return len(h.servers) }

// Next says, too, whether all have been tried in vain: the client then pauses.
func (h *hosts) Next() (server string, pause bool) {
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	pause = h.tried > 0 && h.tried%len(h.servers) == 0
	h.tried++
	return server, pause
}

func (h *hosts) Connected() { h.tried = 0 }

// zookeeperLog passes on what the client logs of its connections.
type zookeeperLog struct{ log *slog.Logger }

func (l zookeeperLog) Printf(format string, v ...any) {
	l.log.Debug("zookeeper client", slog.String("message", fmt.Sprintf(format, v...)))
}

// checkRedis accepts no address, one of a server, and several of a Cluster or of Sentinels.
func (o *storeOptions) checkRedis() error {
	if o.master != "" && len(o.redis) == 0 {
		return usagef("--redis-master needs --redis, the addresses of the Sentinels")
	}
	return checkServers("redis", o.redis)
}

// checkRedlock accepts no address at all, and as many as Redlock's majority takes.
func (o *storeOptions) checkRedlock() error {
	if n := len(o.redlock); n > 0 && (n < 3 || n%2 == 0) {
		return usagef("--redlock has %d address(es): it takes an odd number of independent masters, at least 3", n)
	}
	return checkServers("redlock", o.redlock)
}

// checkServers accepts addresses that differ.
func checkServers(flag string, addresses []string) error {
	for i, address := range addresses {
		if err := checkServer(flag, address); err != nil {
			return err
		}
		if slices.Contains(addresses[:i], address) {
			return usagef("--%s names %s twice", flag, address)
		}
	}
	return nil
}

func checkServer(flag, address string) error {
	if strings.Contains(address, "@") {
		return usagef("--%s must be host:port; a password of Redis belongs in STOCK_REDIS_PASSWORD", flag)
	}
	return checkAddress(flag, address)
}

func closeAll(clients []redis.UniversalClient) error {
	var errs []error
	for _, client := range clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// exportPool exports the statistics of a Redis client's pool, as collectors.NewDBStatsCollector does for MySQL. An address
// may serve more than one use, which is why the use is a label too.
func exportPool(registry prometheus.Registerer, use, address string, client redis.UniversalClient) {
	labels := prometheus.Labels{"use": use, "server": address}
	prometheus.WrapRegistererWith(labels, registry).MustRegister(redisPool{client})
}

type redisPool struct{ client redis.UniversalClient }

var (
	redisConnections = prometheus.NewDesc("stock_redis_pool_connections", "Connections of the Redis pool.", []string{"state"}, nil)
	redisGets        = prometheus.NewDesc("stock_redis_pool_gets_total", "Requests for a connection of the Redis pool: hit found one, miss made one, timeout got none.", []string{"result"}, nil)
)

func (p redisPool) Describe(descs chan<- *prometheus.Desc) {
	descs <- redisConnections
	descs <- redisGets
}

func (p redisPool) Collect(samples chan<- prometheus.Metric) {
	stats := p.client.PoolStats()
	gauge := func(state string, n uint32) {
		samples <- prometheus.MustNewConstMetric(redisConnections, prometheus.GaugeValue, float64(n), state)
	}
	counter := func(result string, n uint32) {
		samples <- prometheus.MustNewConstMetric(redisGets, prometheus.CounterValue, float64(n), result)
	}
	gauge("idle", stats.IdleConns)
	gauge("used", stats.TotalConns-stats.IdleConns)
	counter("hit", stats.Hits)
	counter("miss", stats.Misses)
	counter("timeout", stats.Timeouts)
}
