package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"stock/internal/servers"
	"stock/loadtest/internal/oracle"
)

// Replica is one process of the service. Its methods may be called concurrently, but its fields must not be read while
// it is restarted.
type Replica struct {
	Name     string `json:"name"`
	URL      string `json:"url"`       // without nginx
	AdminURL string `json:"admin_url"` // empty if unknown
	PID      int    `json:"pid"`       // 0 if unknown

	command servers.Command
	ready   func(context.Context) error     // nil: see Readiness
	started atomic.Pointer[servers.Process] // nil before the first start
}

// The states of a replica.
const (
	Running = "running"
	Stopped = "stopped" // by SIGSTOP
	Dead    = "dead"
)

// State returns what the replica's process does now.
func (r *Replica) State() string {
	process := r.started.Load()
	if process == nil || process.Err() != nil {
		return Dead
	}
	if state, err := servers.ProcessState(process.PID); err == nil && state == 'T' {
		return Stopped
	}
	return Running
}

// Process returns the replica's process; nil before the first start.
func (r *Replica) Process() *servers.Process { return r.started.Load() }

// errForeign is returned for a replica that was started elsewhere.
var errForeign = errors.New("this process did not start it and cannot control it")

// newReplica returns the replica with index i behind nginx, which is not started yet.
func (t *Topology) newReplica(i int, o Options) (*Replica, error) {
	admin, err := listenAddr(o.AdminListen, i)
	if err != nil {
		return nil, err
	}
	at := t.Addresses()
	at.Redis = t.Redis
	return t.describeReplica("replica-"+strconv.Itoa(i+1), admin, at, o)
}

// Addresses is where a replica finds its servers. Lists are of host:port.
type Addresses struct {
	MySQLDSN     string
	TiDB         bool   // MySQLDSN is that of TiDB
	PostgresURL  string // in place of MySQLDSN; only for a service of the user's
	Redis        []string
	RedisReplica bool // each master of Redis has a Redis replica
	// Account is what the user's servers ask of their clients, and empty on private ones.
	Account   oracle.Account
	KeyPrefix string // of everything that the service keeps in Redis
	Redlock   []string
	Etcd      []string // empty if there is none
	ZooKeeper []string // empty if there is none
}

// Addresses returns where isolated replicas find the topology's servers. Their Redis is never a Cluster: its clients
// would ask a master for the addresses of the others, and go there without a proxy.
func (t *Topology) Addresses() Addresses {
	return Addresses{
		MySQLDSN: t.MySQLDSN, PostgresURL: t.PostgresURL, TiDB: t.tidb,
		Redis: t.singleRedis(), RedisReplica: t.redisReplica(),
		Account: t.Account, KeyPrefix: t.KeyPrefix,
		Redlock: t.Redlock, Etcd: t.Etcd, ZooKeeper: t.ZooKeeper,
	}
}

// describeReplica returns a replica that is not started yet.
func (t *Topology) describeReplica(name, admin string, at Addresses, o Options) (*Replica, error) {
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--replica=" + name, "--listen=" + listen, "--admin-listen=" + admin,
		"--tidb=" + strconv.FormatBool(at.TiDB),
		"--redis=" + strings.Join(at.Redis, ","), "--key-prefix=" + at.KeyPrefix, "--redis-user=" + at.Account.RedisUser,
		"--mysql-tls=" + t.mysqlTLS, "--redis-tls=" + t.redisTLS,
		"--redis-replica=" + strconv.FormatBool(at.RedisReplica),
		"--redlock=" + strings.Join(at.Redlock, ","),
		"--etcd=" + strings.Join(at.Etcd, ","), "--zookeeper=" + strings.Join(at.ZooKeeper, ","),
		"--drain-timeout=5s", "--max-hold=" + o.MaxHold.String(),
	}
	args = append(args, t.connectionArgs...)
	return &Replica{
		Name:     name,
		URL:      "http://" + listen,
		AdminURL: "http://" + admin,
		command: servers.Command{
			Name: name,
			Path: t.StockBinary,
			Args: append(args, o.ReplicaArgs...),
			Env:  stockEnv(at.MySQLDSN, at.Account.RedisPassword),
			Log:  t.dir.File(name + ".log"),
		},
	}, nil
}

// Restart kills the replica if it is running (SIGKILL), starts it on the same ports, and waits until it is ready.
func (r *Replica) Restart(ctx context.Context) error {
	if r.command.Path == "" {
		return fmt.Errorf("%s: %w", r.Name, errForeign)
	}
	process := r.started.Load()
	if process != nil && r.ready != nil {
		process.Kill()
		r.awaitSilence(ctx)
	}
	ready := r.Ready
	if r.ready != nil {
		ready = r.orElsewhere(&process)
	}
	err := servers.Restart(ctx, &process, r.command, ready)
	if process != nil {
		r.started.Store(process)
		r.PID = process.PID
	}
	return err
}

// awaitSilence waits until nothing listens at the address of a program of the user that was killed: processes that it
// has started may end later than it does.
func (r *Replica) awaitSilence(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for r.ready(ctx) == nil {
		time.Sleep(2 * time.Millisecond)
	}
}

// client opens a connection per request and uses no proxy.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Ready returns an error until the replica answers /readyz with 200.
func (r *Replica) Ready(ctx context.Context) error {
	if r.ready != nil {
		return r.ready(ctx)
	}
	status, body, err := r.Readiness(ctx)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/readyz answers %d: %s", status, body)
	}
	return err
}

// Readiness asks /readyz, and returns the status and the body of the answer.
func (r *Replica) Readiness(ctx context.Context) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/readyz", nil)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	return response.StatusCode, strings.TrimSpace(string(text)), err
}

// Kill kills the replica (SIGKILL).
func (r *Replica) Kill() error { return r.signal(syscall.SIGKILL) }

// Pause stops the replica at whatever it is doing (SIGSTOP).
func (r *Replica) Pause() error { return r.signal(syscall.SIGSTOP) }

// Continue resumes a paused replica (SIGCONT).
func (r *Replica) Continue() error { return r.signal(syscall.SIGCONT) }

// Terminate tells the replica to finish its requests and exit (SIGTERM), and does not wait for it.
func (r *Replica) Terminate() error { return r.signal(syscall.SIGTERM) }

// signal waits for the end of a process that it kills.
func (r *Replica) signal(signal syscall.Signal) error {
	process := r.started.Load()
	switch {
	case process == nil:
		return fmt.Errorf("%s: %w", r.Name, errForeign)
	case signal == syscall.SIGKILL:
		process.Kill()
		return nil
	}
	return process.Signal(signal)
}

// Stop tells the replica to finish its requests and exit (SIGTERM), and waits for it. It kills a program of the user.
func (r *Replica) Stop(ctx context.Context) error {
	process := r.started.Load()
	if process == nil || r.ready != nil { // a program of the user need not know SIGTERM
		return r.Kill()
	}
	return process.Stop(ctx)
}
