package main

import (
	"database/sql"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
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
	redis      []string
	redisConns int
	redlock    []string
	password   string // of every Redis server
}

func (o *storeOptions) dsnFlag(f *pflag.FlagSet) {
	f.StringVar(&o.mysqlDSN, "mysql-dsn", "", "`DSN` of MySQL, MariaDB or TiDB: user:password@tcp(host:port)/database; keep passwords in the environment")
}

func (o *storeOptions) redisFlag(f *pflag.FlagSet) {
	f.StringSliceVar(&o.redis, "redis", nil, "Redis, as `host:port`, or a comma-separated list of nodes of one cluster")
}

// parseDSN checks a DSN and sets what the strategies rely on, whatever the DSN says.
func parseDSN(dsn string) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		// The error of the driver never holds the DSN, which may have a password.
		return nil, usagef("--mysql-dsn: %w; it must be like user:password@tcp(127.0.0.1:3306)/stock", err)
	}
	if config.DBName == "" {
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

// limitWaits makes the server itself end a wait for a row's lock, with an answer (nothing was written), before the
// request's time is over, which would leave the outcome open; and it bounds the wait for the reply to a COMMIT, which no
// context does. What the DSN says of either stands.
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
		return nil, usagef("--mysql-dsn: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns) // as many: else a burst closes and opens connections all the time
	return sqlx.NewDb(db, "mysql"), nil
}

// driverLog passes on what the driver logs. It also returns it as an error, so that it is worth little here.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("mysql driver", slog.Any("message", v)) }

// openRedis makes a client, of a cluster where there are several addresses. It connects when it is first used.
func (o *storeOptions) openRedis(addresses ...string) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 addresses,
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

func checkAddresses(flag string, addresses []string) error {
	for i, address := range addresses {
		if err := checkAddress(flag, address); err != nil {
			return err
		}
		if slices.Contains(addresses[:i], address) {
			return usagef("--%s names %s twice", flag, address)
		}
	}
	return nil
}

func closeAll(clients []redis.UniversalClient) error {
	var errs []error
	for _, client := range clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// redisPool exports the statistics of a Redis client's pool, as collectors.NewDBStatsCollector does for MySQL.
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
