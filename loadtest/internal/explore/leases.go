package explore

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/topology"
)

// Locks of MySQL, as wire.Exchange names them. GET_LOCK has no lease: its lock ends with its connection.
const (
	namedLock = "mysql:lock:"
	lockRow   = "mysql:lock_row"
)

func isLockInMySQL(name string) bool { return name == lockRow || strings.HasPrefix(name, namedLock) }

// redisKeys lists the keys of Redis that the steps so far have touched. s.mu is held.
func (s *schedule) redisKeys() []string { return keysOf(slices.Sorted(maps.Keys(s.touched))) }

// leases lists the locks that end by themselves: keys of Redis with a time to live, and others. s.mu is held.
func (s *schedule) leases() []string {
	locks := slices.DeleteFunc(slices.Sorted(maps.Keys(s.touched)), func(name string) bool { return !isLockInMySQL(name) })
	return s.lane.leases(s.redisKeys(), locks)
}

// expiring lists the leases that end with time: that of GET_LOCK does not. s.mu is held.
func (s *schedule) expiring() []string {
	return slices.DeleteFunc(s.leases(), func(key string) bool { return strings.HasPrefix(key, namedLock) })
}

// lockKeys lists the keys of locks in Redis. s.mu is held.
func (s *schedule) lockKeys() []string {
	return slices.DeleteFunc(s.redisKeys(), func(key string) bool { return !strings.HasPrefix(key, s.locks) })
}

// end ends locks.
func (s *schedule) end(which func() []string) {
	s.mu.Lock()
	keys := which()
	s.mu.Unlock()
	if len(keys) > 0 {
		s.add(trace.Step{Kind: trace.Strikes, Store: storeOf(keys), Text: inCommands(keys)})
	}
	s.lane.endLeases(keys)
}

// longestLease is longer than the leases of locks, and shorter than the time to live of anything else.
const longestLease, longestLeaseElsewhere = 5 * time.Second, time.Minute

// leases lists those of the keys that have a time to live, and what is held in other servers.
func (l *lane) leases(keys, locks []string) (leases []string) {
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
	leases = append(leases, l.heldInMySQL(ctx, locks, names)...)
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

// endLeases deletes keys and ends locks. If it fails, no lease has ended, which the schedule shows.
func (l *lane) endLeases(keys []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, client := range l.masters() {
		_ = client.Del(ctx, keys...).Err()
	}
	l.locks.end(ctx, keys)
	l.endInMySQL(ctx, keys)
}

// inCommands says how a person would end locks and delete keys.
func inCommands(keys []string) string {
	var commands, deleted []string
	for _, key := range keys {
		name, named := strings.CutPrefix(key, namedLock)
		switch {
		case named:
			commands = append(commands, fmt.Sprintf("KILL CONNECTION (the one with IS_USED_LOCK('%s'))", name))
		case key == lockRow:
			commands = append(commands, "UPDATE lock_row SET expires = UTC_TIMESTAMP(6)")
		default:
			deleted = append(deleted, key)
		}
	}
	if len(deleted) > 0 {
		commands = append(commands, "DEL "+strings.Join(deleted, " "))
	}
	return strings.Join(commands, "; ")
}

// storeOf returns the store that has the keys or locks.
func storeOf(keys []string) string {
	if slices.ContainsFunc(keys, isLockInMySQL) {
		return "mysql"
	}
	return "redis"
}

// heldInMySQL lists those of the locks that are held. A row of lock_row is held for one of the items.
func (l *lane) heldInMySQL(ctx context.Context, locks, items []string) (held []string) {
	for _, lock := range locks {
		var holder *uint32
		if name, named := strings.CutPrefix(lock, namedLock); named {
			_ = l.db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&holder) // as if nobody held it
		} else {
			_ = l.db.QueryRowContext(ctx, "SELECT 1 FROM lock_row WHERE name LIKE ? AND expires > UTC_TIMESTAMP(6) LIMIT 1",
				"%"+items[0]+"%").Scan(&holder)
		}
		if holder != nil {
			held = append(held, lock)
		}
	}
	return held
}

