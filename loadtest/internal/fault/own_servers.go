package fault

import (
	"context"
	"errors"
	"fmt"

	"stock/internal/servers"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/topology"
)

// stopper is what a deployment has to stop after its replicas.
type stopper = func(context.Context) error

// errLeftOut is why a scenario is not played here.
var errLeftOut = errors.New("not played")

// Why no scenario is played on servers with TLS, and on a Redis Cluster of the user's.
const (
	NoTLS = "the replicas of the scenarios reach the servers through proxies, whose addresses are not in the " +
		"certificates of servers with TLS, and which cannot read what is encrypted"
	NoCluster = "the replicas of the scenarios reach the servers through proxies, and the clients of a Redis Cluster " +
		"would go past them, to the addresses that its masters tell"
)

// sparesProxies returns an error if a server of the user's cannot be reached through proxies.
func (l *Lab) sparesProxies() error {
	switch {
	case l.Topology.TLS:
		return fmt.Errorf("%w: %s", errLeftOut, NoTLS)
	case len(l.Topology.Addresses().Redis) > 1:
		return fmt.Errorf("%w: %s", errLeftOut, NoCluster)
	}
	return nil
}

// sparesMySQL returns an error if MySQL is the user's: a story that breaks it, or needs other settings, is not played.
func (l *Lab) sparesMySQL() error {
	if l.Topology.Tenants.MySQL == nil {
		return nil
	}
	return fmt.Errorf("%w: it breaks MySQL or changes its schema or settings, and MySQL is yours", errLeftOut)
}

// sparesRedis is the same for Redis.
func (l *Lab) sparesRedis() error {
	if l.Topology.Tenants.Redis == nil {
		return nil
	}
	return fmt.Errorf("%w: it breaks Redis or changes its settings, and Redis is yours", errLeftOut)
}

// onOwnDatabase deploys on a database of the round's own, on the MySQL of the lab, at an isolation level.
func onOwnDatabase(ctx context.Context, l *Lab, level string, args ...string) (*Deployment, error) {
	if err := l.sparesMySQL(); err != nil {
		return nil, err
	}
	server := l.Topology.Servers.MySQL
	name := fmt.Sprintf("round_%d", l.items.Add(1))
	dsn, err := server.CreateDatabase(ctx, name)
	if err != nil {
		return nil, err
	}
	drop := func(ctx context.Context) error { return server.DropDatabase(ctx, name) }
	withLevel, err := atIsolation(dsn, level, l.Topology.Environment.MySQLSettings)
	if err == nil {
		err = l.Topology.Migrate(ctx, dsn)
	}
	if err != nil {
		return nil, errors.Join(err, drop(context.WithoutCancel(ctx)))
	}
	at := l.Topology.Addresses()
	at.MySQLDSN = withLevel
	return l.deployOnOwn(ctx, at, drop, args...)
}

// onOwnMySQL deploys on a MySQL of the round's own.
func onOwnMySQL(ctx context.Context, l *Lab, o servers.MySQLOptions) (*Deployment, error) {
	if err := l.sparesMySQL(); err != nil {
		return nil, err
	}
	server, err := servers.StartMySQL(ctx, o)
	if err != nil {
		return nil, err
	}
	stop := func(ctx context.Context) error {
		server.Kill() // its data are not needed any more
		return server.Stop(ctx)
	}
	dsn, err := server.CreateDatabase(ctx, "stock")
	if err == nil {
		err = l.Topology.Migrate(ctx, dsn)
	}
	if err != nil {
		return nil, errors.Join(err, stop(context.WithoutCancel(ctx)))
	}
	at := l.Topology.Addresses()
	at.MySQLDSN, at.TiDB = dsn, false
	d, err := l.deployOnOwn(ctx, at, stop)
	if err == nil {
		d.MySQL = server
	}
	return d, err
}

// deployOnOwn deploys on a database that no other round uses. Redis is not shared either: a replica writes to its
// database what other replicas have sold there and have not written yet.
func (l *Lab) deployOnOwn(
	ctx context.Context, at topology.Addresses, stop stopper, args ...string,
) (*Deployment, error) {
	redis, err := servers.StartRedis(ctx, servers.RedisOptions{Name: "redis of the round"})
	if err != nil {
		return nil, errors.Join(err, stop(context.WithoutCancel(ctx)))
	}
	at.Redis, at.RedisReplica, at.Account = []string{redis.Addr}, false, oracle.Account{}
	stopBoth := func(ctx context.Context) error { return errors.Join(redis.Stop(ctx), stop(ctx)) }
	return l.deployOn(ctx, at, stopBoth, nil, args...)
}
