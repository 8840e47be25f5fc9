package explore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/loadtest/internal/explore/wire"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/topology"
)

// lane executes one schedule after the other, on a MySQL, a Redis and replicas of its own. So whatever waits in its
// MySQL is part of the schedule, and faults strike no other lane. The servers of locks (Redlock, etcd, ZooKeeper) are
// shared: they are keyed by item.
type lane struct {
	mysql    *servers.MySQL
	redis    *servers.Redis
	db       *sql.DB
	keys     *redis.Client
	oracle   *oracle.Oracle
	locks    lockServers
	waits    string // the query that counts what waits
	replicas []*replica
	items    func() int64
	subject  Subject // nil: strategies of the catalogue
	at       topology.Addresses
	pause    time.Duration

	mu     sync.Mutex
	now    *schedule           // nil between two schedules
	names  []string            // items of the schedule, and what was made for them
	needs  []string            // servers of its strategy
	sticky map[*wire.Conn]bool // connections that have named one of them
	idle   map[string]bool     // shapes of what a service of the user does without a request
	// watching is set until the first request.
	watching bool
	cutOff   []*replica
	failed   error // why a replica could not be started again
}

// replica is a process of the service and the proxies between it and the stores.
type replica struct {
	*topology.Replica
	lane    *lane
	number  int
	proxies []*wire.Proxy
	at      topology.Addresses // through the proxies
}

// late is the replica for what faults start. Each request has one of its own.
func (l *lane) late() int { return len(l.replicas) - 1 }

// serviceArgs give locks leases that outlast a schedule, and let pollers poll at once: a schedule waits for them.
var serviceArgs = []string{
	"--poll=2ms", "--lease=1s", "--lock-wait=8s", "--request-timeout=12s", "--mysql-conns=8",
}

