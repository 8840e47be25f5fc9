// Package oracle reads the stock where it is kept, so that the service is never its own witness. It knows the service's
// table and keys on its own account and never writes.
package oracle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/history"
)

// Stores that stock is kept in.
const (
	MySQL = "mysql"
	Redis = "redis"
	Slots = "slots" // MySQL, too: the stock of a goods is the sum of several rows
)

// Config says where to look. Whatever is empty is not looked at.
type Config struct {
	MySQLDSN      string   // of the service's database
	Redis         []string // host:port; more than one is a cluster
	Redlock       []string // host:port of independent masters, whose commands are counted
	RedisPassword string
}

// Oracle has its own connections to the servers behind the service.
type Oracle struct {
	db      *sql.DB
	redis   redis.UniversalClient
	servers []*redis.Client // every Redis server, to count its commands

	askedMySQL, askedRedis atomic.Int64 // statements and commands of the oracle's own
}

// Open connects to every server of the configuration and fails where one does not answer.
func Open(ctx context.Context, config Config) (_ *Oracle, err error) {
	o := &Oracle{}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	if config.MySQLDSN != "" {
		parsed, err := mysql.ParseDSN(config.MySQLDSN)
		if err != nil {
			return nil, fmt.Errorf("MySQL DSN: %w (expected user:password@tcp(host:port)/database)", err)
		}
		// One round trip a reading, so that counting statements sees exactly one of its own.
		parsed.InterpolateParams = true
		parsed.Timeout = 5 * time.Second
		connector, err := mysql.NewConnector(parsed)
		if err != nil {
			return nil, fmt.Errorf("MySQL DSN: %w", err)
		}
		o.db = sql.OpenDB(connector)
		o.db.SetMaxOpenConns(1)
		if err := o.db.PingContext(ctx); err != nil {
			return nil, fmt.Errorf("connect to MySQL at %s: %w", parsed.Addr, err)
		}
	}
	if len(config.Redis) > 0 {
		o.redis = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: config.Redis, Password: config.RedisPassword})
		if err := o.redis.Ping(ctx).Err(); err != nil {
			return nil, fmt.Errorf("connect to Redis at %s: %w", strings.Join(config.Redis, ","), err)
		}
	}
	for _, address := range append(append([]string{}, config.Redis...), config.Redlock...) {
		server := redis.NewClient(&redis.Options{Addr: address, Password: config.RedisPassword, PoolSize: 1})
		o.servers = append(o.servers, server)
		if err := server.Ping(ctx).Err(); err != nil {
			return nil, fmt.Errorf("connect to Redis at %s: %w", address, err)
		}
	}
	return o, nil
}

// Close closes the connections.
func (o *Oracle) Close() error {
	var errs []error
	if o.db != nil {
		errs = append(errs, o.db.Close())
	}
	if o.redis != nil {
		errs = append(errs, o.redis.Close())
	}
	for _, server := range o.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

// Sees says whether the oracle can read a store. A nil Oracle sees and counts nothing.
func (o *Oracle) Sees(store string) bool {
	return o != nil && ((store == MySQL || store == Slots) && o.db != nil || store == Redis && o.redis != nil)
}

// Stock reads the units of each goods. A goods that the store does not have is an error.
func (o *Oracle) Stock(ctx context.Context, store string, goods []int64) (map[int64]int64, error) {
	if !o.Sees(store) {
		return nil, fmt.Errorf("the oracle was not told where store %q is", store)
	}
	var units map[int64]int64
	var err error
	switch store {
	case MySQL:
		units, err = o.rows(ctx, "SELECT goods_id, stock FROM good_stock WHERE goods_id IN (%s)", goods)
	case Slots:
		units, err = o.rows(ctx, "SELECT goods_id, SUM(stock) FROM good_slot WHERE goods_id IN (%s) GROUP BY goods_id", goods)
	case Redis:
		units, err = o.redisStock(ctx, goods)
	}
	if err != nil {
		return nil, fmt.Errorf("read the stock in %s: %w", store, err)
	}
	for _, id := range goods {
		if _, ok := units[id]; !ok {
			return nil, fmt.Errorf("read the stock in %s: no goods %d", store, id)
		}
	}
	return units, nil
}

// rows reads the stock of all goods in one statement, so that they are of one moment.
func (o *Oracle) rows(ctx context.Context, query string, goods []int64) (map[int64]int64, error) {
	ids := make([]string, len(goods))
	for i, id := range goods {
		ids[i] = strconv.FormatInt(id, 10)
	}
	o.askedMySQL.Add(1)
	rows, err := o.db.QueryContext(ctx, fmt.Sprintf(query, strings.Join(ids, ",")))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	units := make(map[int64]int64, len(goods))
	for rows.Next() {
		var id, stock int64
		if err := rows.Scan(&id, &stock); err != nil {
			return nil, err
		}
		units[id] = stock
	}
	return units, rows.Err()
}

// Ledger reads what the service has written down of the orders called PREFIX-…
func (o *Oracle) Ledger(ctx context.Context, prefix string) ([]history.Entry, error) {
	o.askedMySQL.Add(1)
	// A range of the primary key, whose bytes sort as they are: '.' comes after '-'.
	rows, err := o.db.QueryContext(ctx, "SELECT order_key, goods_id, count, remaining FROM ledger WHERE order_key >= ? AND order_key < ? "+
		"ORDER BY order_key, line", []byte(prefix+"-"), []byte(prefix+"."))
	if err != nil {
		return nil, fmt.Errorf("read the ledger of the orders %s-…: %w", prefix, err)
	}
	defer rows.Close()
	var entries []history.Entry
	for rows.Next() {
		var e history.Entry
		if err := rows.Scan(&e.Order, &e.GoodsID, &e.Count, &e.Remaining); err != nil {
			return nil, fmt.Errorf("read the ledger of the orders %s-…: %w", prefix, err)
		}
		entries = append(entries, e)
	}
	return entries, rows.Err()
}

// redisStock reads one key at a time: the keys of a cluster may live on different nodes.
func (o *Oracle) redisStock(ctx context.Context, goods []int64) (map[int64]int64, error) {
	units := make(map[int64]int64, len(goods))
	for _, id := range goods {
		o.askedRedis.Add(1)
		stock, err := o.redis.Get(ctx, fmt.Sprintf("stock:{%d}", id)).Int64()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, err
		}
		units[id] = stock
	}
	return units, nil
}

