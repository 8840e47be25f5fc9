// Package topology starts the whole system under test on this host, and stops it: MySQL or MariaDB, Redis, the masters of
// Redlock, etcd and ZooKeeper where they are installed, replicas of the service, and nginx in front of them.
package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"stock/internal/servers"
	"stock/nginx"
)

// database is the service's.
const database = "stock"

// Options configures Start. The zero value is the usual lab.
type Options struct {
	Replicas    int      // 2 where 0
	Redlock     int      // independent Redis masters: 3 where 0
	Listen      string   // host:port of nginx in front of all replicas; a free port where empty
	AdminListen string   // host:port of the first replica's admin listener, the others follow; free ports where empty
	StockBinary string   // path of the service; where empty, the one built together with this program, else one built now
	Bare        []string // host:port of servers that are compared with the service: nginx balances them on a port of their own
	PausePoints bool     // lets requests stop halfway
	Relaxed     bool     // trades the durability of MySQL, etcd and ZooKeeper for speed: for tests, never for measurements
	ReplicaArgs []string // more arguments of "stock serve", such as "--lease=2s"
}

// Topology is a system under test. One that was started elsewhere is described by the fields alone.
type Topology struct {
	URL       string     `json:"url"`        // nginx in front of all replicas
	SingleURL string     `json:"single_url"` // nginx in front of the first replica alone
	BareURL   string     `json:"-"`          // nginx in front of Options.Bare
	Replicas  []*Replica `json:"replicas"`
	MySQLDSN  string     `json:"mysql_dsn"`
	Redis     []string   `json:"redis"`   // host:port; more than one is a cluster
	Redlock   []string   `json:"redlock"` // host:port of the independent masters
	Etcd      []string   `json:"etcd,omitempty"`
	ZooKeeper []string   `json:"zookeeper,omitempty"`
	Nginx     Nginx      `json:"nginx"`

	Missing map[string]string `json:"missing,omitempty"` // why "etcd" or "zookeeper" was not started, and what to do

	StockBinary string `json:"stock_binary"` // path of the service; empty where it is not known

	Environment Environment `json:"environment"`

	// Servers are what Start started, for faults to break.
	Servers struct {
		MySQL     *servers.MySQL
		Redis     *servers.Redis
		Redlock   []*servers.Redis
		Etcd      *servers.Etcd      // nil where it is missing
		ZooKeeper *servers.ZooKeeper // nil where it is missing
		Nginx     *servers.Nginx
	} `json:"-"`

	missing sync.Mutex   // guards Missing during the start
	dir     *servers.Dir // the replicas' logs; nil where Start did not start it
}

// Nginx tells of the load balancer.
type Nginx struct {
	PID  int    `json:"pid"`
	Conf string `json:"conf"` // path of its configuration
}

// Environment is what measurements depend on. Empty where it is not known.
type Environment struct {
	MySQL            string            `json:"mysql"`             // "MariaDB 10.11.6"
	MySQLSettings    map[string]string `json:"mysql_settings"`    // durability and isolation
	Redis            string            `json:"redis"`             // "Redis 7.0.15"
	RedisPersistence string            `json:"redis_persistence"` // "append-only file, fsync everysec"
	Etcd             string            `json:"etcd"`              // "etcd 3.4.23"
	ZooKeeper        string            `json:"zookeeper"`         // "ZooKeeper 3.8.0"
	Nginx            string            `json:"nginx"`             // "nginx 1.22.1"
}

// Start starts everything and waits until each part answers. When it fails, or when this process dies, nothing is left.
func Start(ctx context.Context, o Options) (*Topology, error) {
	if o.Replicas == 0 {
		o.Replicas = 2
	}
	if o.Redlock == 0 {
		o.Redlock = 3
	}
	dir, err := servers.NewDir("lab")
	if err != nil {
		return nil, err
	}
	t := &Topology{dir: dir}
	if err := t.start(ctx, o); err != nil {
		// Whoever cancels ctx wants an end, and what has just started has nothing to lose.
		return nil, errors.Join(fmt.Errorf("start the lab: %w", err), t.Stop(ctx))
	}
	return t, nil
}

