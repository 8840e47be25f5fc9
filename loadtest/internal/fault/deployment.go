package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/topology"
)

// Player plays scenarios on the servers of a topology, and on others that it starts for them.
type Player struct {
	Topology *topology.Topology
	Oracle   *oracle.Oracle // reads the stores of the topology

	// Reading means that Options.Step waits until somebody has read the step. Rounds, and requests that should not end
	// before the scenario tells them to, have time for that. Claims about how long an item is blocked are not checked.
	Reading bool

	items atomic.Int64 // used so far: each cell has one of its own
}

// nextItem returns an item that nobody has used. In a Redis Cluster, the scenarios kill the master that has it.
func (p *Player) nextItem() int64 {
	for {
		item := firstItem + p.items.Add(1)
		if servers.ClusterMaster(messages.StockKey(item)) == lostMaster {
			return item
		}
	}
}

// Times of the replicas that play the scenarios. They are short, because scenarios wait for them.
const (
	lease          = 2 * time.Second
	requestTimeout = 3 * time.Second // the least that the service accepts
	clientTimeout  = 2 * requestTimeout
	// patientTimeout is longer than any scenario, and readersTimeout longer than any that somebody reads step by step.
	patientTimeout = 30 * time.Second
	readersTimeout = time.Hour
)

// Setting is what a scenario is played on: two replicas, on the servers of the lab unless it says otherwise.
type Setting struct {
	Lease          time.Duration         // 0: the usual one, as for the next two
	LockWait       time.Duration         `yaml:"lock-wait"` // how long requests wait for a lock
	RequestTimeout time.Duration         `yaml:"request-timeout"`
	Args           []string              // more arguments of "stock serve"
	Isolation      string                // the default of sessions with MySQL, as the system variable spells it
	Database       bool                  // of the round's own, on the MySQL of the lab
	MySQL          *servers.MySQLOptions // a MySQL of the round's own
	Unmapped       bool                  // its log is not mapped into memory, as MariaDB does in /dev/shm
	Redis          start                 // a Redis of the round's own
	Locks          start                 // servers for locks, of the round's own
	Options        servers.RedisOptions  // of Redis, or of each of the masters of Redlock
	Nginx          bool                  // in front of the replicas
	Resend         bool                  // nginx sends a POST again whose connection broke
	Proxies        bool                  // between nginx and the replicas
}

// start starts servers for a round, which the deployment stops.
type start func(context.Context, *Deployment) error

// Deployment is what a round is played on: the victim, which the faults strike, the survivor, which goes on selling,
// and their servers. It is used for one round only, so a scenario may leave it broken.
type Deployment struct {
	On               Setting
	Victim, Survivor *topology.Isolated
	Oracle           *oracle.Oracle
	Service          load.Service // of the survivor
	Addresses        topology.Addresses
	MySQL            *servers.MySQL // of the round's own; nil: the lab's

	// Servers of the round's own; nil: there are none.
	nginx     string            // URL of one in front of both replicas
	behind    []*tcpproxy.Proxy // between it and each replica
	redis     *redisServers     // a master, and perhaps a Redis replica
	masters   []*servers.Redis  // of Redlock
	etcd      *etcdMembers
	zookeeper *wrapped

	stops []func(context.Context) error // in the order in which the parts were started
}

// deploy starts what a scenario is played on.
func (p *Player) deploy(ctx context.Context, on Setting) (d *Deployment, err error) {
	if err := p.spares(on); err != nil {
		return nil, err
	}
	on.Lease, on.LockWait = cmp.Or(on.Lease, lease), cmp.Or(on.LockWait, lease)
	if on.RequestTimeout = cmp.Or(on.RequestTimeout, requestTimeout); p.Reading && on.RequestTimeout >= patientTimeout {
		on.RequestTimeout = readersTimeout // it should not end before the scenario tells it to
	}
	d = &Deployment{On: on, Oracle: p.Oracle, Addresses: p.Topology.Addresses()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop(ctx))
			d = nil
		}
	}()
	if err := d.startMySQL(ctx, p, on); err != nil {
		return d, err
	}
	// A replica writes to its database what other replicas have sold in Redis and have not written yet: a database of
	// the round's own needs a Redis of its own.
	if on.Redis == nil && on.ownDatabase() {
		on.Redis, d.Addresses.Account = oneRedis, oracle.Account{}
	}
	for _, start := range []start{on.Redis, on.Locks} {
		if start == nil {
			continue
		}
		if err := start(ctx, d); err != nil {
			return d, err
		}
	}
	if d.redis != nil {
		d.Addresses.Redis, d.Addresses.RedisReplica = d.redis.addresses, d.redis.replica != nil
	}
	if err := d.openOracle(ctx, p); err != nil {
		return d, err
	}
	if err := d.startReplicas(ctx, p, on); err != nil || !on.Nginx {
		return d, err
	}
	return d, d.startNginx(ctx, on)
}