// Counters are the servers' own counts since they started, without what the oracle has asked itself: only the difference
// between two readings says anything.
type Counters struct {
	MySQLStatements int64 // statements from clients: each is a round trip
	RedisCommands   int64 // of all Redis servers, those inside scripts included
}

// Counters asks each server how much it has done.
func (o *Oracle) Counters(ctx context.Context) (Counters, error) {
	var c Counters
	if o == nil {
		return c, nil
	}
	if o.db != nil {
		var name string
		o.askedMySQL.Add(1)
		if err := o.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &c.MySQLStatements); err != nil {
			return Counters{}, fmt.Errorf("count MySQL statements: %w", err)
		}
	}
	for _, server := range o.servers {
		o.askedRedis.Add(1)
		info, err := server.Info(ctx, "stats").Result()
		if err != nil {
			return Counters{}, fmt.Errorf("count the commands of Redis at %s: %w", server.Options().Addr, err)
		}
		processed, err := strconv.ParseInt(field(info, "total_commands_processed"), 10, 64)
		if err != nil {
			return Counters{}, fmt.Errorf("count the commands of Redis at %s: %w", server.Options().Addr, err)
		}
		c.RedisCommands += processed
	}
	c.MySQLStatements -= o.askedMySQL.Load()
	c.RedisCommands -= o.askedRedis.Load()
	return c, nil
}

// Since is what was done between an earlier reading and this one.
func (c Counters) Since(before Counters) Counters {
	return Counters{c.MySQLStatements - before.MySQLStatements, c.RedisCommands - before.RedisCommands}
}

// field is a value in Redis's INFO, empty where it has none.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

// Server is a server behind the service, and those of its settings that decide what an acknowledged write is worth.
type Server struct {
	Name     string
	Version  string
	Settings map[string]string
}

// Servers asks the servers what they are: without it, two reports cannot be compared.
func (o *Oracle) Servers(ctx context.Context) ([]Server, error) {
	var found []Server
	if o == nil {
		return nil, nil
	}
	if o.db != nil {
		settings, err := o.mysqlSettings(ctx)
		if err != nil {
			return nil, fmt.Errorf("read MySQL's settings: %w", err)
		}
		version := settings["version"]
		delete(settings, "version")
		found = append(found, Server{MySQL, version, settings})
	}
	if o.redis != nil {
		server := Server{Name: Redis, Settings: map[string]string{}}
		info, err := o.servers[0].Info(ctx, "server").Result()
		if err != nil {
			return nil, fmt.Errorf("read Redis's version: %w", err)
		}
		server.Version = field(info, "redis_version")
		// CONFIG may be forbidden on a managed server: that is no reason to fail.
		if settings, err := o.servers[0].ConfigGet(ctx, "append*").Result(); err == nil {
			for _, name := range []string{"appendonly", "appendfsync"} {
				server.Settings[name] = settings[name]
			}
		}
		found = append(found, server)
	}
	return found, nil
}

func (o *Oracle) mysqlSettings(ctx context.Context) (map[string]string, error) {
	// MariaDB before 11.1 calls the isolation tx_isolation.
	rows, err := o.db.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', "+
		"'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'tx_isolation', 'transaction_isolation')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		settings[strings.Replace(name, "tx_isolation", "transaction_isolation", 1)] = value
	}
	return settings, rows.Err()
}