// start runs side by side what does not depend on each other. The service's binary is built meanwhile.
func (t *Topology) start(ctx context.Context, o Options) error {
	t.Servers.Redlock = make([]*servers.Redis, o.Redlock)

	first, firstCtx := errgroup.WithContext(ctx)
	first.Go(func() (err error) {
		t.StockBinary, err = t.findStock(firstCtx, o.StockBinary)
		return err
	})
	first.Go(func() error { return t.startMySQL(firstCtx, o.Relaxed) })
	first.Go(func() (err error) {
		t.Servers.Redis, err = servers.StartRedis(firstCtx, servers.RedisOptions{AOF: true})
		return err
	})
	for i := range t.Servers.Redlock {
		first.Go(func() (err error) {
			name := "redlock-" + strconv.Itoa(i+1)
			t.Servers.Redlock[i], err = servers.StartRedis(firstCtx, servers.RedisOptions{Name: name, AOF: true})
			return err
		})
	}
	first.Go(func() (err error) {
		t.Servers.Etcd, err = servers.StartEtcd(firstCtx, servers.EtcdOptions{Relaxed: o.Relaxed})
		return t.doWithout("etcd", err)
	})
	first.Go(func() (err error) {
		t.Servers.ZooKeeper, err = servers.StartZooKeeper(firstCtx, servers.ZooKeeperOptions{Relaxed: o.Relaxed})
		return t.doWithout("zookeeper", err)
	})
	if err := first.Wait(); err != nil {
		return err
	}
	t.describeServers()
	if err := t.migrate(ctx); err != nil {
		return err
	}

	for i := range o.Replicas {
		replica, err := t.newReplica(i, o)
		if err != nil {
			return err
		}
		t.Replicas = append(t.Replicas, replica)
	}
	second, secondCtx := errgroup.WithContext(ctx)
	for _, replica := range t.Replicas {
		second.Go(func() error { return replica.Restart(secondCtx) })
	}
	second.Go(func() error { return t.startNginx(secondCtx, o.Listen, o.Bare) })
	return second.Wait()
}

// doWithout records that a server is not installed. Any other error stays one.
func (t *Topology) doWithout(name string, err error) error {
	if !errors.Is(err, servers.ErrNotInstalled) {
		return err
	}
	t.missing.Lock()
	defer t.missing.Unlock()
	if t.Missing == nil {
		t.Missing = map[string]string{}
	}
	t.Missing[name] = err.Error()
	return nil
}

func (t *Topology) startMySQL(ctx context.Context, relaxed bool) (err error) {
	if t.Servers.MySQL, err = servers.StartMySQL(ctx, servers.MySQLOptions{Relaxed: relaxed}); err != nil {
		return err
	}
	t.MySQLDSN, err = t.Servers.MySQL.CreateDatabase(ctx, database)
	return err
}

func (t *Topology) describeServers() {
	t.Redis = []string{t.Servers.Redis.Addr}
	for _, master := range t.Servers.Redlock {
		t.Redlock = append(t.Redlock, master.Addr)
	}
	t.Environment.MySQL = t.Servers.MySQL.Version
	t.Environment.MySQLSettings = t.Servers.MySQL.Settings
	t.Environment.Redis = t.Servers.Redis.Version
	t.Environment.RedisPersistence = "append-only file, fsync everysec"
	if etcd := t.Servers.Etcd; etcd != nil {
		t.Etcd, t.Environment.Etcd = []string{etcd.Addr}, etcd.Version
	}
	if zookeeper := t.Servers.ZooKeeper; zookeeper != nil {
		t.ZooKeeper, t.Environment.ZooKeeper = []string{zookeeper.Addr}, zookeeper.Version
	}
}

// startNginx balances all replicas on one port, and has the first alone on another.
func (t *Topology) startNginx(ctx context.Context, all string, bare []string) (err error) {
	if all, err = addr(all, 0); err != nil {
		return err
	}
	single, err := freeAddr()
	if err != nil {
		return err
	}
	t.URL, t.SingleURL = "http://"+all, "http://"+single
	upstreams := render("stock", all, t.Replicas) + render("stock_single", single, t.Replicas[:1])
	if len(bare) > 0 {
		address, err := freeAddr()
		if err != nil {
			return err
		}
		var others []*Replica
		for _, server := range bare {
			others = append(others, &Replica{URL: "http://" + server})
		}
		t.BareURL = "http://" + address
		upstreams += render("bare", address, others)
	}
	t.Servers.Nginx, err = servers.StartNginx(ctx, servers.NginxOptions{
		HTTP:  upstreams,
		Ready: []string{t.URL + "/livez", t.SingleURL + "/livez"},
	})
	if err != nil {
		return err
	}
	t.Nginx = Nginx{PID: t.Servers.Nginx.PID, Conf: t.Servers.Nginx.Conf}
	t.Environment.Nginx = t.Servers.Nginx.Version
	return nil
}

