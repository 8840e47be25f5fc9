package explore

import (
	"cmp"
	"context"
	"errors"
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

// serverTime limits what a schedule asks servers to do. They answer much sooner, unless they are stuck.
const serverTime = time.Minute

// end ends locks.
func (s *schedule) end(ctx context.Context, which func() []string) error {
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	s.mu.Lock()
	locks := which()
	s.mu.Unlock()
	for _, lock := range locks {
		store, command, end := s.lane.ending(ctx, lock)
		s.add(trace.Step{Kind: trace.Strikes, Store: store, Text: command})
		if err := end(); err != nil {
			return fmt.Errorf("end a lock with %s: %w", command, err)
		}
	}
	return nil
}

// longestLease is longer than the leases of locks, and shorter than the time to live of anything else.
const longestLease, longestLeaseElsewhere = 5 * time.Second, time.Minute

// leases lists those of the keys that have a time to live, and which locks of other servers are held.
func (l *lane) leases(keys, locks []string) (leases []string) {
	ctx, cancel := context.WithTimeout(context.Background(), serverTime)
	defer cancel()
	longest := longestLease
	if l.subject != nil {
		longest = longestLeaseElsewhere
	}
	for _, client := range l.masters() {
		for _, key := range keys {
			ttl, err := client.PTTL(ctx, key).Result()
			l.fail(err)
			if ttl > 0 && ttl <= longest && !slices.Contains(leases, key) {
				leases = append(leases, key)
			}
		}
	}
	items := l.itemNames()
	return slices.Concat(leases, l.heldInMySQL(ctx, locks, items), l.heldInEtcd(ctx, items), l.heldInZooKeeper(items))
}

// ending returns what ends a lock, and how a person would do that.
func (l *lane) ending(ctx context.Context, lock string) (store, command string, end func() error) {
	if name, ok := strings.CutPrefix(lock, namedLock); ok {
		command = fmt.Sprintf("KILL CONNECTION (the one with IS_USED_LOCK('%s'))", name)
		return "mysql", command, func() error { return l.killHolder(ctx, name) }
	}
	if lock == lockRow {
		const expire = "UPDATE lock_row SET expires = UTC_TIMESTAMP(6)"
		return "mysql", expire, func() (err error) {
			for _, item := range l.itemNames() {
				_, failed := l.db.ExecContext(ctx, expire+" WHERE name LIKE ?", "%"+item+"%")
				err = cmp.Or(err, failed)
			}
			return err
		}
	}
	if key, ok := strings.CutPrefix(lock, etcdPrefix); ok {
		return "etcd", "etcdctl del " + key, func() error { _, err := l.etcd.Delete(ctx, key); return err }
	}
	if node, ok := strings.CutPrefix(lock, zookeeperPrefix); ok {
		return "zookeeper", "delete " + node, func() error { return unlessGone(l.zookeeper.Delete(node, -1)) }
	}
	return "redis", "DEL " + lock, func() (err error) {
		for _, client := range l.masters() {
			err = cmp.Or(err, client.Del(ctx, lock).Err())
		}
		return err
	}
}

// unlessGone returns the error of ZooKeeper, unless it says that there is no such node any more.
func unlessGone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// itemNames lists the items of the schedule, and what was made for them.
func (l *lane) itemNames() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.names)
}

// killHolder kills the connection that has a lock of GET_LOCK. The server ends it in the background.
func (l *lane) killHolder(ctx context.Context, lock string) error {
	for {
		id, err := l.holder(ctx, lock)
		if err != nil || id == nil {
			return err
		}
		_, _ = l.db.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", *id)) // fails if it has just ended
		time.Sleep(time.Millisecond)
	}
}

// holder is the connection that has a lock of GET_LOCK; nil: there is none.
func (l *lane) holder(ctx context.Context, lock string) (id *uint32, err error) {
	err = l.db.GetContext(ctx, &id, "SELECT IS_USED_LOCK(?)", lock)
	return id, err
}

