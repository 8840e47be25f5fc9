package fault

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/traffic"
)

// crowdPlays are scenarios of many clients who buy through nginx while something is killed.
var crowdPlays = map[string]func(*Stage){
	"replica-killed": func(s *Stage) {
		c := s.openCrowd(0)
		s.meet("both replicas have sold") // or some leases would end before the victim is killed
		a := s.hold(patiently(to(s.Victim, "A", 1)), messages.Commit)
		over := c.goOn()
		s.killVictim()
		c.killedNS.Store(monotonic.Now())
		a.die()
		over()
		c.report()
		unknown := c.count(0, monotonic.Now(), history.Unknown)
		if unknown > crowdUsers {
			s.Failf("%d outcomes are unknown, but only %d users were buying", unknown, crowdUsers)
		}
		s.Provef("the victim was killed while a proxy held %s; it had sold %d times, and the survivor %d times", a.what,
			c.sales["victim"], c.sales["survivor"])
		s.Stepf("%d users have sent %d requests, %d of them with an unknown outcome", crowdUsers, len(c.ops), unknown)
	},
	"replica-and-database-killed": func(s *Stage) {
		c := s.openCrowd(0)
		over := c.goOn()
		s.killVictim()
		s.strike("MySQL is killed and started again", s.MySQL.Restart)
		c.killedNS.Store(monotonic.Now()) // the crowd leaves when the survivor has sold enough since then
		over()
		if c.report(); c.since < crowdSales {
			s.never = true
			return
		}
		left := s.stock(s.Store)
		s.Provef("before both were killed, the victim had sold %d times; the survivor has sold %d times, %d of them since "+
			"MySQL was started again; %d units are left", c.sales["victim"], c.sales["survivor"], c.since, left)
		s.buyNow("D", left)
	},
	"cluster-failover/sales": func(s *Stage) {
		c := s.openCrowd(clusterPace)
		over := c.goOn()
		s.cutClusterReplication()
		cut := monotonic.Now()
		s.eventually("the users have bought what the Redis replica does not receive", func() bool {
			return c.soldSince(cut) >= clusterSales
		})
		c.killedNS.Store(s.strike(clusterMasterKilled, s.redis.failOverCluster))
		over()
		unreplicated := c.count(cut, c.killedNS.Load(), history.Sold)
		s.provePause(c, fmt.Sprintf("%d sales were confirmed after replication was cut", unreplicated))
	},
	"cluster-failover/locks": playLockInFailover,
	"etcd-leader-killed": func(s *Stage) {
		c := s.openCrowd(clusterPace)
		over := c.goOn()
		killed := s.strike("the leader of etcd is killed", s.etcd.killLeader)
		c.killedNS.Store(killed)
		leader, term, err := s.etcd.awaitElection(s.ctx)
		s.check(err)
		elected := time.Duration(monotonic.Now() - killed)
		over()
		s.provePause(c, fmt.Sprintf("the leader of term %d was killed, and %s led in term %d after %.1f s",
			s.etcd.status.Term, leader.Name, term, elected.Seconds()))
	},
	"holds-after-crash": func(s *Stage) {
		s.run.Reserves = true
		held := s.reserve("A", roundTime)
		s.reserve("B", shortHold)
		cancelled := s.reserve("C", roundTime)
		if s.MySQL == nil {
			s.killVictim()
		} else {
			s.strike("MySQL is killed and started again", s.MySQL.Restart)
		}
		s.eventually("the survivor confirms what A holds", func() bool {
			return s.call(s.Survivor, traffic.About(held, history.Confirm, false)).Outcome == history.Done
		})
		s.call(s.Survivor, traffic.About(cancelled, history.Cancel, false))
		s.Provef("the victim had granted three reservations before the kill; the survivor has confirmed one of them " +
			"after that, and cancelled another")
		s.eventually("the units of the others are back", func() bool { return s.stock(s.durable()) == units-1 })
	},
}

// playLockInFailover kills a master of a Redis Cluster while A is inside.
func playLockInFailover(s *Stage) {
	c := s.openCrowd(clusterPace)
	var a held
	// A lock that waits for the Redis replica must be granted before that is cut off.
	if waitsForReplica(s.Strategy) {
		a = s.holdWrite()
	}
	s.cutClusterReplication()
	if !waitsForReplica(s.Strategy) {
		a = s.holdWrite()
	}
	over := c.goOn()
	killed := s.forget(a, s.redis.replica, clusterMasterKilled, s.redis.failOverCluster)
	c.killedNS.Store(killed)
	promoted := time.Now()
	s.eventually("somebody else is granted the lock, or has waited for it", func() bool {
		return c.soldSince(killed) > 0 || time.Since(promoted) > 2*s.On.LockWait
	})
	inside := c.soldSince(killed)
	a.land()
	s.mend("the killed master is started again, and becomes a Redis replica", s.redis.rejoin)
	over()
	s.provePause(c, fmt.Sprintf("sales to others before A's write arrived: %d", inside))
}

// A crowd is several users who buy through nginx.
type crowd struct {
	stage    *Stage
	pace     time.Duration // pause of a user after each request
	asked    atomic.Int64  // requests so far
	killedNS atomic.Int64  // when something was killed; 0: it is alive

	mu    sync.Mutex
	ops   []history.Op
	sales map[string]int // by replica
	since int            // sales since something was killed
}

