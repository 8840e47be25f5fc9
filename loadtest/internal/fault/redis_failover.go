package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
)

// failoverScenarios are stories of a Redis replica that takes the place of its master.
var failoverScenarios = []Scenario{failover, plannedFailover, splitBrain, failoverOfSales}

// replicaPromoted is what redisServers.failOver does.
const replicaPromoted = "the master was killed, and its Redis replica was promoted"

// cutReplication has everything swallowed between the master and its Redis replica.
func (s *Stage) cutReplication(ctx context.Context) error {
	return s.Together(ctx, "the proxy between the master and its Redis replica begins to swallow",
		func(context.Context) error { s.redis.link.BlackHole(); return nil })
}

// failover is the story of a master that fails before its Redis replica has the lock.
var failover = Scenario{
	Name: "failover",
	Title: "The master of Redis is killed while a holder's write is on its way (SIGKILL). The Redis replica, which has " +
		"not received the lock, is promoted.",
	Applies: keyInOneRedis,
	Claim:   lockLost,
	Deploy:  onEndlessLeases(redisPair),
	Play: func(ctx context.Context, s *Stage) error {
		master, replica := s.redis.master, s.redis.replica
		if err := s.cutReplication(ctx); err != nil {
			return err
		}
		a, err := s.holdWrite(ctx, patientTimeout)
		if err != nil {
			return err
		}
		defer a.write.Release()
		switch rest, err := s.lockPTTL(ctx, replica); {
		case err != nil:
			return err
		case rest != noKey:
			return errors.New("the Redis replica has received the lock of client A")
		}
		if err := s.forget(ctx, a, master, replica, replicaPromoted, s.redis.failOver); err != nil {
			return err
		}
		return s.arriveLate(ctx, a)
	},
}

// plannedFailover is the story of a master that ends when its Redis replica has everything.
var plannedFailover = Scenario{
	Name: "failover-planned",
	Title: "The master of Redis is told to stop while a holder's write is on its way (SIGTERM). The Redis replica, " +
		"which has received the lock, is promoted.",
	Applies: keyInOneRedis,
	Claim:   lockKept,
	Deploy:  onEndlessLeases(redisPair),
	Play: func(ctx context.Context, s *Stage) error {
		master, replica := s.redis.master, s.redis.replica
		a, err := s.holdWrite(ctx, patientTimeout)
		if err != nil {
			return err
		}
		defer a.write.Release()
		err = eventually(ctx, "the Redis replica has the lock", func() (bool, error) {
			rest, err := s.lockPTTL(ctx, replica)
			return rest != noKey, err
		})
		if err != nil {
			return err
		}
		err = s.forget(ctx, a, master, replica, "the master ended, and its Redis replica was promoted",
			func(ctx context.Context) error {
				if err := master.Process.Stop(ctx); err != nil {
					return err
				}
				return s.redis.promote(ctx)
			})
		if err != nil {
			return err
		}
		return s.arriveLate(ctx, a)
	},
}

// splitBrain is the story of a master that was taken for dead, and returns. Until a Sentinel tells it that it is a
// Redis replica now, several seconds later, it accepts what clients send that have not learnt of the promotion.
var splitBrain = Scenario{
	Name: "sentinel-split-brain",
	Title: "The master of Redis is stopped (SIGSTOP), and goes on when Sentinel has promoted its Redis replica. " +
		"One replica of the service has not learnt of that.",
	Applies: keyInOneRedis,
	Claim:   lockLost,
	Missing: processStates,
	Deploy:  onEndlessLeases(redisWithSentinels),
	Play: func(ctx context.Context, s *Stage) error {
		err := s.Together(ctx, "the master was stopped, and goes on when Sentinel has promoted its Redis replica", s.split)
		if err != nil {
			return err
		}
		a, err := s.holdWrite(ctx, patientTimeout)
		if err != nil {
			return err
		}
		defer a.write.Release()
		for _, server := range []*servers.Redis{s.redis.master, s.redis.replica} {
			if err := s.isMaster(ctx, server); err != nil {
				return err
			}
		}
		old, err := s.lockPTTL(ctx, s.redis.master)
		if err != nil {
			return err
		}
		promoted, err := s.lockPTTL(ctx, s.redis.replica)
		if err != nil {
			return err
		}
		if old != noKey {
			s.Provef("both servers say that they are the master; the PTTL of A's lock is %s on the old one, and %s on the new",
				pttl(old), pttl(promoted))
		}
		return s.arriveLate(ctx, a)
	},
}

