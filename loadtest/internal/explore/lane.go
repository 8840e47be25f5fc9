package explore

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/servers"
	"stock/loadtest/internal/explore/wire"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/topology"
	"stock/migrations"
)

// lane executes one schedule after the other, on a MySQL or a database of PostgreSQL, a Redis and replicas of its own.
// So whatever waits there is part of the schedule, and faults strike no other lane. The servers of locks (Redlock,
// etcd, ZooKeeper) are shared: they are keyed by item.
type lane struct {
	mysql    *servers.MySQL // nil: there is none
	postgres string         // address of a PostgreSQL, on which the lane has a database of its own; empty: it has a MySQL
	db       *sqlx.DB       // of MySQL or PostgreSQL
	keys     *redis.Client
	oracle   *oracle.Oracle
	waits    string // the query that counts what waits in MySQL
	replicas []*replica
	stops    []func(context.Context) error
	items    func() int64
	subject  Subject // nil: strategies of the catalogue
	at       topology.Addresses
	pause    time.Duration

	// Servers that keep only locks.
	redlock   []*redis.Client
	etcd      *clientv3.Client
	zookeeper *zk.Conn

	mu       sync.Mutex
	now      *schedule           // nil between two schedules
	names    []string            // items of the schedule, and what was made for them
	needs    []string            // servers of its strategy
	sticky   map[*wire.Conn]bool // connections in whose transaction one of names occurred
	idle     map[string]bool     // shapes of what a service of the user does without a request
	goesOn   string              // what it does after an answer, when no schedule waits any more; empty: nothing
	heard    map[string]bool     // shapes of what replicas do without a schedule; nil: nobody listens
	hidden   map[string]string   // what executes statements without their texts, by name; nil: unknown
	watching bool                // set while start watches what a service does without a request
	failed   error               // why the schedule cannot be judged; see fail
}

// replica is a process of the service and the proxies between it and the stores.
type replica struct {
	*topology.Replica
	lane    *lane
	number  int
	proxies []*wire.Proxy
	toRedis *wire.Proxy        // one of them
	at      topology.Addresses // through the proxies
}

// late is the index of the extra replica, to which requests that faults start are sent.
func (l *lane) late() int { return len(l.replicas) - 1 }

// lease is how long the locks of the replicas last: longer than a schedule, unless the machine is busy.
const lease = time.Second

// serviceArgs let pollers poll at once: a schedule waits for them.
var serviceArgs = []string{
	"--poll=2ms", "--lease=" + lease.String(), "--lock-wait=8s", "--request-timeout=12s", "--mysql-conns=8",
}