// connectLocks connects to the servers that keep only locks. All lanes share them.
func (l *lane) connectLocks(at topology.Addresses) (err error) {
	for _, address := range at.Redlock {
		client := redis.NewClient(&redis.Options{Addr: address})
		l.onStop(func(context.Context) error { return client.Close() })
		l.redlock = append(l.redlock, client)
	}
	if len(at.Etcd) > 0 {
		if l.etcd, err = clientv3.New(clientv3.Config{Endpoints: at.Etcd, Logger: zap.NewNop()}); err != nil {
			return err
		}
		l.onStop(func(context.Context) error { return l.etcd.Close() })
	}
	if len(at.ZooKeeper) > 0 {
		quiet := zk.WithLogger(log.New(io.Discard, "", 0))
		if l.zookeeper, _, err = zk.Connect(at.ZooKeeper, 30*time.Second, quiet, zk.WithLogInfo(false)); err != nil {
			return err
		}
		l.onStop(func(context.Context) error { l.zookeeper.Close(); return nil })
	}
	return nil
}

// masters lists the servers of Redis that the strategy uses.
func (l *lane) masters() []*redis.Client {
	if slices.Contains(l.needs, "redlock") {
		return append([]*redis.Client{l.keys}, l.redlock...)
	}
	return []*redis.Client{l.keys}
}

// heldInMySQL lists those of the locks that are held. A row of lock_row is held for one of the items.
func (l *lane) heldInMySQL(ctx context.Context, locks, items []string) (held []string) {
	for _, lock := range locks {
		var holder *uint32
		var err error
		if name, named := strings.CutPrefix(lock, namedLock); named {
			holder, err = l.holder(ctx, name)
		}
		for i := 0; lock == lockRow && holder == nil && err == nil && i < len(items); i++ {
			err = l.db.GetContext(ctx, &holder,
				"SELECT MAX(1) FROM lock_row WHERE name LIKE ? AND expires > UTC_TIMESTAMP(6)", "%"+items[i]+"%")
		}
		l.fail(err)
		if holder != nil {
			held = append(held, lock)
		}
	}
	return held
}

// Where the locks are in etcd and ZooKeeper, and how the names of those that hold them begin here.
const (
	etcdRoot        = "locks/"
	zookeeperRoot   = "/stock"
	etcdPrefix      = "etcd:"
	zookeeperPrefix = "zookeeper:"
)

func ofItem(queue string, items []string) bool {
	return slices.ContainsFunc(items, func(item string) bool { return strings.Contains(queue, item) })
}

// heldInEtcd lists the keys that have the locks of some items: the first of each queue.
func (l *lane) heldInEtcd(ctx context.Context, items []string) (holders []string) {
	if !slices.Contains(l.needs, "etcd") {
		return nil
	}
	found, err := l.etcd.Get(ctx, etcdRoot, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		l.fail(err)
		return nil
	}
	queues := map[string]bool{}
	for _, kv := range found.Kvs {
		if queue := path.Dir(string(kv.Key)); ofItem(queue, items) && !queues[queue] {
			queues[queue] = true
			holders = append(holders, etcdPrefix+string(kv.Key))
		}
	}
	return holders
}

// heldInZooKeeper lists the nodes that have the locks of some items: those with the lowest number, of ten digits.
func (l *lane) heldInZooKeeper(items []string) (holders []string) {
	if !slices.Contains(l.needs, "zookeeper") {
		return nil
	}
	number := func(node string) string { return node[max(0, len(node)-10):] }
	children := func(node string) []string {
		nodes, _, err := l.zookeeper.Children(node)
		l.fail(unlessGone(err))
		return nodes
	}
	for _, queue := range children(zookeeperRoot) {
		queue = path.Join(zookeeperRoot, queue)
		if !ofItem(queue, items) {
			continue
		}
		if nodes := children(queue); len(nodes) > 0 {
			first := slices.MinFunc(nodes, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
			holders = append(holders, zookeeperPrefix+path.Join(queue, first))
		}
	}
	return holders
}
