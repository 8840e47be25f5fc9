package topology

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/go-sql-driver/mysql"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
)

// Proxies are between a replica and its servers.
type Proxies struct {
	MySQL     *tcpproxy.Proxy
	Redis     *tcpproxy.Proxy
	Redlock   *tcpproxy.Proxy
	Etcd      *tcpproxy.Proxy
	ZooKeeper *tcpproxy.Proxy
}

// Isolated is a replica without nginx, which reaches its servers through proxies only, so that a fault can strike it
// alone.
type Isolated struct {
	*Replica
	Proxies
}

// StartIsolated starts one more replica on the given servers. Close it before they stop.
func (t *Topology) StartIsolated(ctx context.Context, name string, at Addresses, o Options) (i *Isolated, err error) {
	i = &Isolated{}
	defer func() {
		if err != nil {
			i.Close()
			i = nil
		}
	}()
	if at, err = i.Proxies.start(at); err != nil {
		return i, err
	}
	admin, err := freeAddr()
	if err != nil {
		return i, err
	}
	if i.Replica, err = t.describeReplica(name, admin, at, o); err != nil {
		return i, err
	}
	return i, i.Restart(ctx)
}

// start starts a proxy in front of each server, and returns the addresses of the proxies.
func (p *Proxies) start(at Addresses) (Addresses, error) {
	config, err := mysql.ParseDSN(at.MySQLDSN)
	if err != nil {
		return at, err
	}
	mysqlAddress := []string{config.Addr}
	for _, to := range []struct {
		proxy   **tcpproxy.Proxy
		servers *[]string
	}{
		{&p.MySQL, &mysqlAddress},
		{&p.Redis, &at.Redis},
		{&p.Redlock, &at.Redlock},
		{&p.Etcd, &at.Etcd},
		{&p.ZooKeeper, &at.ZooKeeper},
	} {
		if *to.proxy, err = tcpproxy.Start(*to.servers...); err != nil {
			return at, err
		}
		*to.servers = (*to.proxy).Addresses()
	}
	config.Addr = mysqlAddress[0]
	// Nobody could find anything in messages that are compressed.
	if err := config.Apply(mysql.EnableCompression(false)); err != nil {
		return at, err
	}
	at.MySQLDSN = config.FormatDSN()
	return at, nil
}

// close closes the proxies that were started.
func (p *Proxies) close() {
	for _, proxy := range []*tcpproxy.Proxy{p.MySQL, p.Redis, p.Redlock, p.Etcd, p.ZooKeeper} {
		if proxy != nil {
			proxy.Close()
		}
	}
}

// Close kills the replica and closes its proxies.
func (i *Isolated) Close() {
	if i.Replica != nil && i.Process() != nil {
		i.Process().Kill()
	}
	i.Proxies.close()
}

// Address is the host:port of the public listener.
func (i *Isolated) Address() string { return strings.TrimPrefix(i.URL, "http://") }

// StartReplica starts one more replica on the given servers, without nginx and without proxies. Kill it before they
// stop.
func (t *Topology) StartReplica(ctx context.Context, name string, at Addresses, o Options) (*Replica, error) {
	admin, err := freeAddr()
	if err != nil {
		return nil, err
	}
	replica, err := t.describeReplica(name, admin, at, o)
	if err != nil {
		return nil, err
	}
	return replica, replica.Restart(ctx)
}

// StartCommand starts a program of the user as a replica: it is to listen at the host:port in its variable LISTEN. The
// variables in env are added to those of this process. Kill it before the servers stop.
func (t *Topology) StartCommand(
	ctx context.Context, name string, command []string, env map[string]string,
) (*Replica, error) {
	program, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("start the command after --: %w", err)
	}
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	variables := append(os.Environ(), "LISTEN="+listen)
	for key, value := range env {
		variables = append(variables, key+"="+value)
	}
	replica := &Replica{
		Name: name, URL: "http://" + listen,
		command: servers.Command{
			Name: strings.Join(command, " "), Path: program, Args: command[1:], Argv0: command[0], Env: variables,
			Log: t.dir.File(name + ".log"),
		},
		ready: func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", listen)
			if err != nil {
				return err
			}
			return conn.Close()
		},
	}
	return replica, replica.Restart(ctx)
}