// start starts a MySQL or makes a database of PostgreSQL, and starts a Redis and the replicas: one for each request and
// one for what faults start. at has the servers of locks.
func (l *lane) start(
	ctx context.Context, t *topology.Topology, name string, at topology.Addresses, o Options,
) (err error) {
	if l.postgres != "" {
		err = l.openPostgres(ctx, &at)
	} else {
		err = l.startMySQL(ctx, &at)
	}
	if err != nil {
		return err
	}
	own, err := servers.StartRedis(ctx, servers.RedisOptions{Name: name + "-redis"})
	if err != nil {
		return err
	}
	l.onStop(own.Stop)
	at.Redis, at.RedisReplica = []string{own.Addr}, false
	if err := l.connect(ctx, at); err != nil {
		return err
	}
	switch own, ok := l.subject.(Service); {
	case ok:
		err = own.prepare(ctx, l)
	case l.postgres == "":
		_, err = migrations.Up(ctx, l.db.DB)
	}
	if err != nil {
		return err
	}
	_, l.watching = l.subject.(Service)
	for n := range o.Requests + 1 {
		r := &replica{lane: l, number: n, at: at}
		l.replicas = append(l.replicas, r)
		if err := r.start(ctx, t, fmt.Sprintf("%s-%d", name, n+1)); err != nil {
			return err
		}
	}
	if l.watching {
		select {
		case <-time.After(watchTime):
		case <-ctx.Done():
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watching = false
	}
	return nil
}

// watchTime is how long a service is watched before the first schedule. Most jobs that services repeat run within it.
const watchTime = time.Second

// startMySQL starts a MySQL with an empty database.
func (l *lane) startMySQL(ctx context.Context, at *topology.Addresses) (err error) {
	if l.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Relaxed: true}); err != nil {
		return err
	}
	l.onStop(l.mysql.Stop)
	if at.MySQLDSN, err = l.mysql.CreateDatabase(ctx, "stock"); err != nil {
		return err
	}
	if l.db, err = sqlx.Open("mysql", at.MySQLDSN); err != nil {
		return err
	}
	l.onStop(func(context.Context) error { return l.db.Close() })
	var version string
	if err := l.db.GetContext(ctx, &version, "SELECT VERSION()"); err != nil {
		return err
	}
	status := "performance_schema.global_status"
	if strings.Contains(version, "MariaDB") {
		status = "information_schema.GLOBAL_STATUS"
	}
	// Not INNODB_TRX: it is a cache that is refreshed only if nobody has read it for 100 ms.
	l.waits = `SELECT CAST(VARIABLE_VALUE AS SIGNED) +
		(SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock')
		FROM ` + status + ` WHERE VARIABLE_NAME = 'Innodb_row_lock_current_waits'`
	return nil
}

func (l *lane) connect(ctx context.Context, at topology.Addresses) (err error) {
	l.at = at
	l.keys = redis.NewClient(&redis.Options{Addr: at.Redis[0]})
	l.onStop(func(context.Context) error { return l.keys.Close() })
	if l.postgres != "" {
		return nil
	}
	o := oracle.Config{MySQLDSN: at.MySQLDSN, Redis: at.Redis}
	if l.oracle, err = oracle.Open(ctx, o); err != nil {
		return err
	}
	l.onStop(func(context.Context) error { l.oracle.Close(); return nil })
	return l.connectLocks(at)
}

// onStop registers what stop calls. What was registered last is called first.
func (l *lane) onStop(stop func(context.Context) error) { l.stops = append(l.stops, stop) }

// stop ends the lane.
func (l *lane) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, stop := range slices.Backward(l.stops) {
		_ = stop(ctx) // the processes are gone in any case
	}
}

// start starts proxies in front of all servers, and the process that finds the servers there.
func (r *replica) start(ctx context.Context, t *topology.Topology, name string) error {
	config, err := mysql.ParseDSN(r.at.MySQLDSN)
	if err != nil {
		return err
	}
	address, err := url.Parse(r.at.PostgresURL)
	if err != nil {
		return err
	}
	var inMySQL, inPostgres []string
	if r.lane.postgres == "" {
		inMySQL = []string{config.Addr}
	} else if _, own := r.lane.subject.(Service); own { // the sessions of scripts ask the gate themselves
		inPostgres = []string{address.Host}
	}
	for _, to := range []struct {
		protocol wire.Protocol
		gate     wire.Gate
		servers  *[]string
	}{
		{wire.MySQL, r, &inMySQL},
		{wire.Postgres, r, &inPostgres},
		{wire.Redis, r, &r.at.Redis},
		{wire.Redis, &passing{replica: r, last: map[string]string{}}, &r.at.Redlock},
		{wire.Frames, r, &r.at.Etcd},
		{wire.Frames, r, &r.at.ZooKeeper},
	} {
		*to.servers = slices.Clone(*to.servers)
		for i, server := range *to.servers {
			p, err := wire.Start(to.protocol, server, to.gate, r.lane.keys)
			if err != nil {
				return err
			}
			r.lane.onStop(func(context.Context) error { p.Close(); return nil })
			r.proxies = append(r.proxies, p)
			if to.servers == &r.at.Redis {
				r.toRedis = p
			}
			(*to.servers)[i] = p.Addr()
		}
	}
	if len(inMySQL) > 0 {
		config.Addr = inMySQL[0]
		r.at.MySQLDSN = config.FormatDSN()
	}
	if len(inPostgres) > 0 {
		address.Host = inPostgres[0]
		r.at.PostgresURL = address.String()
	}
	switch subject := r.lane.subject.(type) {
	case nil:
		r.Replica, err = t.StartReplica(ctx, name, r.at, topology.Options{ReplicaArgs: serviceArgs})
	case Service:
		r.Replica, err = t.StartCommand(ctx, name, subject.Command, subject.Dir, r.at)
	case *scripted: // sessions are executed in this process
	}
	r.lane.onStop(func(context.Context) error {
		if r.Replica != nil && r.Process() != nil {
			r.Process().Kill()
		}
		return nil
	})
	return err
}

