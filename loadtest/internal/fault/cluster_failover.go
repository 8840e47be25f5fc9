package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stock/internal/monotonic"
	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/verify"
)

// clusterScenarios are stories of a cluster that loses its master, or its leader, while clients buy.
var clusterScenarios = []Scenario{clusterFailoverOfSales, clusterFailoverOfLocks, etcdLeaderKilled}

// lostMaster is the master of a Redis Cluster that the stories kill: that of the first third of the hash slots.
const lostMaster = 0

// clusterPace is the pause of a user between two requests. Many cells are played side by side.
const clusterPace = 20 * time.Millisecond

// clusterSales is how many sales the Redis replica does not receive.
const clusterSales = 20

// clusterFailoverOfSales is the story of a master that fails before its Redis replica has the last sales.
var clusterFailoverOfSales = Scenario{
	Name: "cluster-failover/sales",
	Title: "While clients buy, a master of a Redis Cluster is killed (SIGKILL). The Cluster promotes its Redis replica, " +
		"which has not received the last sales.",
	Applies: func(s scenario.Strategy) string {
		if s.Stores[0] != oracle.Redis || s.Claim.TwoReplicas != verify.ClaimCorrect {
			return "it does not sell from Redis, or loses updates even if no master fails"
		}
		return ""
	},
	Claim:  failoverLosesSales,
	Sells:  onLostMaster,
	Deploy: thenNginx(onRedis(redisCluster, "--request-timeout="+patientTimeout.String())),
	Play: func(ctx context.Context, s *Stage) error {
		c, err := s.openCrowd(ctx)
		if err != nil {
			return err
		}
		over := make(chan error, 1)
		s.inBackground(func() { over <- c.buy(ctx, c.survivorSells) })
		if err := s.cutClusterReplication(ctx); err != nil {
			return err
		}
		cut := monotonic.Now()
		err = eventually(ctx, "the users have bought what the Redis replica does not receive", func() (bool, error) {
			return c.soldSince(cut) >= clusterSales, nil
		})
		if err != nil {
			return err
		}
		if err := s.killClusterMaster(ctx); err != nil {
			return err
		}
		c.killedNS.Store(s.redis.killedNS.Load())
		if err := <-over; err != nil {
			return err
		}
		unreplicated := c.soldBetween(cut, c.killedNS.Load())
		s.reportPause(c, fmt.Sprintf("%d sales were confirmed after replication was cut", unreplicated))
		return nil
	},
}

// failoverLosesSales is claimed if the promoted Redis replica lacks sales.
func failoverLosesSales(s scenario.Strategy) Claim {
	switch {
	case s.WriteThrough:
		return claim("MySQL has the sales, and Redis sells their units again", report.Unsafe)
	case s.WriteBehind:
		return claim("loses sales that neither the Redis replica nor MySQL has received", report.Unsafe)
	}
	return claim("loses sales that the Redis replica has not received", report.Unsafe)
}

// clusterFailoverOfLocks is the story of a master that fails before its Redis replica has a lock.
var clusterFailoverOfLocks = Scenario{
	Name: "cluster-failover/locks",
	Title: "A master of a Redis Cluster is killed while a holder's write is on its way and clients wait for the lock " +
		"(SIGKILL). The Cluster promotes its Redis replica, which has not received the lock.",
	Applies: keyInRedis,
	Claim: func(s scenario.Strategy) Claim {
		if waitsForReplica(s) {
			return claim("the Redis replica has the lock; the next grant waits for another Redis replica", report.Blocked)
		}
		c := lockLost(s)
		if slices.Contains(c.Allowed, report.Safe) {
			c.Allowed = []report.Outcome{report.Blocked} // until the Redis replica is promoted
		}
		return c
	},
	Sells: onLostMaster,
	Deploy: thenNginx(onRedis(redisCluster, "--lease="+endlessLease.String(),
		"--request-timeout="+patientTimeout.String(), "--lock-wait="+shortWait.String())),
	Play: func(ctx context.Context, s *Stage) error {
		c, err := s.openCrowd(ctx)
		if err != nil {
			return err
		}
		a, err := s.holdBeyondReplica(ctx)
		if err != nil {
			return err
		}
		defer a.write.Release()
		over := make(chan error, 1)
		s.inBackground(func() { over <- c.buy(ctx, c.survivorSells) })
		err = s.forget(ctx, a, s.redis.master, s.redis.replica, clusterMasterKilled, s.redis.failOverCluster)
		if err != nil {
			return err
		}
		promoted := time.Now()
		c.killedNS.Store(s.redis.killedNS.Load())
		err = eventually(ctx, "somebody else is granted the lock, or has waited for it", func() (bool, error) {
			return c.soldSince(c.killedNS.Load()) > 0 || time.Since(promoted) > 2*shortWait, nil
		})
		if err != nil {
			return err
		}
		inside := c.soldSince(c.killedNS.Load())
		if err := s.land(ctx, a); err != nil {
			return err
		}
		err = s.Mend(ctx, "the killed master is started again, and becomes a Redis replica", s.redis.rejoinCluster)
		if err := errors.Join(err, <-over); err != nil {
			return err
		}
		s.reportPause(c, fmt.Sprintf("sales to others before A's write arrived: %d", inside))
		return nil
	},
}