func startLane(
	ctx context.Context, t *topology.Topology, name string, o Options, items func() int64,
) (l *lane, err error) {
	l = &lane{items: items, subject: o.Subject, pause: o.Pause, idle: map[string]bool{}, watching: true}
	defer func() {
		if err != nil {
			l.stop()
			l = nil
		}
	}()
	if l.mysql, err = servers.StartMySQL(ctx, servers.MySQLOptions{Relaxed: true}); err != nil {
		return l, err
	}
	if l.redis, err = servers.StartRedis(ctx, servers.RedisOptions{Name: name + "-redis"}); err != nil {
		return l, err
	}
	at := t.Addresses()
	if at.MySQLDSN, err = l.mysql.CreateDatabase(ctx, "stock"); err != nil {
		return l, err
	}
	if err := t.Migrate(ctx, at.MySQLDSN); err != nil {
		return l, err
	}
	at.Redis, at.RedisReplica = []string{l.redis.Addr}, false
	if l.subject != nil {
		at.Redlock, at.Etcd, at.ZooKeeper = nil, nil, nil
	}
	if err := l.connect(ctx, at); err != nil {
		return l, err
	}
	if l.subject != nil {
		if err := l.subject.prepare(ctx, l); err != nil {
			return l, err
		}
	}
	for n := range o.Requests + 1 {
		r := &replica{lane: l, number: n}
		l.replicas = append(l.replicas, r)
		if err := r.start(ctx, t, fmt.Sprintf("%s-%d", name, n+1), at); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l *lane) connect(ctx context.Context, at topology.Addresses) (err error) {
	if l.db, err = sql.Open("mysql", at.MySQLDSN); err != nil {
		return err
	}
	l.at = at
	l.keys = redis.NewClient(at.Account.RedisOptions(at.Redis[0]).Simple())
	o := oracle.Config{MySQLDSN: at.MySQLDSN, Redis: at.Redis, Account: at.Account}
	if l.oracle, err = oracle.Open(ctx, o); err != nil {
		return err
	}
	if l.locks, err = connectLocks(at); err != nil {
		return err
	}
	var version string
	if err := l.db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
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

func (r *replica) start(ctx context.Context, t *topology.Topology, name string, at topology.Addresses) error {
	config, err := mysql.ParseDSN(at.MySQLDSN)
	if err != nil {
		return err
	}
	toMySQL, err := wire.Start(wire.MySQL, config.Addr, r)
	if err != nil {
		return err
	}
	r.proxies = append(r.proxies, toMySQL)
	toRedis, err := wire.Start(wire.Redis, at.Redis[0], r)
	if err != nil {
		return err
	}
	r.proxies = append(r.proxies, toRedis)
	config.Addr = toMySQL.Addr()
	at.MySQLDSN, at.Redis = config.FormatDSN(), []string{toRedis.Addr()}
	if err := r.proxyLocks(&at); err != nil {
		return err
	}
	r.at = at
	if r.lane.subject != nil {
		r.Replica, err = r.lane.subject.start(ctx, t, name, at)
	} else {
		r.Replica, err = t.StartReplica(ctx, name, at, topology.Options{ReplicaArgs: serviceArgs})
	}
	return err
}

// stop ends the lane.
func (l *lane) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, r := range l.replicas {
		if r.Replica != nil && r.Process() != nil {
			r.Process().Kill()
		}
		for _, p := range r.proxies {
			p.Close()
		}
	}
	var errs []error
	if l.oracle != nil {
		l.oracle.Close()
	}
	if l.keys != nil {
		errs = append(errs, l.keys.Close())
	}
	l.locks.close()
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	if l.redis != nil {
		errs = append(errs, l.redis.Stop(ctx))
	}
	if l.mysql != nil {
		errs = append(errs, l.mysql.Stop(ctx))
	}
	_ = errors.Join(errs...) // the processes are gone in any case
}

// Arrive implements wire.Gate.
func (r *replica) Arrive(e *wire.Exchange, gone <-chan struct{}) wire.Action {
	if subject, ok := r.lane.subject.(*scripted); ok && !subject.mayTouch(e, r.lane.at.KeyPrefix) {
		return wire.LoseBoth
	}
	running := r.lane.running()
	serving := running != nil && r.lane.subject != nil && running.serves(r.number)
	if s := r.lane.concerned(e, serving); s != nil {
		return s.arrive(r.number, e, gone)
	}
	switch {
	case running == nil:
	case looksForWork(e):
		select {
		case <-running.over:
		case <-gone:
		}
	default:
		running.pass(e)
	}
	return wire.Pass
}

// looksForWork reports whether a replica looks for reservations that have expired, as it does once a second. It must
// not find those of a schedule sometimes: that requests find them is part of the schedule.
func looksForWork(e *wire.Exchange) bool { return strings.Contains(e.Text, "FROM reservation") }

// Answered implements wire.Gate.
func (r *replica) Answered(e *wire.Exchange, err error) {
	if s := r.lane.running(); s != nil {
		s.replied(r.number, e, err)
	}
}

// Pushed implements wire.Gate.
func (r *replica) Pushed(*wire.Conn) {
	if s := r.lane.running(); s != nil {
		s.heard(r.number)
	}
}

// Closed implements wire.Gate.
func (r *replica) Closed(*wire.Conn) {
	if s := r.lane.running(); s != nil {
		s.heard(r.number)
	}
}

func (l *lane) running() *schedule {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// concerned returns the schedule to which an exchange belongs: it names an item or what was made for it, such as a
// reservation, or ends a transaction that did. It returns nil for others. Replicas look for work all the time, and end
// what an earlier schedule has left behind.
//
// A service of the user may know an item by another name than its clients. So whatever it does while it is serving a
// request belongs to the schedule, unless it does the same without one.
func (l *lane) concerned(e *wire.Exchange, serving bool) *schedule {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		if l.watching {
			l.idle[e.Shape] = true
		}
		return nil
	}
	_, script := l.subject.(*scripted)
	switch {
	case script:
	case slices.ContainsFunc(l.names, func(name string) bool { return strings.Contains(e.Text, name) }):
		l.sticky[e.Conn] = true
		l.names = append(l.names, uuids.FindAllString(e.Text, -1)...)
	case l.sticky[e.Conn] && endsTransaction(e):
	case serving && !l.idle[e.Shape]:
		l.sticky[e.Conn] = l.sticky[e.Conn] || !e.Local
	default:
		if beginsTransaction(e) { // for something else: connections are shared
			delete(l.sticky, e.Conn)
		}
		return nil
	}
	return l.now
}

func beginsTransaction(e *wire.Exchange) bool {
	text := strings.ToUpper(e.Text)
	return strings.HasPrefix(text, "BEGIN") || strings.HasPrefix(text, "START TRANSACTION")
}

// endsTransaction reports whether an exchange concerns the whole transaction of its connection.
func endsTransaction(e *wire.Exchange) bool {
	text := strings.ToUpper(e.Text)
	return strings.HasPrefix(text, "COMMIT") || strings.HasPrefix(text, "ROLLBACK")
}

// uuids matches the ids that a service makes, as literals of SQL.
var uuids = regexp.MustCompile(`\b0x[0-9a-f]{32}\b`)

// begin makes a schedule the one that is executed.
func (l *lane) begin(s *schedule, needs []string, items []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now, l.needs, l.names, l.sticky = s, needs, nil, map[*wire.Conn]bool{}
	for _, item := range items {
		l.names = append(l.names, strconv.FormatInt(item, 10))
	}
}

// end lets everything pass, and waits until the replicas have ended what they do.
func (l *lane) end(ctx context.Context, s *schedule) {
	s.release()
	s.sending.Wait()
	l.mu.Lock()
	l.now = nil
	cutOff := l.cutOff
	l.cutOff = nil
	l.mu.Unlock()
	if l.subject != nil {
		l.restart(ctx, s)
	}
	for _, r := range cutOff {
		for _, p := range r.proxies {
			p.Refuse(false)
		}
		if r.Replica == nil {
			continue
		}
		for r.Ready(ctx) != nil && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// restart starts the replicas again whose connections a schedule has cut. Not every service opens new ones.
func (l *lane) restart(ctx context.Context, s *schedule) {
	for _, a := range s.actors {
		r := l.replicas[a.replica]
		if !a.started || !a.cut || r.Replica == nil {
			continue
		}
		for _, p := range r.proxies {
			p.Refuse(false)
		}
		if err := r.Restart(ctx); err != nil && ctx.Err() == nil {
			l.failed = err
		}
	}
}

// cut implements stores.
func (l *lane) cut(number int) {
	r := l.replicas[number]
	l.mu.Lock()
	l.cutOff = append(l.cutOff, r)
	l.mu.Unlock()
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

// blocked implements stores. It asks MySQL what waits, because a timer could only guess.
func (l *lane) blocked(ctx context.Context, flying []*wire.Exchange) (bool, error) {
	inMySQL := 0
	for _, e := range flying {
		switch {
		case e.Store == "mysql":
			inMySQL++
		case !waitsInRedis(e):
			return false, nil
		}
	}
	if inMySQL == 0 {
		return true, nil
	}
	// MySQL counts a statement as waiting until its thread has woken up, which takes a while on a busy machine.
	if l.mysql != nil && anyThread(l.mysql.PID, func(state byte) bool { return state == 'R' }) {
		return false, nil
	}
	var waiting int
	if err := l.db.QueryRowContext(ctx, l.waits).Scan(&waiting); err != nil {
		return false, fmt.Errorf("ask MySQL what waits: %w", err)
	}
	return waiting >= inMySQL, nil
}

// waitsInRedis reports whether a command waits until something happens.
func waitsInRedis(e *wire.Exchange) bool {
	command, _, _ := strings.Cut(e.Text, " ")
	return slices.Contains([]string{"BLPOP", "BRPOP", "BLMOVE", "BZPOPMIN", "XREAD"}, strings.ToUpper(command))
}

// longestLease is longer than the leases of locks, and shorter than the time to live of anything else.
const longestLease, longestLeaseElsewhere = 5 * time.Second, time.Minute

// leases implements stores.
func (l *lane) leases(keys []string) (leases []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	longest := longestLease
	if l.subject != nil {
		longest = longestLeaseElsewhere
	}
	for _, client := range l.masters() {
		pipe := client.Pipeline()
		for _, key := range keys {
			pipe.PTTL(ctx, key)
		}
		replies, _ := pipe.Exec(ctx)
		for i, reply := range replies {
			ttl, ok := reply.(*redis.DurationCmd)
			if ok && ttl.Err() == nil && ttl.Val() > 0 && ttl.Val() <= longest && !slices.Contains(leases, keys[i]) {
				leases = append(leases, keys[i])
			}
		}
	}
	l.mu.Lock()
	names := slices.Clone(l.names)
	l.mu.Unlock()
	return append(leases, l.locks.holders(ctx, l.needs, names)...)
}

// masters lists the servers of Redis that the strategy uses.
func (l *lane) masters() []*redis.Client {
	masters := []*redis.Client{l.keys}
	if slices.Contains(l.needs, "redlock") {
		masters = append(masters, l.locks.redlock...)
	}
	return masters
}

// endLeases implements stores. If it fails, no lease has ended, which the schedule shows.
func (l *lane) endLeases(keys []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, client := range l.masters() {
		_ = client.Del(ctx, keys...).Err()
	}
	l.locks.end(ctx, keys)
}

// asleep implements stores. A replica whose connection is being opened, or that has asked a server of locks, goes on
// soon.
func (l *lane) asleep(number int) bool {
	r := l.replicas[number]
	if r.Replica == nil {
		a := l.running().of(number)
		return a == nil || a.answered // the session of a script goes on until it asks a store, or ends
	}
	if slices.ContainsFunc(r.proxies, (*wire.Proxy).Busy) {
		return false
	}
	return !anyThread(r.PID, runs)
}

// runs reports whether a thread in this state runs, or will without an event: it waits for a disk. It does not if it is
// asleep, stopped, or dead without its parent knowing.
func runs(state byte) bool { return state == 'R' || state == 'D' }

// anyThread reports whether is holds for the state of a thread of a process and its descendants.
func anyThread(pid int, is func(state byte) bool) bool {
	for _, file := range threadsOf(strconv.Itoa(pid)) {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which is in parentheses and may contain any character.
		if _, state, found := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " "); found && is(state[0]) {
			return true
		}
	}
	return false
}

// threadsOf lists the files with the states of the threads of a process and its descendants. It is empty where there is
// no /proc: only the time tells there.
func threadsOf(pid string) (files []string) {
	tasks, _ := filepath.Glob("/proc/" + pid + "/task/*")
	for _, task := range tasks {
		files = append(files, task+"/stat")
		children, _ := os.ReadFile(task + "/children") // none if the thread has ended
		for child := range strings.FieldsSeq(string(children)) {
			files = append(files, threadsOf(child)...)
		}
	}
	return files
}
