package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// replicaScenarios are stories of a replica that ends while the other one goes on.
var replicaScenarios = []Scenario{shutdown, replicaKilled, bothKilled}

// Times of the replicas of these stories. A request may be parked for long on a busy machine.
const (
	shutdownTimeout = 20 * time.Second // of a request
	drainDelay      = time.Second
)

// shutdown is the story of a replica that is told to end, as at every deployment.
var shutdown = Scenario{
	Name:    "shutdown",
	Title:   "The replica that is deducting is told to stop (SIGTERM).",
	Applies: everyStrategy,
	Claim:   func(scenario.Strategy) Claim { return claim("finishes", report.Safe) },
	Deploy: deployWith("--lease="+shutdownTimeout.String(), "--request-timeout="+shutdownTimeout.String(),
		"--drain-timeout="+shutdownTimeout.String(), "--drain-delay="+drainDelay.String()),
	Play: func(ctx context.Context, s *Stage) error {
		holder, point, err := s.park(ctx, order{client: "A", at: s.Victim, timeout: shutdownTimeout})
		if err != nil {
			return err
		}
		err = s.Together(ctx, "the victim is told to stop, and answers 503 to /readyz", func(ctx context.Context) error {
			if err := s.Victim.Terminate(); err != nil {
				return err
			}
			return eventually(ctx, "/readyz answers 503", func() (bool, error) {
				status, _, err := s.Victim.Readiness(ctx)
				return status == http.StatusServiceUnavailable, err
			})
		})
		if err != nil {
			return err
		}
		s.Provef("A was at %s when the victim got SIGTERM, and /readyz has answered 503 since", point)
		if err := s.resume(ctx, holder); err != nil {
			return err
		}
		answered := time.Now()
		if holder.op.Outcome != history.Sold {
			return s.notFinished(holder.op)
		}
		// If A had left its lock behind, B would have to wait for the lease to end.
		return s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, answered)
	},
}

// notFinished records that A was not sold anything. That is the fault of the shutdown, unless A's time was over.
func (s *Stage) notFinished(a history.Op) error {
	if took := time.Duration(a.ReceivedNS - a.SentNS); took >= shutdownTimeout {
		return fmt.Errorf("the request of client A took %v, and may take %v", took, shutdownTimeout)
	}
	s.Failf("A was inside when the victim was told to stop, and was not sold anything: %s", a.Error)
	return nil
}

// replicaKilled is the story of a replica that is killed while many clients buy.
var replicaKilled = Scenario{
	Name:  "replica-killed",
	Title: "One of two replicas is killed while clients buy through nginx (SIGKILL).",
	Applies: func(s scenario.Strategy) string {
		switch {
		case s.Claim.TwoReplicas != verify.ClaimCorrect:
			return "it loses updates even if no replica dies"
		case s.Claim.HolderCrash == "blocks-forever":
			return "it is blocked for ever, as holder-dies shows"
		}
		return ""
	},
	Claim: holderDies.Claim,
	Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
		d, err := l.deploy(ctx, l.Topology.Addresses(), withLease(lostLease)...)
		if err != nil {
			return nil, err
		}
		return d.behindNginx(ctx)
	},
	Play: playReplicaKilled,
}

// behindNginx starts nginx in front of both replicas, without proxies: it must see that the victim refuses connections.
// If that fails, it stops the deployment.
func (d *Deployment) behindNginx(ctx context.Context) (*Deployment, error) {
	balancer, err := topology.StartBalancer(ctx, false, d.Victim.Address(), d.Survivor.Address())
	if err != nil {
		return nil, errors.Join(err, d.stop(ctx))
	}
	d.onStop(balancer.Stop)
	d.nginx = &front{Balancer: balancer}
	return d, nil
}