func (l *lane) running() *schedule {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// begin makes a schedule the one that is executed.
func (l *lane) begin(s *schedule, needs []string, items []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now, l.needs, l.names, l.sticky = s, needs, s.made, map[*wire.Conn]bool{}
	for _, item := range items {
		l.names = append(l.names, strconv.FormatInt(item, 10))
	}
}

// end lets everything pass, and waits until the clients have ended. A replica that died was only cut off. It is
// connected again once it sleeps, so that it cannot carry out its request before the stores are read. If the schedule
// has not ended by itself, what it has left to do must not be in the way of the next one.
// Replicas of a Subject are started again if the schedule has cut their connections: not every service opens new ones.
func (l *lane) end(ctx context.Context, s *schedule) {
	s.release()
	s.sending.Wait()
	died := slices.ContainsFunc(s.actors, func(a *actor) bool { return a.lost })
	if died || !s.ended() {
		l.rest(ctx)
	}
	l.mu.Lock()
	l.now = nil
	l.mu.Unlock()
	for _, a := range s.actors {
		if !a.cut {
			continue
		}
		r := l.replicas[a.replica]
		for _, p := range r.proxies {
			p.Refuse(false)
		}
		switch {
		case r.Replica == nil:
		case l.subject != nil:
			if err := r.Restart(ctx); ctx.Err() == nil {
				l.fail(err)
			}
		default:
			for a.lost && r.Ready(ctx) != nil && ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
	for _, r := range l.replicas {
		if l.subject != nil && r.Replica != nil {
			l.fail(r.Death()) // it would answer nobody any more
		}
	}
}

// fail notes why the schedule cannot be judged, unless err is nil: a replica could not be started again, or a server
// did not say whether a fault can strike. It is called by the goroutine that executes the schedule.
func (l *lane) fail(err error) { l.failed = cmp.Or(l.failed, err) }

// rest waits until all replicas sleep.
func (l *lane) rest(ctx context.Context) {
	quiet, until := time.Now(), time.Now().Add(sleepTime)
	for time.Since(quiet) < executing && time.Now().Before(until) && ctx.Err() == nil {
		time.Sleep(executing / 4)
		if slices.ContainsFunc(l.replicas, (*replica).awake) {
			quiet = time.Now()
		}
	}
}

// sleepTime is how long replicas may take to fall asleep: one that does not has other work.
const sleepTime = time.Second

// cut cuts a replica off from all stores until the schedule ends.
func (r *replica) cut() {
	for _, p := range r.used() {
		p.Refuse(true)
		p.CutAll()
	}
}

// used lists the proxies of a replica, without those to servers of locks that nobody uses: to connect to one again
// takes a second.
func (r *replica) used() []*wire.Proxy {
	if r.lane.subject == nil && !slices.ContainsFunc(r.lane.needs, isLockServer) {
		return r.proxies[:2] // MySQL and Redis
	}
	return r.proxies
}

func isLockServer(need string) bool {
	return slices.Contains([]string{"redlock", "etcd", "zookeeper"}, need)
}
