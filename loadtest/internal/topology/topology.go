// Package topology starts and stops the system under test on this host: the servers that the service needs, replicas of
// the service, and nginx in front of them.
//
// Start works in four steps, and runs the parts of each step in parallel:
//
//  1. the servers that the user has not brought: MySQL or MariaDB, Redis or a Redis Cluster, Redis replicas if asked
//     for, the independent masters of Redlock, and etcd and ZooKeeper where they are installed; meanwhile, the
//     service's binary is found or built
//  2. the tables of the database
//  3. the replicas
//  4. nginx
//
// Stop works in the opposite order: nginx, the replicas, the servers.
package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/internal/servers"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/tenant"
)

// Options configures Start. The zero value is the usual lab.
type Options struct {
	Replicas int    // 0: 2
	Redlock  int    // independent Redis masters; 0: 3
	Listen   string // host:port of nginx in front of all replicas; empty: a free port

	// AdminListen is the host:port of the first replica's admin listener. The other replicas use the ports after it.
	// If empty, all use free ports.
	AdminListen string

	// StockBinary is the path of the service. If empty, Start uses the one that was built together with this program,
	// else builds one.
	StockBinary string
	ReplicaArgs []string      // more arguments of "stock serve", such as "--lease=2s"
	MaxHold     time.Duration // the longest time that a request may spend inside the critical section

	User UserServers // used in place of private ones

	TiDB string // path of tidb-server, which is started instead of MySQL; empty for MySQL

	RedisReplica bool // give each master of Redis a Redis replica, which gets every write
	RedisCluster bool // the replicas use a Cluster of three masters
	EtcdMembers  int  // of the etcd cluster: 1 or 3; 0: 1

	Relaxed bool // trade the durability of MySQL, etcd and ZooKeeper for speed: for tests, never for measurements
}

// Topology is a system under test.
type Topology struct {
	URL       string `json:"url"`        // nginx in front of all replicas
	SingleURL string `json:"single_url"` // nginx in front of the first replica only
	// Fewer has the URL of nginx in front of the first replicas only, by their number; that of one replica, too.
	Fewer    map[int]string `json:"-"`
	Replicas []*Replica     `json:"replicas"`
	MySQLDSN string         `json:"mysql_dsn"`
	// PostgresURL is the database of a service of the user's that uses PostgreSQL in place of MySQL.
	PostgresURL string   `json:"-"`
	Redis       []string `json:"redis"`   // host:port; more than one is a cluster
	Redlock     []string `json:"redlock"` // host:port of the independent masters
	Etcd        []string `json:"etcd,omitempty"`
	ZooKeeper   []string `json:"zookeeper,omitempty"`
	Nginx       Nginx    `json:"nginx"`

	// Missing says why "etcd", "zookeeper" or "redlock" was not started, and how to install it if that helps.
	Missing map[string]string `json:"missing,omitempty"`

	KeyPrefix string `json:"key_prefix,omitempty"` // of everything that the service keeps in Redis

	// Account is what the user's servers ask of their clients. MySQLDSN has the password.
	Account oracle.Account `json:"-"`
	TLS     bool           `json:"-"` // see UserServers.TLS

	StockBinary string `json:"stock_binary"` // path of the service; empty if unknown

	Environment Environment `json:"environment"`

	// Servers are the processes that Start started, for fault injection.
	Servers struct {
		MySQL        *servers.MySQL
		Postgres     *servers.Postgres     // nil: MySQL was started
		Redis        *servers.Redis        // if there is a Cluster, only the replicas of StartIsolated use it
		Replica      *servers.Redis        // of Redis; nil without Options.RedisReplica
		RedisCluster *servers.RedisCluster // nil without Options.RedisCluster
		Redlock      []*servers.Redis
		Etcd         *servers.Etcd        // nil if not installed, or if it has three members
		EtcdCluster  *servers.EtcdCluster // nil if not installed, or if it has one member
		ZooKeeper    *servers.ZooKeeper   // nil if not installed
		Nginx        *servers.Nginx
	} `json:"-"`

	// Tenants are what the topology has on servers of the user's.
	Tenants struct {
		MySQL *tenant.Database // nil: MySQL is private
		Redis *tenant.Keys     // nil: Redis is private
	} `json:"-"`

	// MostReplicas is how many replicas may run at the same time, because MySQL is the user's; 0: any number.
	MostReplicas int `json:"-"`

	tidb           bool         // MySQLDSN is that of TiDB
	tenant         string       // name of what the topology has on the user's servers
	rented         bool         // MySQLDSN is that of a server of the user's, also after Stop
	mysqlTLS       string       // see UserServers.MySQLTLS
	redisTLS       string       // see UserServers.RedisTLS
	connectionArgs []string     // see connectionArgs
	dir            *servers.Dir // the replicas' logs, and the service if it was built
}

// Nginx describes the load balancer.
type Nginx struct {
	PID  int    `json:"pid"`
	Conf string `json:"conf"` // path of its configuration
}

// Environment is what measurements depend on. Unknown values are empty.
type Environment struct {
	MySQLSettings map[string]string `json:"mysql_settings"` // durability and isolation
	Etcd          string            `json:"etcd"`           // "etcd 3.4.23"
	ZooKeeper     string            `json:"zookeeper"`      // "ZooKeeper 3.8.0"
	Nginx         string            `json:"nginx"`          // "nginx 1.22.1"
}

