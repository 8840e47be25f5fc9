package topology

import (
	"context"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"

	"stock/internal/tcpproxy"
)

// Isolated is a replica without nginx, which reaches the stores through proxies only, so that a fault can strike it
// alone.
type Isolated struct {
	*Replica
	MySQL   *tcpproxy.Proxy
	Redis   *tcpproxy.Proxy
	Redlock *tcpproxy.Proxy
}

// StartIsolated starts one more replica. Stop it before the topology.
func (t *Topology) StartIsolated(ctx context.Context, name string, o Options) (i *Isolated, err error) {
	config, err := mysql.ParseDSN(t.MySQLDSN)
	if err != nil {
		return nil, err
	}
	i = &Isolated{}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.Stop(ctx))
		}
	}()
	if i.MySQL, err = tcpproxy.Start(config.Addr); err != nil {
		return nil, err
	}
	if i.Redis, err = tcpproxy.Start(t.Redis...); err != nil {
		return nil, err
	}
	if i.Redlock, err = tcpproxy.Start(t.Redlock...); err != nil {
		return nil, err
	}
	config.Addr = i.MySQL.Addr()
	admin, err := freeAddr()
	if err != nil {
		return nil, err
	}
	proxied := stores{mysqlDSN: config.FormatDSN(), redis: i.Redis.Addresses(), redlock: i.Redlock.Addresses()}
	if i.Replica, err = t.describeReplica(name, admin, proxied, o); err != nil {
		return nil, err
	}
	return i, i.Restart(ctx)
}

// Stop stops the replica and its proxies.
func (i *Isolated) Stop(ctx context.Context) error {
	var err error
	if i.Replica != nil && i.process != nil {
		err = i.Replica.Stop(ctx)
	}
	for _, proxy := range []*tcpproxy.Proxy{i.MySQL, i.Redis, i.Redlock} {
		if proxy != nil {
			proxy.Close()
		}
	}
	return err
}

// Address is the host:port of the public listener.
func (i *Isolated) Address() string { return strings.TrimPrefix(i.URL, "http://") }