// ownDatabase reports whether the round has a database of its own.
func (on Setting) ownDatabase() bool { return on.MySQL != nil || on.Database }

// checkDisk returns why a MySQL of the round's own cannot have the disk that it needs.
func (on Setting) checkDisk() error {
	if on.MySQL.Disk > 0 {
		return servers.CheckMount()
	}
	if on.Unmapped && strings.HasPrefix(os.TempDir(), "/dev/shm") {
		return errors.New("in /dev/shm, MariaDB loses nothing that it has not flushed: set TMPDIR to a folder on a disk")
	}
	return nil
}

// startMySQL starts a MySQL, or makes a database, for the round, and sets the isolation level.
func (d *Deployment) startMySQL(ctx context.Context, l *Player, on Setting) (err error) {
	server, name := l.Topology.Servers.MySQL, fmt.Sprintf("round_%d", l.items.Add(1))
	if on.MySQL != nil {
		if err := on.checkDisk(); err != nil {
			return fmt.Errorf("%w: %w", errLeftOut, err)
		}
		if server, err = servers.StartMySQL(ctx, *on.MySQL); err != nil {
			return err
		}
		d.MySQL, d.Addresses.TiDB = server, false
		d.onStop(func(ctx context.Context) error {
			server.Kill() // its data are not needed any more
			return server.Stop(ctx)
		})
	}
	if on.ownDatabase() {
		if d.Addresses.MySQLDSN, err = server.CreateDatabase(ctx, name); err != nil {
			return err
		}
		if on.Database {
			d.onStop(func(ctx context.Context) error { return server.DropDatabase(ctx, name) })
		}
		if err := l.Topology.Migrate(ctx, d.Addresses.MySQLDSN); err != nil {
			return err
		}
	}
	if on.Isolation != "" {
		settings := l.Topology.Environment.MySQLSettings
		d.Addresses.MySQLDSN, err = atIsolation(d.Addresses.MySQLDSN, on.Isolation, settings)
	}
	return err
}

// atIsolation returns a DSN whose sessions have the isolation level. settings are the server's system variables.
func atIsolation(dsn, level string, settings map[string]string) (string, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	variable := "tx_isolation" // as MariaDB before 11.1 calls it
	if _, known := settings["transaction_isolation"]; known {
		variable = "transaction_isolation"
	}
	config.Params[variable] = "'" + level + "'"
	return config.FormatDSN(), nil
}

// newRedis starts a Redis for the round.
func (d *Deployment) newRedis(ctx context.Context, o servers.RedisOptions) (*servers.Redis, error) {
	r, err := servers.StartRedis(ctx, o)
	if err == nil {
		d.onStop(r.Stop)
	}
	return r, err
}

// newProxy starts a proxy for the round.
func (d *Deployment) newProxy(address string) (*tcpproxy.Proxy, error) {
	proxy, err := tcpproxy.Start(address)
	if err == nil {
		d.onStop(func(context.Context) error { proxy.Close(); return nil })
	}
	return proxy, err
}

// startReplicas starts the victim and the survivor.
func (d *Deployment) startReplicas(ctx context.Context, l *Player, on Setting) error {
	victimAt, survivorAt := d.Addresses, d.Addresses
	if d.etcd != nil && d.etcd.apart {
		victimAt.Etcd = []string{d.etcd.leader.Addr}
	}
	var conns []string
	if l.Topology.Tenants.MySQL == nil { // a held request keeps its connection, and each strategy may have one
		conns = []string{"--mysql-conns=64"}
	}
	options := topology.Options{ReplicaArgs: slices.Concat(conns, []string{
		"--lease=" + on.Lease.String(), "--request-timeout=" + on.RequestTimeout.String(),
		"--lock-wait=" + on.LockWait.String(),
		// MySQL would drop what a scenario holds back for longer.
		"--mysql-idle-timeout=" + (2 * readersTimeout).String(),
	}, on.Args)}
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		d.Victim, err = l.Topology.StartIsolated(starting, "victim", victimAt, options)
		return err
	})
	group.Go(func() (err error) {
		d.Survivor, err = l.Topology.StartIsolated(starting, "survivor", survivorAt, options)
		return err
	})
	err := group.Wait()
	for _, r := range []*topology.Isolated{d.Victim, d.Survivor} {
		if r != nil {
			d.onStop(func(context.Context) error { r.Close(); return nil })
		}
	}
	if err != nil {
		return err
	}
	d.Service = load.Service{
		URL: d.Survivor.URL, Admin: d.Survivor.AdminURL, Client: &http.Client{Timeout: 10 * time.Second},
	}
	return nil
}

