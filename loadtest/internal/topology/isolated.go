package topology

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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
	i.Replica, err = t.StartReplica(ctx, name, at, o)
	return i, err
}

// start starts a proxy in front of each server, and returns the addresses of the proxies.
func (p *Proxies) start(at Addresses) (Addresses, error) {
	config, err := mysql.ParseDSN(at.MySQLDSN)
	if err != nil {
		return at, err
	}
	mysqlAddress := []string{config.Addr}
	servers := []*[]string{&mysqlAddress, &at.Redis, &at.Redlock, &at.Etcd, &at.ZooKeeper}
	for i, proxy := range p.all() {
		if *proxy, err = tcpproxy.Start(*servers[i]...); err != nil {
			return at, err
		}
		*servers[i] = (*proxy).Addresses()
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
	for _, proxy := range p.all() {
		if *proxy != nil {
			(*proxy).Close()
		}
	}
}

func (p *Proxies) all() []**tcpproxy.Proxy {
	return []**tcpproxy.Proxy{&p.MySQL, &p.Redis, &p.Redlock, &p.Etcd, &p.ZooKeeper}
}

// Close kills the replica and closes its proxies.
func (i *Isolated) Close() {
	if i.Replica != nil && i.Process() != nil {
		i.Process().Kill()
	}
	i.close()
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

// StartCommand starts a program of the user as a replica, in a directory or, if that is empty, in the current one. Its
// variables say where it is to listen and where its database and its Redis are. Kill it before they stop.
func (t *Topology) StartCommand(
	ctx context.Context, name string, command []string, dir string, at Addresses,
) (*Replica, error) {
	program := command[0]
	if strings.Contains(program, "/") && !filepath.IsAbs(program) {
		program = dir + "/" + program // filepath.Join would remove the ./ without which PATH is searched
	}
	program, err := exec.LookPath(program)
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, fmt.Errorf("start your service: %w", err)
	}
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	env, err := at.Environment()
	if err != nil {
		return nil, err
	}
	replica := &Replica{
		Name: name, URL: "http://" + listen,
		command: servers.Command{
			Name: strings.Join(command, " "), Path: program, Args: command[1:], Argv0: command[0],
			Dir: dir, Env: append(append(os.Environ(), "LISTEN="+listen), env...),
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
	if err := replica.Restart(ctx); err != nil {
		return replica, fmt.Errorf("start your service (it must listen at LISTEN=%s): %w", listen, err)
	}
	return replica, nil
}

// Environment returns the variables for a program of the user, in the forms that clients in most languages understand.
func (at Addresses) Environment() ([]string, error) {
	ofDatabase := at.mysqlEnvironment
	if at.PostgresURL != "" {
		ofDatabase = at.postgresEnvironment
	}
	database, err := ofDatabase()
	host, port, _ := strings.Cut(at.Redis[0], ":")
	return append(database, "REDIS_ADDR="+at.Redis[0], "REDIS_URL=redis://"+at.Redis[0], "REDIS_HOST="+host,
		"REDIS_PORT="+port), err
}

func (at Addresses) mysqlEnvironment() ([]string, error) {
	config, err := mysql.ParseDSN(at.MySQLDSN)
	if err != nil {
		return nil, err
	}
	dsn := mysql.NewConfig()
	dsn.User, dsn.Passwd, dsn.DBName = config.User, config.Passwd, config.DBName
	dsn.Net, dsn.Addr = config.Net, config.Addr
	address := url.URL{
		Scheme: "mysql", User: url.UserPassword(config.User, config.Passwd), Host: config.Addr, Path: config.DBName,
	}
	host, port, _ := strings.Cut(config.Addr, ":")
	return []string{
		"MYSQL_DSN=" + dsn.FormatDSN(), "MYSQL_URL=" + address.String(), "MYSQL_HOST=" + host, "MYSQL_PORT=" + port,
		"MYSQL_USER=" + config.User, "MYSQL_PASSWORD=" + config.Passwd, "MYSQL_DATABASE=" + config.DBName,
	}, nil
}

// postgresEnvironment has the variables that libpq reads, too.
func (at Addresses) postgresEnvironment() ([]string, error) {
	address, err := url.Parse(at.PostgresURL)
	if err != nil {
		return nil, err
	}
	password, _ := address.User.Password()
	env := []string{"POSTGRES_URL=" + at.PostgresURL}
	for _, v := range [][3]string{
		{"POSTGRES_HOST", "PGHOST", address.Hostname()}, {"POSTGRES_PORT", "PGPORT", address.Port()},
		{"POSTGRES_USER", "PGUSER", address.User.Username()}, {"POSTGRES_PASSWORD", "PGPASSWORD", password},
		{"POSTGRES_DATABASE", "PGDATABASE", strings.TrimPrefix(address.Path, "/")},
	} {
		env = append(env, v[0]+"="+v[2], v[1]+"="+v[2])
	}
	return env, nil
}