// waitsForReplica reports whether a lock is granted only when a Redis replica has it.
func waitsForReplica(s scenario.Strategy) bool { return slices.Contains(s.Needs, "redis-replica") }

// holdBeyondReplica has A hold the lock, of which the Redis replica does not hear, and holds A's write. A lock that
// waits for the Redis replica must be granted before that is cut off.
func (s *Stage) holdBeyondReplica(ctx context.Context) (a lateHolder, err error) {
	first := waitsForReplica(s.Strategy)
	if first {
		if a, err = s.holdWrite(ctx, patientTimeout); err != nil {
			return a, err
		}
	}
	if err = s.cutClusterReplication(ctx); err == nil && !first {
		a, err = s.holdWrite(ctx, patientTimeout)
	}
	if err != nil && a.write != nil {
		a.write.Release()
	}
	return a, err
}

// etcdLeaderKilled is the story of an etcd cluster whose leader dies.
var etcdLeaderKilled = Scenario{
	Name:    "etcd-leader-killed",
	Title:   "While clients buy, the leader of three etcd members is killed (SIGKILL).",
	Applies: only("lock-etcd"),
	Claim: func(scenario.Strategy) Claim {
		return claim("sells on as soon as another member leads", report.Safe, report.Blocked)
	},
	Deploy: thenNginx(func(ctx context.Context, l *Lab) (*Deployment, error) {
		members, err := startEtcdMembers(ctx)
		at := l.Topology.Addresses()
		if err == nil {
			at.Etcd = members.cluster.Addrs
		}
		d, err := l.deployOn(ctx, at, members.stop, err, "--lease="+etcdLease.String(),
			"--request-timeout="+patientTimeout.String(), "--lock-wait="+patience.String())
		if err == nil {
			d.etcd = members
		}
		return d, err
	}),
	Play: func(ctx context.Context, s *Stage) error {
		c, err := s.openCrowd(ctx)
		if err != nil {
			return err
		}
		over := make(chan error, 1)
		s.inBackground(func() { over <- c.buy(ctx, c.survivorSells) })
		earlier := c.asked.Load()
		err = eventually(ctx, "all users buy", func() (bool, error) { return c.asked.Load() >= earlier+crowdUsers, nil })
		if err != nil {
			return err
		}
		if err := s.Together(ctx, "the leader of etcd is killed", s.etcd.killLeader); err != nil {
			return err
		}
		killed := s.etcd.killedNS.Load()
		c.killedNS.Store(killed)
		leader, term, err := s.awaitElection(ctx, s.etcd.term)
		if err != nil {
			return err
		}
		elected := time.Duration(monotonic.Now() - killed)
		if err := <-over; err != nil {
			return err
		}
		s.reportPause(c, fmt.Sprintf("the leader of term %d was killed, and %s led in term %d after %.1f s",
			s.etcd.term, leader.Name, term, elected.Seconds()))
		return nil
	},
}

// etcdLease is so long that no session ends while etcd has no leader.
const etcdLease = 10 * time.Second

// thenNginx deploys, and starts nginx in front of the replicas.
func thenNginx(
	deploy func(context.Context, *Lab) (*Deployment, error),
) func(context.Context, *Lab) (*Deployment, error) {
	return func(ctx context.Context, l *Lab) (*Deployment, error) {
		d, err := deploy(ctx, l)
		if err != nil {
			return nil, err
		}
		return d.behindNginx(ctx)
	}
}

// openCrowd has users buy through nginx until both replicas have sold.
func (s *Stage) openCrowd(ctx context.Context) (*crowd, error) {
	if err := s.setManyUnits(ctx); err != nil {
		return nil, err
	}
	c := &crowd{stage: s, sales: map[string]int{}, pace: clusterPace}
	return c, c.buy(ctx, c.bothSell)
}

// soldSince counts the sales that were confirmed after a time.
func (c *crowd) soldSince(ns int64) int { return c.soldBetween(ns, monotonic.Now()) }

func (c *crowd) soldBetween(from, to int64) (sales int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range c.ops {
		if op.Outcome == history.Sold && op.SentNS > from && op.ReceivedNS < to {
			sales++
		}
	}
	return sales
}

