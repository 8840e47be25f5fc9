package topology

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/tenant"
)

// UserServers are servers of the user, on which the topology has a database and a prefix of keys of its own. Empty
// fields stand for private servers.
type UserServers struct {
	MySQLDSN string   // without a database
	Redis    []string // host:port; more than one is a Cluster
	Account  oracle.Account
	// MySQLTLS and RedisTLS are the settings of TLS from which those of Account were read, for the replicas.
	MySQLTLS, RedisTLS string
	// Replicas is how many replicas may run at the same time, those of fault scenarios included; 0: Options.Replicas. They
	// divide the connections of MySQL. If it has too few, Topology.MostReplicas is smaller.
	Replicas int
}

// given reports whether any server is the user's.
func (o UserServers) given() bool { return o.MySQLDSN != "" || len(o.Redis) > 0 }

// TLS reports whether connections to a server may be encrypted.
func (o UserServers) TLS() bool {
	config, err := mysql.ParseDSN(o.MySQLDSN)
	inDSN := err == nil && config.TLSConfig != "" && config.TLSConfig != "false"
	return o.MySQLTLS != "" || o.RedisTLS != "" || inDSN
}

// redlockArgs make private masters of Redlock accept the account of the user's Redis: a replica has only one for all.
func (o UserServers) redlockArgs() []string {
	if o.Account.RedisUser == "" {
		return nil
	}
	return []string{"--user", o.Account.RedisUser, "on", "nopass", "~*", "&*", "+@all"}
}

// noRedlock is why there are no masters of Redlock.
const noRedlock = "with --redis-tls, there is none: the replicas use the settings of TLS for every Redis, and " +
	"the lab's own have no certificate"

// rentMySQL creates the database on the user's server.
func (t *Topology) rentMySQL(ctx context.Context, o Options) (err error) {
	database, err := tenant.CreateDatabase(ctx, o.User.MySQLDSN, o.User.Account, t.tenant)
	if err != nil {
		return err
	}
	t.Tenants.MySQL, t.MySQLDSN, t.rented = database, database.DSN, true
	t.Account.MySQLTLS, t.mysqlTLS = o.User.Account.MySQLTLS, o.User.MySQLTLS
	t.Environment.MySQLSettings = database.Isolation
	least := o.Replicas
	if o.User.Replicas > least {
		least += 2 // for one fault scenario at a time
	}
	t.MostReplicas = max(least, min(database.Free/replicaConnections, o.User.Replicas))
	t.connectionArgs, err = connectionArgs(database.Free, t.MostReplicas)
	return err
}

// rentRedis takes the prefix on the user's server.
func (t *Topology) rentRedis(ctx context.Context, o Options) (err error) {
	t.Tenants.Redis, err = tenant.CreateKeys(ctx, o.User.Redis, o.User.Account, t.KeyPrefix)
	account := o.User.Account
	t.Redis, t.redisTLS, t.Account.RedisTLS = o.User.Redis, o.User.RedisTLS, account.RedisTLS
	t.Account.RedisUser, t.Account.RedisPassword = account.RedisUser, account.RedisPassword
	return err
}

// singleRedis is where replicas that are not to use the lab's Cluster find Redis.
func (t *Topology) singleRedis() []string {
	if t.Tenants.Redis != nil {
		return t.Redis
	}
	return []string{t.Servers.Redis.Addr}
}

// redisReplica reports whether each master of Redis has a Redis replica.
func (t *Topology) redisReplica() bool {
	if t.Tenants.Redis != nil {
		return t.Tenants.Redis.Replicas
	}
	return t.Servers.Replica != nil
}

// removeTenants removes the database and the keys, also after an interrupt. It takes as long as the servers need, and
// does not wait for one that does not answer.
func (t *Topology) removeTenants(ctx context.Context) error {
	var rented []func(context.Context) error
	if t.Tenants.MySQL != nil {
		rented = append(rented, t.Tenants.MySQL.Remove)
	}
	if t.Tenants.Redis != nil {
		rented = append(rented, t.Tenants.Redis.Remove)
	}
	t.Tenants.MySQL, t.Tenants.Redis = nil, nil
	return forAll(rented, func(remove func(context.Context) error) error { return remove(ctx) })
}

// ShownDSN is the DSN of the database for people to read. The password of a private server is in it, because nobody
// else knows it; that of the user's is not.
func (t *Topology) ShownDSN() string {
	config, err := mysql.ParseDSN(t.MySQLDSN)
	if !t.rented || err != nil || config.Passwd == "" {
		return t.MySQLDSN
	}
	config.Passwd = "***"
	return config.FormatDSN()
}

// Notes say what a report on the user's servers should tell.
func (t *Topology) Notes() (notes []string) {
	if t.Tenants.MySQL == nil && t.Tenants.Redis == nil {
		return nil
	}
	var of string
	switch {
	case t.Tenants.Redis == nil:
		of = "MySQL was the user's, Redis the lab's"
	case t.Tenants.MySQL == nil:
		of = "Redis was the user's, MySQL the lab's"
	default:
		of = "MySQL and Redis were the user's"
	}
	notes = append(notes, of+": others may have used them, and statements and commands are counted per server")
	if reason, found := t.Missing["redlock"]; found {
		notes = append(notes, "Redlock: "+reason)
	}
	if len(t.connectionArgs) > 0 {
		notes = append(notes, fmt.Sprintf("each replica had fewer connections to MySQL than usual (%s), so that all fit "+
			"into max_connections", strings.Join(t.connectionArgs, " ")))
	}
	return notes
}

// Warnings say what the claims rely on and the user's servers do not have.
func (t *Topology) Warnings() []string {
	if t.Tenants.Redis == nil {
		return nil
	}
	return t.Tenants.Redis.Warnings
}