// startNginx starts nginx in front of both replicas. Without proxies, it sees that the victim refuses connections.
func (d *Deployment) startNginx(ctx context.Context, on Setting) (err error) {
	addresses := []string{d.Victim.Address(), d.Survivor.Address()}
	for i := range addresses {
		if on.Proxies {
			proxy, err := d.newProxy(addresses[i])
			if err != nil {
				return err
			}
			d.behind, addresses[i] = append(d.behind, proxy), proxy.Addr()
		}
	}
	server, url, err := topology.StartBalancer(ctx, on.Resend, addresses...)
	if d.nginx = url; err == nil {
		d.onStop(server.Stop)
	}
	return err
}

// Why no scenario is played on servers with TLS, and on a Redis Cluster of the user's.
const (
	NoTLS = "the replicas of the scenarios reach the servers through proxies, whose addresses are not in the " +
		"certificates of servers with TLS, and which cannot read what is encrypted"
	NoCluster = "the replicas of the scenarios reach the servers through proxies, and the clients of a Redis Cluster " +
		"would go past them, to the addresses that its masters tell"
)

// errLeftOut is why a scenario is not played here.
var errLeftOut = errors.New("not played")

// spares returns why a setting is not deployed: a server of the user's cannot be reached through proxies, or the
// scenario breaks it or needs other settings of it.
func (p *Player) spares(on Setting) error {
	switch t := p.Topology; {
	case t.TLS:
		return fmt.Errorf("%w: %s", errLeftOut, NoTLS)
	case len(t.Addresses().Redis) > 1:
		return fmt.Errorf("%w: %s", errLeftOut, NoCluster)
	case t.Tenants.MySQL != nil && on.ownDatabase():
		return fmt.Errorf("%w: it breaks MySQL or changes its schema or settings, and MySQL is yours", errLeftOut)
	case t.Tenants.Redis != nil && on.Redis != nil:
		return fmt.Errorf("%w: it breaks Redis or changes its settings, and Redis is yours", errLeftOut)
	}
	return nil
}

// missing is why a scenario is not played here, without where that was noticed; empty if the error is another one.
func missing(err error) (why string) {
	switch {
	case errors.Is(err, errLeftOut):
		_, why, _ = strings.Cut(err.Error(), errLeftOut.Error()+": ")
	case errors.Is(err, servers.ErrNotInstalled):
		why = err.Error()
	}
	return why
}

// oracleConfig says where an oracle finds the servers.
func (d *Deployment) oracleConfig() oracle.Config {
	at := d.Addresses
	return oracle.Config{
		MySQLDSN: at.MySQLDSN, Redis: at.Redis, Redlock: at.Redlock, Account: at.Account, KeyPrefix: at.KeyPrefix,
	}
}

// openOracle opens an oracle for the servers, unless they are those of the lab.
func (d *Deployment) openOracle(ctx context.Context, l *Player) (err error) {
	t := l.Topology
	if d.Addresses.MySQLDSN == t.MySQLDSN && slices.Equal(d.Addresses.Redis, t.Redis) {
		return nil
	}
	if d.Oracle, err = oracle.Open(ctx, d.oracleConfig()); err != nil {
		return err
	}
	d.onStop(func(context.Context) error { d.Oracle.Close(); return nil })
	return nil
}

// onStop has a part stopped when the round has ended. The part that was started last is stopped first.
func (d *Deployment) onStop(stop func(context.Context) error) { d.stops = append(d.stops, stop) }

// stop stops what the deployment has started, even if ctx has ended.
func (d *Deployment) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var errs []error
	for _, stop := range slices.Backward(d.stops) {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}

// setStock puts as many units of each item on sale. If the machine is busy, the service may need more than one try.
func (d *Deployment) setStock(ctx context.Context, units int64, items ...int64) (err error) {
	stock := map[int64]int64{}
	for _, item := range items {
		stock[item] = units
	}
	for range 5 {
		if err = d.Service.SetStock(ctx, stock); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// openRedis opens connections of the scenario's own to the Redis of the deployment. The caller closes the pool.
func (d *Deployment) openRedis() *redis.Client {
	return openRedisAs(d.Addresses.Account, d.Addresses.Redis[0])
}

// roundTime is the longest that a round may take, unless somebody reads each step.
const roundTime = 90 * time.Second
