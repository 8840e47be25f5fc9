package fault

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"stock/internal/servers"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var sequenceScenarios = []Scenario{sequenceWraps}

// sequenceWraps is the story of a queue that has been used so often that its numbers no longer tell its order.
var sequenceWraps = Scenario{
	Name:    "sequence-wraps",
	Title:   "The counter by which ZooKeeper numbers those that want a lock comes to its end, 2147483647.",
	Applies: only("lock-zookeeper"),
	Claim: func(scenario.Strategy) Claim {
		return claim("orders by the transactions that created the nodes", report.Safe)
	},
	Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
		server, err := servers.StartZooKeeper(ctx, servers.ZooKeeperOptions{Java: []string{servers.WithoutDigest}})
		if err != nil {
			return nil, err
		}
		at := l.Topology.Addresses()
		at.ZooKeeper = []string{server.Addr}
		d, err := l.deployOn(ctx, at, server.Stop, nil, "--request-timeout="+patientTimeout.String())
		if err == nil {
			d.zookeeper = &wrapped{ZooKeeper: server}
		}
		return d, err
	},
	Practices: []Practice{smallestNumber},
	Play: func(ctx context.Context, s *Stage) error {
		if _, err := s.send(ctx, order{client: "Z", at: s.Victim}); err != nil {
			return err
		}
		queue := "/stock/" + url.PathEscape(s.lockKey())
		if err := s.wrap(ctx, queue); err != nil {
			return err
		}
		a := order{client: "A", at: s.Victim, timeout: patientTimeout}
		holder, point, err := s.parkAtFirst(ctx, a, "before-write")
		if err != nil {
			return err
		}
		var others []*pending
		for i := range 4 { // if the order were left to chance, it would seldom be right
			b := order{client: fmt.Sprintf("B%d", i+1), at: s.Survivor, count: 2, timeout: patientTimeout}
			others = append(others, s.start(ctx, b))
		}
		if err := s.proveWrapped(ctx, queue, point, others); err != nil {
			return err
		}
		for _, b := range others { // each is refused when it has waited for as long as it may (--lock-wait)
			if err := b.wait(); err != nil {
				return err
			}
		}
		if err := s.release(ctx, holder); err != nil {
			return err
		}
		return s.buy(ctx, order{client: "C", at: s.Survivor, count: 3}, time.Now())
	},
}

// wrapped is a ZooKeeper whose counters come to their end.
type wrapped struct {
	*servers.ZooKeeper
	mu     sync.Mutex
	queues []string // the nodes whose children it numbers
}

// wrap brings the counter of a queue to its end, together with those of the other cells.
func (s *Stage) wrap(ctx context.Context, queue string) error {
	z := s.zookeeper
	z.mu.Lock()
	z.queues = append(z.queues, queue)
	z.mu.Unlock()
	what := "ZooKeeper restarts, with a counter that has come to its end"
	return s.Together(ctx, what, func(ctx context.Context) error {
		if err := z.SetSequence(ctx, math.MaxInt32, z.queues...); err != nil {
			return err
		}
		return eventually(ctx, "the replicas are connected again", func() (bool, error) {
			return cmp.Or(s.Victim.Ready(ctx), s.Survivor.Ready(ctx)) == nil, nil
		})
	})
}

// proveWrapped proves that a holder and the others have numbers that say nothing about their order.
func (s *Stage) proveWrapped(ctx context.Context, queue, point string, others []*pending) error {
	conn, err := s.zookeeper.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	return eventually(ctx, "the others wait for A", func() (bool, error) {
		names, _, err := conn.Children(queue)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(others, (*pending).answered) {
			return true, nil
		}
		if len(names) <= len(others) {
			return false, nil
		}
		if slices.IndexFunc(names, func(name string) bool { n := number(name); return 0 <= n && n < math.MaxInt32 }) < 0 {
			s.Provef("A was at %s, and %d others waited; the first of the queue's numbers is %d, and the last %d", point,
				len(others), number(slices.MinFunc(names, byNumber)), number(slices.MaxFunc(names, byNumber)))
		}
		return true, nil
	})
}

// connect opens a connection of the story's own. The caller closes it.
func (z *wrapped) connect() (*zk.Conn, error) {
	conn, _, err := zk.Connect([]string{z.Addr}, patientTimeout, zk.WithLogger(log.New(io.Discard, "", 0)))
	return conn, err
}

// number is what the server has appended to the name of a node: a number, which may be negative.
func number(name string) int {
	_, digits, _ := strings.Cut(name, "-")
	n, _ := strconv.Atoi(digits)
	return n
}

// byNumber orders the names of nodes as recipes do.
func byNumber(a, b string) int { return cmp.Or(number(a)-number(b), strings.Compare(a, b)) }

// smallestNumber takes the node with the smallest number for the oldest.
var smallestNumber = Practice{
	Name:  "smallest-number",
	Claim: claim("takes the smallest number for the oldest", report.Unsafe),
	Play: func(ctx context.Context, s *Stage) error {
		queue := zkQueue{path: "/" + s.lockKey()}
		if err := s.zookeeper.create(queue.path); err != nil {
			return err
		}
		if err := s.wrap(ctx, queue.path); err != nil {
			return err
		}
		shop, err := s.openShop(ctx)
		if err != nil {
			return err
		}
		defer shop.close()
		if queue.conn, err = s.zookeeper.connect(); err != nil {
			return err
		}
		defer queue.conn.Close()
		a := s.ask("A", 1)
		holder, err := queue.join()
		if err != nil {
			return err
		}
		units, err := shop.read(ctx)
		if err != nil {
			return err
		}
		s.Stepf("A holds the lock with the number %d, and has read %d", number(holder), units)
		_, err = s.untilSold(ctx, "B", time.Now(), patience, func(client string) (history.Op, error) {
			return s.perform(client, 2, func() (int64, error) {
				name, err := queue.join()
				if err != nil {
					return 0, err
				}
				s.Provef("A is inside with the number %d, and B enters with the number %d", number(holder), number(name))
				units, err := shop.read(ctx)
				if err == nil {
					err = shop.write(ctx, units-2)
				}
				return units - 2, err
			}), nil
		})
		if err != nil {
			return err
		}
		a.answer(units-1, shop.write(ctx, units-1))
		return nil
	},
}

// create creates a node.
func (z *wrapped) create(node string) error {
	conn, err := z.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	return err
}

// zkQueue is a lock by the recipe of ZooKeeper's documentation.
type zkQueue struct {
	conn *zk.Conn
	path string
}

// join asks for the lock once, and returns the name of its node. It does not wait.
func (q zkQueue) join() (name string, err error) {
	node, err := q.conn.Create(q.path+"/"+rand.Text()+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	names, _, err := q.conn.Children(q.path)
	if err == nil && slices.MinFunc(names, byNumber) != path.Base(node) {
		err = errHeld
	}
	if err != nil {
		return "", errors.Join(err, q.conn.Delete(node, -1))
	}
	return path.Base(node), nil
}