// split stops the master until Sentinel has promoted its Redis replica, and the survivor uses that.
func (s *Stage) split(ctx context.Context) error {
	master, replica := s.redis.master, s.redis.replica
	if err := stopServer(ctx, master); err != nil {
		return err
	}
	if err := s.redis.sentinels.AwaitPromotion(ctx); err != nil {
		return err
	}
	s.Survivor.Redis.Redirect(replica.Addr)
	return master.Signal(syscall.SIGCONT)
}

// isMaster returns an error unless a server of Redis says that it is a master.
func (s *Stage) isMaster(ctx context.Context, r *servers.Redis) error {
	client := openRedis(r.Addr)
	defer client.Close()
	role, err := client.Do(ctx, "ROLE").Slice()
	if err == nil && (len(role) == 0 || role[0] != "master") {
		err = fmt.Errorf("%s is not a master: %v", r.Name, role)
	}
	return err
}

// failoverOfSales is the story of a master that fails before its Redis replica has a sale.
var failoverOfSales = Scenario{
	Name: "failover-of-sales",
	Title: "The master of Redis is killed after a sale (SIGKILL). The Redis replica, which has not received the sale, " +
		"is promoted.",
	Applies: func(s scenario.Strategy) string {
		if s.Baseline() || s.Stores[0] != oracle.Redis {
			return "it does not sell in Redis"
		}
		return ""
	},
	Claim:  failoverLosesSales,
	Deploy: onRedis(redisPair),
	Play: func(ctx context.Context, s *Stage) error {
		master, replica := s.redis.master, s.redis.replica
		err := eventually(ctx, "the Redis replica has the stock", func() (bool, error) {
			stock, err := s.stockAt(ctx, replica)
			return stock == units, err
		})
		if err != nil {
			return err
		}
		if err := s.cutReplication(ctx); err != nil {
			return err
		}
		lose, err := s.buyUnwritten(ctx, order{client: "A", at: s.Victim})
		defer lose()
		if err != nil {
			return err
		}
		before, err := s.stockAt(ctx, master)
		if err != nil {
			return err
		}
		if err := s.Together(ctx, replicaPromoted, s.redis.failOver); err != nil {
			return err
		}
		lose()
		after, err := s.stockAt(ctx, replica)
		switch {
		case err != nil:
			return err
		case after != units:
			return fmt.Errorf("the stock on the Redis replica is %d, as if it had received the sale of client A", after)
		}
		s.Provef("A had bought when %s; the stock was %d before, and is %d after that", replicaPromoted, before, after)
		return s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now())
	},
}

// buyUnwritten buys as mustBuy does. If the strategy writes the sale to MySQL later, it waits until the sale is on its
// way there. lose keeps it from arriving.
func (s *Stage) buyUnwritten(ctx context.Context, o order) (lose func(), err error) {
	if !s.Strategy.WriteBehind {
		return func() {}, s.mustBuy(ctx, o)
	}
	write := o.at.MySQL.Catch(writesStream)
	if err = s.mustBuy(ctx, o); err == nil {
		err = arrive(ctx, write)
	}
	return func() { write.Cut(tcpproxy.BeforeRequest) }, err
}

// stockAt is the stock of the item on a server of Redis; 0 if it has none.
func (s *Stage) stockAt(ctx context.Context, at *servers.Redis) (int64, error) {
	client := openRedis(at.Addr)
	defer client.Close()
	stock, err := client.Get(ctx, fmt.Sprintf("%sstock:{%d}", s.Addresses.KeyPrefix, s.Item)).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return stock, err
}
