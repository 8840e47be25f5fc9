package main

import (
	"database/sql"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"
)

// storeOptions say where the servers are. An empty one is not configured.
type storeOptions struct {
	mysqlDSN   string
	mysqlConns int
	redis      string
	redisConns int
	redlock    []string
	password   string // of every Redis server
}

func (o *storeOptions) dsnFlag(f *pflag.FlagSet) {
	f.StringVar(&o.mysqlDSN, "mysql-dsn", "", "`DSN` of MySQL, MariaDB or TiDB: user:password@tcp(host:port)/database; keep passwords in the environment")
}

func (o *storeOptions) redisFlag(f *pflag.FlagSet) {
	f.StringVar(&o.redis, "redis", "", "`host:port` of the one Redis; a cluster is not supported")
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

// openRedis makes a client of one server, which connects when it is first used. It is no client of a cluster: that one
// sends a write again by itself, whatever MaxRetries says.
func (o *storeOptions) openRedis(address string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                  address,
		Password:              o.password,
		PoolSize:              o.redisConns,
		ContextTimeoutEnabled: true, // else a stopped server holds a request for the whole read timeout
		MaxRetries:            -1,   // a retry of a command whose reply was lost would do it twice
		DialerRetries:         1,
		DialTimeout:           time.Second,
		ReadTimeout:           3 * time.Second,
		WriteTimeout:          3 * time.Second,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled, // a feature of Redis Enterprise
		},
	})
}

// checkRedis accepts no address at all, and one.
func checkRedis(address string) error {
	if address == "" {
		return nil
	}
	if strings.Contains(address, ",") {
		return usagef("--redis takes exactly one address: a cluster is not supported")
	}
	return checkRedisAddress("redis", address)
}

// checkRedlock accepts no address at all, and as many as Redlock's majority takes.
func checkRedlock(addresses []string) error {
	for i, address := range addresses {
		if err := checkRedisAddress("redlock", address); err != nil {
			return err
		}
		if slices.Contains(addresses[:i], address) {
			return usagef("--redlock names %s twice", address)
		}
	}
	if n := len(addresses); n > 0 && (n < 3 || n%2 == 0) {
		return usagef("--redlock has %d address(es): it takes an odd number of independent masters, at least 3", n)
	}
	return nil
}

func checkRedisAddress(flag, address string) error {
	if strings.Contains(address, "@") {
		return usagef("--%s must be host:port; the password belongs in STOCK_REDIS_PASSWORD", flag)
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