// reportPause adds what the crowd did to the history, and says for how long nobody could buy, and what those got who
// asked.
func (s *Stage) reportPause(c *crowd, what string) {
	c.record()
	killed, next := c.killedNS.Load(), monotonic.Now()
	s.never = true
	for _, op := range c.ops {
		if op.Outcome == history.Sold && op.SentNS > killed {
			s.never, next = false, min(next, op.ReceivedNS)
		}
	}
	s.blocked = time.Duration(next - killed)
	refused, unknown := 0, 0
	for _, op := range c.ops {
		switch meanwhile := op.ReceivedNS > killed && op.ReceivedNS < next; {
		case meanwhile && op.Outcome == history.Unknown:
			unknown++
		case meanwhile && op.Outcome != history.Sold:
			refused++
		}
	}
	text := fmt.Sprintf("%s; %.1f s after the kill, a sale was confirmed again; until then %d requests were refused, "+
		"and %d had an unknown outcome", what, s.blocked.Seconds(), refused, unknown)
	if s.redis != nil && s.redis.cluster != nil {
		text += fmt.Sprintf("; the other masters refused their keys for %.1f s", s.redis.othersDown().Seconds())
	}
	s.Provef("%s", text)
}

// redisCluster starts a Cluster whose masters have a Redis replica each.
func redisCluster(ctx context.Context) (*redisServers, error) {
	cluster, err := servers.StartRedisCluster(ctx, servers.RedisClusterOptions{Replicas: true})
	if err != nil {
		return &redisServers{}, err
	}
	return &redisServers{
		cluster: cluster, master: cluster.Masters[lostMaster], replica: cluster.Replicas[lostMaster],
	}, nil
}

// onLostMaster reports whether an item has a hash slot of the master that the stories kill.
func onLostMaster(item int64) bool { return servers.ClusterMaster(stockKey(item)) == lostMaster }

// stockKey is the key of an item's stock. All keys of the item have its hash slot.
func stockKey(item int64) string { return fmt.Sprintf("stock:{%d}", item) }

// clusterMasterKilled is what redisServers.failOverCluster does.
const clusterMasterKilled = "a master of the Redis Cluster was killed, and its Redis replica was promoted"

// writesStream matches the message that writes sales of a stream to MySQL.
func writesStream(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, []byte("INSERT INTO stream_sale"))
}

// cutClusterReplication has the Redis replica receive nothing more. If MySQL is updated later, it gets nothing more
// either until the master has been killed.
func (s *Stage) cutClusterReplication(ctx context.Context) error {
	return s.Together(ctx, "the Redis replica and the consumers of streams receive nothing from now on",
		func(ctx context.Context) error {
			for _, proxy := range []*tcpproxy.Proxy{s.Victim.MySQL, s.Survivor.MySQL} {
				proxy.Select(writesStream)
				s.redis.held = append(s.redis.held, proxy.Hold())
			}
			return s.redis.replica.CutReplication(ctx)
		})
}

func (s *Stage) killClusterMaster(ctx context.Context) error {
	return s.Together(ctx, clusterMasterKilled, s.redis.failOverCluster)
}

// failOverCluster kills the master, waits until the Cluster has promoted its Redis replica, and measures for how long
// another master refuses its keys meanwhile.
func (r *redisServers) failOverCluster(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan struct{})
	r.killedNS.Store(monotonic.Now())
	r.master.Kill()
	go func() {
		defer close(watched)
		r.watchOther(watching)
	}()
	err := r.cluster.AwaitPromotion(ctx, lostMaster)
	for _, release := range r.held {
		release()
	}
	stop()
	<-watched
	return err
}

// rejoinCluster starts the killed master again. The Cluster makes it a Redis replica of the one that was promoted.
func (r *redisServers) rejoinCluster(ctx context.Context) error {
	if err := r.master.Restart(ctx); err != nil {
		return err
	}
	return awaitReplica(ctx, r.replica)
}

// watchOther asks a master that lives for a key of its own until ctx ends, and notes for how long it refused.
func (r *redisServers) watchOther(ctx context.Context) {
	client := openRedis(r.cluster.Addrs[lostMaster+1])
	defer client.Close()
	item := int64(firstItem)
	for servers.ClusterMaster(stockKey(item)) != lostMaster+1 {
		item++
	}
	for ctx.Err() == nil {
		asked := time.Now()
		_, err := client.Exists(ctx, stockKey(item)).Result()
		time.Sleep(pollInterval)
		if err != nil && ctx.Err() == nil {
			r.othersDownNS.Add(int64(time.Since(asked)))
		}
	}
}

func (r *redisServers) othersDown() time.Duration { return time.Duration(r.othersDownNS.Load()) }
