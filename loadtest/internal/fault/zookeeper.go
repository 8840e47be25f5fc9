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
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"stock/internal/servers"
	"stock/loadtest/internal/history"
)

// wrapped is a ZooKeeper whose counters come to their end.
type wrapped struct {
	*servers.ZooKeeper
	mu     sync.Mutex
	queues []string // the nodes whose children it numbers
}

// startZooKeeper starts a ZooKeeper whose counters a story sets.
func startZooKeeper(ctx context.Context, d *Deployment) error {
	server, err := servers.StartZooKeeper(ctx, servers.ZooKeeperOptions{Java: []string{servers.WithoutDigest}})
	if err == nil {
		d.onStop(server.Stop)
		d.zookeeper, d.Addresses.ZooKeeper = &wrapped{ZooKeeper: server}, []string{server.Addr}
	}
	return err
}

// connectZooKeeper opens a connection of the story's own.
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

// playSmallestNumber takes the node with the smallest number for the oldest.
func playSmallestNumber(s *Stage) {
	db, conn, queue := s.mysql(), s.connectZooKeeper(), "/"+s.LockKey()
	_, err := conn.Create(queue, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	s.check(err)
	s.wrap(queue)
	conn = s.connectZooKeeper()
	answerA := s.ask("A", 1)
	holder, err := join(conn, queue)
	s.check(err)
	units, err := s.readUnits(s.ctx, db)
	s.check(err)
	s.Stepf("A holds the lock with the number %d, and has read %d", number(holder), units)
	for i, sold := 0, false; !sold; i++ { // of nodes with the same number, that with the smaller name is first
		s.check(s.ctx.Err())
		b := s.perform(fmt.Sprintf("B%d", i), 2, func() (int64, error) {
			name, err := join(conn, queue)
			if err != nil {
				return 0, err
			}
			s.Provef("A is inside with the number %d, and B enters with the number %d", number(holder), number(name))
			return s.readAndWrite(s.ctx, db, 2)
		})
		sold = b.Outcome == history.Sold
	}
	answerA(s.writeUnits(s.ctx, db, units-1))
}

// join asks once for a lock by the recipe of ZooKeeper's documentation, and returns the name of its node.
func join(conn *zk.Conn, queue string) (name string, err error) {
	node, err := conn.Create(queue+"/"+rand.Text()+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	names, _, err := conn.Children(queue)
	if err == nil && slices.MinFunc(names, byNumber) != path.Base(node) {
		err = errHeld
	}
	if err != nil {
		return "", errors.Join(err, conn.Delete(node, -1))
	}
	return path.Base(node), nil
}

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