const (
	crowdUsers = 4
	crowdSales = 20 // of the survivor, after which the crowd leaves
)

// openCrowd has users buy through nginx until both replicas have sold.
func (s *Stage) openCrowd(pace time.Duration) *crowd {
	s.setManyUnits()
	c := &crowd{stage: s, sales: map[string]int{}, pace: pace}
	c.buy(func() bool { return len(c.sales) == 2 })()
	return c
}

// goOn has the users buy until the survivor has sold enough since something was killed, or patience has passed. It
// returns when all buy.
func (c *crowd) goOn() (wait func()) {
	earlier := c.asked.Load()
	wait = c.buy(func() bool {
		killed := c.killedNS.Load()
		return killed > 0 && (c.since >= crowdSales || monotonic.Now()-killed > int64(patience))
	})
	c.stage.eventually("all users buy", func() bool { return c.asked.Load() >= earlier+crowdUsers })
	return wait
}

// buy has every user buy one time after the other until the crowd has had enough.
func (c *crowd) buy(enough func() bool) (wait func()) {
	var users []func()
	for range crowdUsers {
		users = append(users, c.stage.meanwhile(func() {
			for over := false; !over; over = c.buyOnce(enough) {
			}
		}))
	}
	return func() {
		for _, user := range users {
			user()
		}
	}
}

// buyOnce has a user buy, and reports whether the crowd has had enough.
func (c *crowd) buyOnce(enough func() bool) bool {
	client := fmt.Sprintf("user-%d", c.asked.Add(1))
	op := c.stage.exchange(order{client: client, through: c.stage.nginx})
	pause := c.pace
	if op.Outcome != history.Sold {
		pause = max(pause, pollInterval) // a server is down
	}
	time.Sleep(pause)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, op)
	if op.Outcome == history.Sold {
		c.sales[op.Replica]++
		if killed := c.killedNS.Load(); killed > 0 && op.ReceivedNS > killed {
			c.since++
		}
	}
	c.stage.check(c.stage.ctx.Err())
	return enough()
}

// count counts requests that were sent after a time and answered before another one.
func (c *crowd) count(from, to int64, outcomes ...history.Outcome) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range c.ops {
		if op.SentNS > from && op.ReceivedNS < to && slices.Contains(outcomes, op.Outcome) {
			n++
		}
	}
	return n
}

// soldSince counts the sales that were confirmed after a time.
func (c *crowd) soldSince(ns int64) int { return c.count(ns, monotonic.Now(), history.Sold) }

// report adds what the crowd did to the history, and says for how long nobody could buy after the kill: until a sale
// that was asked for after that.
func (c *crowd) report() {
	s, killed, next := c.stage, c.killedNS.Load(), monotonic.Now()
	s.booked.Store(true)
	s.keep(c.ops...)
	s.never = true
	for _, op := range c.ops {
		if op.Outcome == history.Sold && op.SentNS > killed {
			s.never, next = false, min(next, op.ReceivedNS)
		}
	}
	s.blocked = time.Duration(next - killed)
}

const (
	clusterPace  = 20 * time.Millisecond // pause of a user: many cells are played side by side
	clusterSales = 20                    // that the Redis replica does not receive
)

// clusterMasterKilled is what redisServers.failOverCluster does.
const clusterMasterKilled = "a master of the Redis Cluster was killed, and its Redis replica was promoted"

// cutClusterReplication has the Redis replica receive nothing more. If MySQL is updated later, it gets nothing more
// either until the master has been killed.
func (s *Stage) cutClusterReplication() {
	s.strike("the Redis replica and the consumers of streams receive nothing from now on",
		func(ctx context.Context) error {
			for _, proxy := range []*tcpproxy.Proxy{s.Victim.MySQL, s.Survivor.MySQL} {
				proxy.Select(messages.WritesStream)
				s.redis.held = append(s.redis.held, proxy.Hold())
			}
			return s.redis.replica.CutReplication(ctx)
		})
}

// provePause adds what the crowd did to the history, and proves what nobody could do meanwhile.
func (s *Stage) provePause(c *crowd, what string) {
	c.report()
	killed, refused, unknown := c.killedNS.Load(), 0, 0
	for _, op := range c.ops {
		switch meanwhile := op.ReceivedNS > killed && op.ReceivedNS < killed+int64(s.blocked); {
		case meanwhile && op.Outcome == history.Unknown:
			unknown++
		case meanwhile && op.Outcome != history.Sold:
			refused++
		}
	}
	text := fmt.Sprintf("%s; %.1f s after that, a sale was confirmed again; until then %d requests were refused, "+
		"and %d had an unknown outcome", what, s.blocked.Seconds(), refused, unknown)
	if s.redis != nil && s.redis.cluster != nil {
		down := time.Duration(s.redis.othersDownNS.Load())
		text += fmt.Sprintf("; the other masters refused their keys for %.1f s", down.Seconds())
	}
	s.Provef("%s", text)
}

// shortHold is the time of a reservation that expires during the scenario.
const shortHold = time.Second