func playReplicaKilled(ctx context.Context, s *Stage) error {
	if err := s.setManyUnits(ctx); err != nil {
		return err
	}
	c := &crowd{stage: s, sales: map[string]int{}}
	if err := c.buy(ctx, c.bothSell); err != nil {
		return err
	}
	// All are parked at the same time, or some leases would end before the victim is killed.
	err := s.together(ctx, report.Event, "both replicas have sold", func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	holder, point, err := s.park(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout})
	if err != nil {
		return err
	}
	earlier := c.asked.Load()
	over := make(chan error, 1)
	s.inBackground(func() { over <- c.buy(ctx, c.survivorSells) })
	err = eventually(ctx, "all users buy", func() (bool, error) { return c.asked.Load() >= earlier+crowdUsers, nil })
	if err != nil {
		return err
	}
	err = s.Together(ctx, "the victim is killed", func(context.Context) error { return s.Victim.Kill() })
	if err != nil {
		return err
	}
	c.killedNS.Store(monotonic.Now())
	if err := errors.Join(s.diedUnanswered(holder), <-over); err != nil {
		return err
	}
	c.report(point)
	return nil
}

// A crowd is several users who buy through nginx.
type crowd struct {
	stage    *Stage
	asked    atomic.Int64  // requests so far
	killedNS atomic.Int64  // when the victim was killed; 0: it is alive
	pace     time.Duration // pause of a user after each request

	mu    sync.Mutex
	ops   []history.Op
	sales map[string]int // by replica
	since int            // sales since the victim was killed
}

const (
	crowdUsers = 4
	crowdUnits = 1_000_000 // so many that the item never sells out
	crowdSales = 20        // of the survivor, after which the crowd leaves
)

// buy has every user buy one time after the other until the crowd has had enough.
func (c *crowd) buy(ctx context.Context, enough func() bool) error {
	var users sync.WaitGroup
	errs := make([]error, crowdUsers)
	for user := range crowdUsers {
		users.Go(func() {
			for errs[user] == nil && !enough() {
				errs[user] = c.buyOnce(ctx)
			}
		})
	}
	users.Wait()
	return errors.Join(errs...)
}

// bothSell reports whether both replicas have sold something.
func (c *crowd) bothSell() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sales) == 2
}

// survivorSells reports whether the survivor has sold enough since the victim was killed, or patience has passed.
func (c *crowd) survivorSells() bool {
	killed := c.killedNS.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	return killed > 0 && (c.since >= crowdSales || monotonic.Now()-killed > int64(patience))
}

func (c *crowd) buyOnce(ctx context.Context) error {
	client := fmt.Sprintf("user-%d", c.asked.Add(1))
	op, err := c.stage.exchange(ctx, order{client: client, through: c.stage.nginx.URL})
	if err != nil {
		return err
	}
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
	return ctx.Err()
}

// report adds what the crowd did to the history, and says how long nobody could buy.
func (c *crowd) report(point string) {
	s, killed := c.stage, c.killedNS.Load()
	unknown, next := 0, int64(0)
	for _, op := range c.ops {
		switch {
		case op.Outcome == history.Unknown:
			unknown++
		case op.Outcome == history.Sold && op.ReceivedNS > killed && (next == 0 || op.ReceivedNS < next):
			next = op.ReceivedNS
		}
	}
	c.record()
	if unknown > crowdUsers {
		s.Failf("%d outcomes are unknown, but only %d users were buying", unknown, crowdUsers)
	}
	s.Provef("the victim was killed with A parked at %s; it had sold %d times, and the survivor %d times", point,
		c.sales["victim"], c.sales["survivor"])
	s.Stepf("%d users have sent %d requests, %d of them with an unknown outcome", crowdUsers, len(c.ops), unknown)
	if s.never = next == 0; s.never {
		next = monotonic.Now()
	}
	s.blocked = time.Duration(next - killed)
}

// record adds the requests of the crowd to the history.
func (c *crowd) record() {
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	c.stage.booked.Store(true)
	c.stage.ops = append(c.stage.ops, c.ops...)
}

// setManyUnits puts so many units of the item on sale that it never sells out.
func (s *Stage) setManyUnits(ctx context.Context) error {
	s.booked.Store(false) // a crowd records its requests later
	if err := s.setStock(ctx, crowdUnits, s.Item); err != nil {
		return err
	}
	if err := s.addStock(ctx, s.Item); err != nil {
		return err
	}
	s.run.Set[s.Item] = crowdUnits
	return nil
}