// endInMySQL ends locks. If it fails, no lock has ended, which the schedule shows.
func (l *lane) endInMySQL(ctx context.Context, locks []string) {
	for _, lock := range locks {
		name, named := strings.CutPrefix(lock, namedLock)
		if lock == lockRow {
			_, _ = l.db.ExecContext(ctx, "UPDATE lock_row SET expires = UTC_TIMESTAMP(6)")
		}
		if !named {
			continue
		}
		var id *uint32
		for l.db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&id) == nil && id != nil {
			_, _ = l.db.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", *id))
			time.Sleep(time.Millisecond) // the server ends it in the background
		}
	}
}

// lockServers are clients of the servers that keep only locks. All lanes share the servers.
type lockServers struct {
	redlock   []*redis.Client
	etcd      *clientv3.Client
	zookeeper *zk.Conn
}

func connectLocks(at topology.Addresses) (l lockServers, err error) {
	for _, address := range at.Redlock {
		l.redlock = append(l.redlock, redis.NewClient(&redis.Options{Addr: address}))
	}
	if len(at.Etcd) > 0 {
		l.etcd, err = clientv3.New(clientv3.Config{Endpoints: at.Etcd, Logger: zap.NewNop()})
		if err != nil {
			return l, err
		}
	}
	if len(at.ZooKeeper) > 0 {
		quiet := zk.WithLogger(log.New(io.Discard, "", 0))
		l.zookeeper, _, err = zk.Connect(at.ZooKeeper, 30*time.Second, quiet, zk.WithLogInfo(false))
	}
	return l, err
}

func (l lockServers) close() {
	for _, client := range l.redlock {
		_ = client.Close() // the process goes on without it in any case
	}
	if l.etcd != nil {
		_ = l.etcd.Close()
	}
	if l.zookeeper != nil {
		l.zookeeper.Close()
	}
}

// Where the locks are in etcd and ZooKeeper, and how the names of those that hold them begin here.
const (
	etcdRoot        = "locks/"
	zookeeperRoot   = "/stock"
	etcdPrefix      = "etcd:"
	zookeeperPrefix = "zookeeper:"
)

// holders lists the keys in etcd and the nodes in ZooKeeper that have the locks of some items.
func (l lockServers) holders(ctx context.Context, needs, items []string) (holders []string) {
	ofItem := func(name string) bool {
		return slices.ContainsFunc(items, func(item string) bool { return strings.Contains(name, item) })
	}
	if slices.Contains(needs, "etcd") {
		found, err := l.etcd.Get(ctx, etcdRoot, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			return nil // as if there were none, which the schedule shows
		}
		queues := map[string]bool{}
		for _, kv := range found.Kvs {
			if queue := path.Dir(string(kv.Key)); ofItem(queue) && !queues[queue] {
				queues[queue] = true
				holders = append(holders, etcdPrefix+string(kv.Key))
			}
		}
	}
	if slices.Contains(needs, "zookeeper") {
		queues, _, _ := l.zookeeper.Children(zookeeperRoot) // none if it fails, as above
		for _, queue := range slices.DeleteFunc(queues, func(name string) bool { return !ofItem(name) }) {
			queue = path.Join(zookeeperRoot, queue)
			if nodes, _, _ := l.zookeeper.Children(queue); len(nodes) > 0 {
				holders = append(holders, zookeeperPrefix+path.Join(queue, slices.MinFunc(nodes, bySequence)))
			}
		}
	}
	return holders
}

// bySequence compares nodes by the numbers that ZooKeeper has given them, of ten digits.
func bySequence(a, b string) int {
	number := func(node string) string { return node[max(0, len(node)-10):] }
	return cmp.Compare(number(a), number(b))
}

// end deletes what holds a lock, as the end of its session would.
func (l lockServers) end(ctx context.Context, holders []string) {
	for _, name := range holders {
		if key, ok := strings.CutPrefix(name, etcdPrefix); ok {
			_, _ = l.etcd.Delete(ctx, key) // if it fails, no lease has ended, which the schedule shows
		} else if node, ok := strings.CutPrefix(name, zookeeperPrefix); ok {
			_ = l.zookeeper.Delete(node, -1)
		}
	}
}
