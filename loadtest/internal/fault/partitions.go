package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var partitionScenarios = []Scenario{etcdPartition}

// etcdPartition is the story of an etcd leader that is cut off from the other members, but not from its clients.
var etcdPartition = Scenario{
	Name: "etcd-partition",
	Title: "The leader of three etcd members is cut off from the others. The holder reaches nobody but that leader, and " +
		"the next buyer nobody but the others.",
	Applies: only("lock-etcd"),
	Claim: func(scenario.Strategy) Claim {
		return claim("gives up before the majority grants the lock again", report.Blocked)
	},
	Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
		members, err := startEtcdMembers(ctx)
		if err != nil {
			return nil, err
		}
		leaders, others := l.Topology.Addresses(), l.Topology.Addresses()
		leaders.Etcd, others.Etcd = []string{members.leader.Addr}, members.followers()
		d, err := l.deployApart(ctx, leaders, others, "--request-timeout="+patientTimeout.String())
		if err == nil {
			d.etcd = members
		}
		return stopAfter(ctx, d, err, members.stop)
	},
	Play: func(ctx context.Context, s *Stage) error {
		a := order{client: "A", at: s.Victim, timeout: patientTimeout}
		holder, point, err := s.parkAtFirst(ctx, a, "before-write")
		if err != nil {
			return err
		}
		before, err := s.etcd.leaderStatus(ctx)
		if err != nil {
			return err
		}
		err = s.Together(ctx, "the leader of etcd is cut off from the other members", s.etcd.cutOffLeader)
		if err != nil {
			return err
		}
		cut := time.Now()
		if holder.answered() {
			return fmt.Errorf("client A was answered before the leader was cut off: %s", holder.op.Error)
		}
		after := make(chan error, 1)
		s.inBackground(func() { after <- s.proveElection(ctx, point, before.Term) })
		return errors.Join(s.sellAfter(ctx, holder, cut), <-after)
	},
}

// proveElection proves that the members that were not cut off have elected another leader.
func (s *Stage) proveElection(ctx context.Context, point string, term uint64) error {
	leader, elected, err := s.awaitElection(ctx, term)
	if err == nil {
		s.Provef("A was at %s when the leader of term %d was cut off; the others have elected %s, in term %d",
			point, term, leader.Name, elected)
	}
	return err
}

// awaitElection waits until another member of etcd leads, and returns it and its term. A member knows that it leads
// before it tells the new term.
func (s *Stage) awaitElection(ctx context.Context, before uint64) (leader *servers.Etcd, term uint64, err error) {
	err = eventually(ctx, "another member of etcd leads", func() (bool, error) {
		found, status, err := s.etcd.cluster.Leader(ctx)
		leader, term = found, status.Term
		return err == nil && leader != s.etcd.leader && term > before, nil // an error: there is no leader yet
	})
	return leader, term, err
}

// etcdMembers is an etcd cluster whose members reach each other through proxies.
type etcdMembers struct {
	cluster *servers.EtcdCluster
	links   []*tcpproxy.Proxy // in front of each member
	leader  *servers.Etcd     // at the start, or when it was killed

	// Of killLeader.
	term     uint64 // in which the leader was killed
	killedNS atomic.Int64
}

func startEtcdMembers(ctx context.Context) (m *etcdMembers, err error) {
	m = &etcdMembers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.stop(context.WithoutCancel(ctx)))
		}
	}()
	m.cluster, err = servers.StartEtcdCluster(ctx, servers.EtcdClusterOptions{
		Member: servers.EtcdOptions{Relaxed: true},
		Link: func(address string) (string, error) {
			link, err := tcpproxy.Start(address)
			if err != nil {
				return "", err
			}
			m.links = append(m.links, link)
			return link.Addr(), nil
		},
	})
	if err != nil {
		return m, err
	}
	m.leader, _, err = m.awaitLeader(ctx)
	return m, err
}

// awaitLeader waits until a member says that it leads. On a busy machine, members may need more than one try to answer.
func (m *etcdMembers) awaitLeader(ctx context.Context) (leader *servers.Etcd, status servers.EtcdStatus, err error) {
	err = eventually(ctx, "a member of etcd leads", func() (bool, error) {
		var err error
		leader, status, err = m.cluster.Leader(ctx)
		return err == nil, nil
	})
	return leader, status, err
}

// leaderStatus waits for the status of the member that led at the start.
func (m *etcdMembers) leaderStatus(ctx context.Context) (status servers.EtcdStatus, err error) {
	err = eventually(ctx, "the leader of etcd tells its status", func() (bool, error) {
		var err error
		status, err = m.leader.Status(ctx)
		return err == nil, nil
	})
	return status, err
}

func (m *etcdMembers) stop(ctx context.Context) (err error) {
	if m.cluster != nil {
		err = m.cluster.Stop(ctx)
	}
	for _, link := range m.links {
		link.Close()
	}
	return err
}

// killLeader kills the member that leads now, which may be another one than at the start.
func (m *etcdMembers) killLeader(ctx context.Context) error {
	leader, status, err := m.awaitLeader(ctx)
	if err != nil {
		return err
	}
	m.leader, m.term = leader, status.Term
	m.killedNS.Store(monotonic.Now())
	leader.Kill()
	return nil
}

// followers lists the addresses of all members but the leader.
func (m *etcdMembers) followers() (addresses []string) {
	for _, member := range m.cluster.Members {
		if member != m.leader {
			addresses = append(addresses, member.Addr)
		}
	}
	return addresses
}

// cutOffLeader drops all messages between the leader and the other members, in both directions.
func (m *etcdMembers) cutOffLeader(ctx context.Context) error {
	status, err := m.leaderStatus(ctx)
	if err != nil {
		return err
	}
	for i, link := range m.links {
		if m.cluster.Members[i] == m.leader {
			link.BlackHole()
			continue
		}
		// Its messages also travel on the connections that it makes to the others.
		link.Select(madeBy(status.ID))
		link.Hold()
		link.Break()
	}
	return nil
}

// madeBy selects the messages of the connections that a member of etcd makes to others.
func madeBy(member uint64) func(tcpproxy.Message) bool {
	header := fmt.Appendf(nil, "X-Server-From: %x\r\n", member)
	var mu sync.Mutex
	made := map[int]bool{}
	return func(m tcpproxy.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Contains(m.Data, header) {
			made[m.Conn] = true
		}
		return made[m.Conn]
	}
}