func render(upstream, listen string, replicas []*Replica) string {
	var addresses []string
	for _, r := range replicas {
		addresses = append(addresses, strings.TrimPrefix(r.URL, "http://"))
	}
	return nginx.Render(upstream, listen, addresses)
}

// addr is the address offset ports above the one given, or any free one where none is given or its port is 0.
func addr(address string, offset int) (string, error) {
	if address == "" {
		return freeAddr()
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	first, err := strconv.Atoi(port)
	switch {
	case err != nil:
		return "", fmt.Errorf("port of %s: %w", address, err)
	case first == 0:
		return freeAddr()
	}
	return net.JoinHostPort(host, strconv.Itoa(first+offset)), nil
}

func freeAddr() (string, error) {
	port, err := servers.FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// Check says whether everything that Start started still runs: a measurement in which a part died is worth nothing.
func (t *Topology) Check() error {
	var errs []error
	for _, p := range t.processes() {
		errs = append(errs, death(p))
	}
	return errors.Join(errs...)
}

// death is nil while the process runs.
func death(p *servers.Process) error {
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s ended (%w); its log ends with:\n%s", p.Name, err, p.Tail(20))
	}
	return nil
}

// Died gives an error for each part that runs now, once it has ended, by itself or by Stop.
func (t *Topology) Died() <-chan error {
	processes := t.processes()
	died := make(chan error, len(processes))
	for _, p := range processes {
		go func() {
			<-p.Done()
			died <- death(p)
		}()
	}
	return died
}

func (t *Topology) processes() (list []*servers.Process) {
	if t.Servers.Nginx != nil {
		list = append(list, t.Servers.Nginx.Process)
	}
	for _, r := range t.Replicas {
		if r.process != nil {
			list = append(list, r.process)
		}
	}
	for _, s := range append([]*servers.Redis{t.Servers.Redis}, t.Servers.Redlock...) {
		if s != nil {
			list = append(list, s.Process)
		}
	}
	if t.Servers.Etcd != nil {
		list = append(list, t.Servers.Etcd.Process)
	}
	if t.Servers.ZooKeeper != nil {
		list = append(list, t.Servers.ZooKeeper.Process)
	}
	if t.Servers.MySQL != nil {
		list = append(list, t.Servers.MySQL.Process)
	}
	return list
}

// Stop ends everything that Start started, the front first, and removes what it wrote. What does not end in time, or by
// the end of ctx, is killed, and the error says so. Stopping again does nothing.
func (t *Topology) Stop(ctx context.Context) error {
	var front, replicas, stores []func(context.Context) error
	if t.Servers.Nginx != nil {
		front = append(front, t.Servers.Nginx.Stop)
	}
	for _, r := range t.Replicas {
		if r.process != nil {
			replicas = append(replicas, r.Stop)
		}
	}
	if t.Servers.MySQL != nil {
		stores = append(stores, t.Servers.MySQL.Stop)
	}
	for _, s := range append([]*servers.Redis{t.Servers.Redis}, t.Servers.Redlock...) {
		if s != nil {
			stores = append(stores, s.Stop)
		}
	}
	if t.Servers.Etcd != nil {
		stores = append(stores, t.Servers.Etcd.Stop)
	}
	if t.Servers.ZooKeeper != nil {
		stores = append(stores, t.Servers.ZooKeeper.Stop)
	}
	errs := []error{stopAll(ctx, front), stopAll(ctx, replicas), stopAll(ctx, stores)}
	if t.dir != nil {
		errs = append(errs, t.dir.Remove())
	}
	return errors.Join(errs...)
}

func stopAll(ctx context.Context, stops []func(context.Context) error) error {
	errs := make([]error, len(stops))
	var all sync.WaitGroup
	for i, stop := range stops {
		all.Go(func() { errs[i] = stop(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// client has no connections that outlive a request, and knows no proxy.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
