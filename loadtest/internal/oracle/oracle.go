// Package oracle reads the stock where it is kept, so that the service is not its own witness. It has its own
// knowledge of the service's tables and keys, and never writes.
package oracle

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/access"
)

// The stores.
const (
	MySQL = "mysql"
	Redis = "redis"
	Slots = "slots" // MySQL, too: the stock of an item is the sum of several rows
	Units = "units" // MySQL, too: an item has a row for each unit, except for those that have none yet
)

// Stores lists the stores.
var Stores = []string{MySQL, Redis, Slots, Units}

// Config says where the servers are. Those whose field is empty are not used.
type Config struct {
	MySQLDSN  string   // of the service's database
	Redis     []string // host:port; more than one is a cluster
	Redlock   []string // host:port of independent masters, whose commands are counted
	KeyPrefix string   // of everything that the service keeps in Redis
	Account
}

// Oracle has its own connections to the servers behind the service. A nil Oracle sees and counts nothing.
type Oracle struct {
	db      *sql.DB
	redis   redis.UniversalClient
	prefix  string          // of keys
	servers []*redis.Client // every Redis server, to count its commands

	// Statements and commands of the oracle itself.
	ownStatements, ownCommands atomic.Int64
}

// Open connects to every server of the configuration. It fails if one of them does not answer.
func Open(ctx context.Context, config Config) (*Oracle, error) {
	o := &Oracle{prefix: config.KeyPrefix}
	err := o.openMySQL(ctx, config)
	if err == nil {
		err = o.openRedis(ctx, config)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func (o *Oracle) openMySQL(ctx context.Context, config Config) error {
	if config.MySQLDSN == "" {
		return nil
	}
	parsed, err := config.MySQLConfig(config.MySQLDSN)
	if err != nil {
		return err
	}
	parsed.InterpolateParams = true // one statement for each query, so that its own are easy to subtract
	parsed.Timeout = 5 * time.Second
	parsed.Logger = &mysql.NopLogger{} // the driver also returns what it logs as errors
	connector, err := mysql.NewConnector(parsed)
	if err != nil {
		return fmt.Errorf("MySQL DSN: %w", err)
	}
	o.db = sql.OpenDB(connector)
	o.db.SetMaxOpenConns(1)
	if err := o.db.PingContext(ctx); err != nil {
		return fmt.Errorf("connect to MySQL at %s: %w", parsed.Addr, access.Explain(err))
	}
	return nil
}

func (o *Oracle) openRedis(ctx context.Context, config Config) error {
	if len(config.Redis) > 0 {
		o.redis = connect(config.RedisOptions(config.Redis...))
		if err := o.redis.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("connect to Redis at %s: %w", strings.Join(config.Redis, ","), access.Explain(err))
		}
	}
	for _, address := range slices.Concat(config.Redis, config.Redlock) {
		options := config.RedisOptions(address).Simple()
		options.PoolSize = 1
		server := redis.NewClient(options)
		o.servers = append(o.servers, server)
		if err := server.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("connect to Redis at %s: %w", address, access.Explain(err))
		}
	}
	return nil
}

// connect returns a client of one server, or of a Cluster if there are several addresses.
func connect(options *redis.UniversalOptions) redis.UniversalClient {
	if len(options.Addrs) == 1 {
		return redis.NewUniversalClient(options)
	}
	cluster := options.Cluster()
	cluster.ClusterStateReloadInterval = time.Second // the only way to notice that a master is gone
	return redis.NewClusterClient(cluster)
}

// Close closes the connections. It reports no error: nothing is lost with a connection that is broken already, such as
// to a MySQL that was restarted.
func (o *Oracle) Close() {
	if o.db != nil {
		o.db.Close()
	}
	if o.redis != nil {
		o.redis.Close()
	}
	for _, server := range o.servers {
		server.Close()
	}
}

// Sees reports whether the oracle can read a store.
func (o *Oracle) Sees(store string) bool {
	if o == nil {
		return false
	}
	switch store {
	case MySQL, Slots, Units:
		return o.db != nil
	case Redis:
		return o.redis != nil
	}
	return false
}
