package oracle

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Counters are the servers' own counts since they started, without what the oracle did itself. Only the difference
// between two readings means anything.
type Counters struct {
	MySQLStatements int64 // from clients: each is a round trip
	RedisCommands   int64 // of all Redis servers, including those inside scripts
}

// Counters asks each server how much it has done.
func (o *Oracle) Counters(ctx context.Context) (Counters, error) {
	var c Counters
	if o == nil {
		return c, nil
	}
	if o.db != nil {
		err := o.query(ctx, func(rows *sql.Rows) error {
			var name string
			return rows.Scan(&name, &c.MySQLStatements)
		}, "SHOW GLOBAL STATUS LIKE 'Questions'")
		if err != nil {
			return Counters{}, fmt.Errorf("count MySQL statements: %w", err)
		}
	}
	for _, server := range o.servers {
		processed, err := o.processed(ctx, server)
		if err != nil {
			return Counters{}, fmt.Errorf("count the commands of Redis at %s: %w", server.Options().Addr, err)
		}
		c.RedisCommands += processed
	}
	c.MySQLStatements -= o.ownStatements.Load()
	c.RedisCommands -= o.ownCommands.Load()
	return c, nil
}

// processed returns how many commands a Redis server has processed.
func (o *Oracle) processed(ctx context.Context, server *redis.Client) (int64, error) {
	o.ownCommands.Add(1)
	info, err := server.Info(ctx, "stats").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(infoField(info, "total_commands_processed"), 10, 64)
}

// Since returns what was done between an earlier reading and this one.
func (c Counters) Since(before Counters) Counters {
	return Counters{
		MySQLStatements: c.MySQLStatements - before.MySQLStatements,
		RedisCommands:   c.RedisCommands - before.RedisCommands,
	}
}

// infoField returns a value of Redis's INFO, or the empty string.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

// Server describes a server behind the service, with the settings that decide how durable an acknowledged write is.
type Server struct {
	Name     string
	Version  string
	Settings map[string]string
}

// Servers asks the servers for their versions and settings, without which two reports cannot be compared.
func (o *Oracle) Servers(ctx context.Context) ([]Server, error) {
	if o == nil {
		return nil, nil
	}
	var found []Server
	if o.db != nil {
		server, err := o.mysqlServer(ctx)
		if err != nil {
			return nil, fmt.Errorf("read MySQL's settings: %w", err)
		}
		found = append(found, server)
	}
	if o.redis != nil {
		server, err := o.redisServer(ctx)
		if err != nil {
			return nil, fmt.Errorf("read Redis's version: %w", err)
		}
		found = append(found, server)
	}
	return found, nil
}

func (o *Oracle) mysqlServer(ctx context.Context) (Server, error) {
	settings := map[string]string{}
	// MariaDB before 11.1 calls the isolation level tx_isolation.
	err := o.query(ctx, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		settings[strings.Replace(name, "tx_isolation", "transaction_isolation", 1)] = value
		return err
	}, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', "+
		"'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'tx_isolation', 'transaction_isolation')")
	version := settings["version"]
	delete(settings, "version")
	return Server{Name: MySQL, Version: version, Settings: settings}, err
}

func (o *Oracle) redisServer(ctx context.Context) (Server, error) {
	server := Server{Name: Redis, Settings: map[string]string{}}
	o.ownCommands.Add(1)
	info, err := o.servers[0].Info(ctx).Result()
	if err != nil {
		return server, err
	}
	server.Version = infoField(info, "redis_version")
	if enabled := infoField(info, "aof_enabled"); enabled != "" {
		server.Settings["appendonly"] = map[string]string{"0": "no", "1": "yes"}[enabled]
	}
	if _, ok := o.redis.(*redis.ClusterClient); ok {
		o.ownCommands.Add(1)
		cluster, err := o.servers[0].ClusterInfo(ctx).Result()
		if err != nil {
			return server, err
		}
		server.Version += fmt.Sprintf(" Cluster of %s masters", infoField(cluster, "cluster_size"))
	}
	// The account may lack CONFIG GET, which shows passwords, too. Redis does not count commands that it forbids.
	if settings, err := o.servers[0].ConfigGet(ctx, "appendfsync").Result(); err == nil {
		o.ownCommands.Add(1)
		server.Settings["appendfsync"] = settings["appendfsync"]
	}
	return server, nil
}
