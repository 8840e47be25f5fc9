package fault

import (
	"cmp"
	"context"
	"io"
	"log"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"stock/internal/servers"
)

// wrapped is a ZooKeeper whose counters come to their end.
type wrapped struct {
	*servers.ZooKeeper
	mu     sync.Mutex
	queues []string // the nodes whose children it numbers
}

// startZooKeeper starts a ZooKeeper whose counters a scenario sets.
func startZooKeeper(ctx context.Context, d *Deployment) error {
	server, err := servers.StartZooKeeper(ctx, servers.ZooKeeperOptions{Java: []string{servers.WithoutDigest}})
	if err == nil {
		d.onStop(server.Stop)
		d.zookeeper, d.Addresses.ZooKeeper = &wrapped{ZooKeeper: server}, []string{server.Addr}
	}
	return err
}

// connectZooKeeper opens a connection of the scenario's own.
func (s *Stage) connectZooKeeper() *zk.Conn {
	conn, _, err := zk.Connect([]string{s.zookeeper.Addr}, patientTimeout, zk.WithLogger(log.New(io.Discard, "", 0)))
	s.check(err)
	s.atEnd = append(s.atEnd, conn.Close)
	return conn
}

// number is what the server has appended to the name of a node: a number, which may be negative.
func number(name string) int {
	_, digits, _ := strings.Cut(name, "-")
	n, _ := strconv.Atoi(digits)
	return n
}

// byNumber orders the names of nodes as recipes do.
func byNumber(a, b string) int { return cmp.Or(number(a)-number(b), strings.Compare(a, b)) }

// wrap brings the counter of a queue to its end, together with those of the other cells.
func (s *Stage) wrap(queue string) {
	z := s.zookeeper
	z.mu.Lock()
	z.queues = append(z.queues, queue)
	z.mu.Unlock()
	s.strike("ZooKeeper restarts, with a counter that has come to its end", func(ctx context.Context) error {
		if err := z.SetSequence(ctx, math.MaxInt32, z.queues...); err != nil {
			return err
		}
		return eventually(ctx, "the replicas are connected again", func() (bool, error) {
			return cmp.Or(s.Victim.Ready(ctx), s.Survivor.Ready(ctx)) == nil, nil
		})
	})
}

// proveWrapped proves that a holder and the others have numbers that say nothing about their order.
func (s *Stage) proveWrapped(queue string, others []*pending) {
	conn := s.connectZooKeeper()
	s.eventually("the others wait for A", func() bool {
		names, _, err := conn.Children(queue)
		s.check(err)
		if slices.ContainsFunc(others, (*pending).answered) {
			return true
		}
		inOrder := func(name string) bool { return 0 <= number(name) && number(name) < math.MaxInt32 }
		if len(names) > len(others) && !slices.ContainsFunc(names, inOrder) {
			s.Provef("A was inside, and %d others waited; the first of the queue's numbers is %d, and the last %d",
				len(others), number(slices.MinFunc(names, byNumber)), number(slices.MaxFunc(names, byNumber)))
		}
		return len(names) > len(others)
	})
}