// Start starts everything and waits until each process answers. If it fails, or if this process dies, no process and no
// file remains.
func Start(ctx context.Context, o Options) (*Topology, error) {
	if o.Replicas == 0 {
		o.Replicas = 2
	}
	if o.Redlock == 0 {
		o.Redlock = 3
	}
	if o.User.RedisTLS != "" {
		o.Redlock = 0
	}
	t, err := New()
	if err != nil {
		return nil, err
	}
	t.TLS = o.User.TLS()
	if o.User.given() {
		t.tenant = tenant.NewName()
		t.KeyPrefix = t.tenant + ":" // also of named locks in MySQL, which belong to no database
	}
	if err := t.start(ctx, o); err != nil {
		// If ctx has ended, Stop kills everything at once, which is fine: there is no data to keep yet.
		return nil, errors.Join(fmt.Errorf("start the lab: %w", err), t.Stop(ctx))
	}
	return t, nil
}

func (t *Topology) start(ctx context.Context, o Options) error {
	if err := t.startServers(ctx, o); err != nil {
		return err
	}
	if err := t.Migrate(ctx, t.MySQLDSN); err != nil {
		return err
	}
	for i := range o.Replicas {
		replica, err := t.newReplica(i, o)
		if err != nil {
			return err
		}
		t.Replicas = append(t.Replicas, replica)
	}
	group, starting := errgroup.WithContext(ctx)
	for _, replica := range t.Replicas {
		group.Go(func() error { return replica.Restart(starting) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// nginx leaves a replica out for a second after a failure. If it had asked a replica that did not listen yet, the
	// other one would get the first requests of a run, and a short run would test one replica only.
	return t.balance(ctx, o)
}

// RestartReplicas stops all replicas, so that they release what they hold, and starts them on the same ports.
func (t *Topology) RestartReplicas(ctx context.Context) error {
	group, restarting := errgroup.WithContext(ctx)
	for _, replica := range t.Replicas {
		group.Go(func() error {
			if err := replica.Stop(restarting); err != nil {
				return err
			}
			return replica.Restart(restarting)
		})
	}
	return group.Wait()
}

// Stop stops everything that Start started, nginx first, and removes its files and what it has on the user's servers. A
// replica that does not end in time, or before ctx ends, is killed, and the error says so. Servers are killed at once.
// In the error, tenant.Left finds what could not be removed from the user's servers. Stopping again does nothing.
func (t *Topology) Stop(ctx context.Context) error {
	var errs []error
	for _, layer := range t.layers() {
		errs = append(errs, forAll(layer, func(p part) error { return p.stop(ctx) }))
	}
	errs = append(errs, tenant.AsLeft(t.removeTenants(ctx)))
	if t.dir != nil {
		errs = append(errs, t.dir.Remove())
	}
	return errors.Join(errs...)
}

// forAll does something for all of a list at the same time.
func forAll[T any](list []T, do func(T) error) error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, one := range list {
		all.Go(func() { errs[i] = do(one) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Check returns an error if a process that Start started has ended: a measurement is worthless without it.
func (t *Topology) Check() error {
	var errs []error
	for _, layer := range t.layers() {
		for _, p := range layer {
			errs = append(errs, p.death())
		}
	}
	return errors.Join(errs...)
}

// Died returns a channel that receives an error for each process that runs now, as soon as it has ended, whether by
// itself or by Stop. The channel is closed when all have ended, or ctx has.
func (t *Topology) Died(ctx context.Context) <-chan error {
	running := slices.Concat(t.layers()...)
	died := make(chan error, len(running))
	var watching sync.WaitGroup
	for _, p := range running {
		watching.Go(func() {
			select {
			case <-p.process.Done():
				died <- p.death()
			case <-ctx.Done():
			}
		})
	}
	go func() {
		watching.Wait()
		close(died)
	}()
	return died
}

// Death returns how the process of the replica ended, with the end of its log; nil while it runs.
func (r *Replica) Death() error { return part{process: r.Process()}.death() }

// part is a process of the topology.
type part struct {
	process *servers.Process
	stop    func(context.Context) error
}

// death returns how the process ended, with the end of its log; nil while it runs.
func (p part) death() error {
	if err := p.process.Err(); err != nil {
		return fmt.Errorf("%s ended (%w); its log ends with:\n%s", p.process.Name, err, p.process.Tail(20))
	}
	return nil
}

// layers lists the parts that were started, in the order in which they stop. Parts of one layer do not depend on each
// other.
func (t *Topology) layers() [][]part {
	var front, replicas, stores []part
	if nginx := t.Servers.Nginx; nginx != nil {
		front = append(front, part{process: nginx.Process, stop: nginx.Stop})
	}
	for _, r := range t.Replicas {
		if process := r.Process(); process != nil {
			replicas = append(replicas, part{process: process, stop: r.Stop})
		}
	}
	for _, redis := range t.redisServers() {
		if redis != nil {
			stores = append(stores, part{process: redis.Process, stop: redis.Stop})
		}
	}
	for _, etcd := range t.etcdMembers() {
		if etcd != nil {
			stores = append(stores, part{process: etcd.Process, stop: etcd.Stop})
		}
	}
	if zookeeper := t.Servers.ZooKeeper; zookeeper != nil {
		stores = append(stores, part{process: zookeeper.Process, stop: zookeeper.Stop})
	}
	if postgres := t.Servers.Postgres; postgres != nil {
		stores = append(stores, part{process: postgres.Process, stop: postgres.Stop})
	}
	if mysql := t.Servers.MySQL; mysql != nil {
		stores = append(stores, part{process: mysql.Process, stop: mysql.Stop})
	}
	return [][]part{front, replicas, stores}
}
