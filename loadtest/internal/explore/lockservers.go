package explore

import (
	"cmp"
	"context"
	"io"
	"log"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"stock/loadtest/internal/explore/wire"
	"stock/loadtest/internal/topology"
)

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

// passing is the gate of the masters of Redlock. Their exchanges pass: a lock makes many of them at the same time, in
// an order that does not matter to others unless they lose a majority. What has the reply of before is a poll, and
// changes nothing.
type passing struct {
	*replica
	mu   sync.Mutex
	last map[string]string // replies, by the shape of what was asked
}

// Arrive implements wire.Gate.
func (p *passing) Arrive(e *wire.Exchange, _ <-chan struct{}) wire.Action {
	if s := p.lane.concerned(e, false); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.touches(e)
	}
	return wire.Pass
}

// Answered implements wire.Gate.
func (p *passing) Answered(e *wire.Exchange, err error) {
	p.mu.Lock()
	same := p.last[e.Shape] == e.Reply
	p.last[e.Shape] = e.Reply
	p.mu.Unlock()
	if !same {
		p.replica.Answered(e, err)
	}
}

// proxyLocks puts proxies in front of the servers of locks. What passes them is no step.
func (r *replica) proxyLocks(at *topology.Addresses) error {
	for _, to := range []struct {
		protocol wire.Protocol
		gate     wire.Gate
		servers  *[]string
	}{
		{wire.Redis, &passing{replica: r, last: map[string]string{}}, &at.Redlock},
		{wire.Frames, r, &at.Etcd},
		{wire.Frames, r, &at.ZooKeeper},
	} {
		servers := slices.Clone(*to.servers)
		for i := range servers {
			p, err := wire.Start(to.protocol, servers[i], to.gate)
			if err != nil {
				return err
			}
			r.proxies = append(r.proxies, p)
			servers[i] = p.Addr()
		}
		*to.servers = servers
	}
	return nil
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
