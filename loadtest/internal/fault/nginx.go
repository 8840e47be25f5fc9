package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// nginxScenarios are stories of a load balancer that does not know what became of a request.
var nginxScenarios = []Scenario{
	{
		Name:    "proxy-resends/post",
		Title:   "A replica's answer does not reach nginx, which never sends a POST again unless it is told to.",
		Applies: everyStrategy,
		Claim:   func(scenario.Strategy) Claim { return claim("sent-once", report.Safe) },
		Deploy:  behindNginx(false),
		Play: func(ctx context.Context, s *Stage) error {
			op, sent, err := s.loseAnswerToNginx(ctx)
			switch {
			case err != nil:
				return err
			case sent > 1:
				s.Failf("nginx sent the request %d times", sent)
				return nil
			case op.Outcome != history.Unknown:
				return fmt.Errorf("nginx got no answer, and client A was told %q", op.Outcome)
			}
			s.Provef("the proxy cut nginx's connection when the replica's answer came; nginx did not send the request again")
			return nil
		},
	},
	{
		Name:    "proxy-resends/non-idempotent",
		Title:   "The same, and nginx is told to send a POST again (proxy_next_upstream non_idempotent).",
		Applies: everyStrategy,
		Claim:   retryClaim,
		Deploy:  behindNginx(true),
		Play: func(ctx context.Context, s *Stage) error {
			op, sent, err := s.loseAnswerToNginx(ctx)
			switch {
			case err != nil:
				return err
			case op.Outcome != history.Sold || sent != 2:
				return fmt.Errorf("nginx sent the request %d times, and A was told %q", sent, op.Outcome)
			}
			s.Provef("the proxy cut nginx's connection when the replica's answer came; nginx sent the request to the %s too",
				op.Replica)
			return nil
		},
	},
	zombieReplica,
}

// loseAnswerToNginx sends a request of client A through nginx, and loses the first answer of a replica on its way to
// nginx. It returns how A's request ended, and how often nginx sent it.
func (s *Stage) loseAnswerToNginx(ctx context.Context) (history.Op, int64, error) {
	var sent atomic.Int64
	count := func(m tcpproxy.Message) bool {
		if s.isRequest(m) {
			sent.Add(1)
		}
		return false
	}
	first := func(m tcpproxy.Message) bool { return s.isRequest(m) && sent.Load() == 1 }
	atVictim, atSurvivor := s.nginx.victim.Catch(count), s.nginx.survivor.Catch(count)
	defer atVictim.Release()
	defer atSurvivor.Release()
	victim, survivor := s.nginx.victim.Catch(first), s.nginx.survivor.Catch(first)
	defer victim.Release()
	defer survivor.Release()
	p := s.start(ctx, order{client: "A", through: s.nginx.URL})
	select {
	case <-victim.Arrived():
		victim.Cut(tcpproxy.BeforeReply)
	case <-survivor.Arrived():
		survivor.Cut(tcpproxy.BeforeReply)
	case <-p.done:
		return p.op, 0, errors.Join(p.err, errors.New("client A was answered before nginx had sent its request"))
	case <-ctx.Done():
		return p.op, 0, ctx.Err()
	}
	if err := p.wait(); err != nil {
		return p.op, 0, err
	}
	if sent.Load() > 1 {
		// To the judge, nginx is a client that was not answered and sent the request again.
		first := p.op
		first.Outcome, first.Replica, first.Error = history.Unknown, "", "the connection was cut"
		first.Remaining, first.Token, first.EnteredNS, first.LeftNS, first.Replayed = 0, 0, 0, 0, false
		s.record("nginx", first)
	}
	return p.op, sent.Load(), nil
}

// isRequest matches a request for the item on its way from nginx to a replica.
func (s *Stage) isRequest(m tcpproxy.Message) bool {
	return bytes.HasPrefix(m.Data, []byte("POST ")) && s.mentionsItem(m)
}

// zombieReplica is the story of a replica that everybody has given up, and that goes on.
var zombieReplica = Scenario{
	Name: "zombie-replica",
	Title: "A request reaches a replica that is stopped, the client sends it again through nginx, and the replica " +
		"goes on.",
	Applies: everyStrategy,
	Claim:   retryClaim,
	Missing: processStates,
	// The lease is longer than the replica is stopped. When it goes on, the requests of all cells come at once: on a slow
	// disk, 3 s are too short for their commits, and a request that is refused for want of time shows nothing.
	Deploy: behindNginx(false, "--lease=20s", "--request-timeout="+zombieTimeout.String(),
		"--lock-wait="+(zombieTimeout/2).String()),
	Play: func(ctx context.Context, s *Stage) error {
		err := s.Together(ctx, "the victim is stopped", func(ctx context.Context) error { return stop(ctx, s.Victim) })
		if err != nil {
			return err
		}
		// Not through nginx, which sends a replica that is stopped no second request while the other one answers.
		first, stuck, err := s.sendThrough(ctx, "http://"+s.nginx.victim.Addr(), order{client: "A", timeout: zombieTimeout})
		if err != nil {
			return err
		}
		if !stuck {
			return errors.New("the request of A was answered before it reached the victim")
		}
		s.Provef("/proc says that the victim is stopped, and the proxy has handed it the request of client A")
		again := s.again()
		again.timeout = zombieTimeout
		sent, err := s.sendUntilSold(ctx, again)
		if err != nil {
			return err
		}
		waiting := append([]*pending{first}, sent...)
		err = s.Mend(ctx, "the victim goes on", func(context.Context) error { return s.Victim.Continue() })
		if err != nil {
			return err
		}
		served := false
		for _, p := range waiting {
			if err := p.wait(); err != nil {
				return err
			}
			served = served || p.op.Outcome == history.Sold
		}
		if !served {
			return fmt.Errorf("the victim has served none of %d requests since it went on: %s", len(waiting),
				waiting[0].op.Error)
		}
		return nil
	},
}

// zombieTimeout is how long a client waits for a replica that is stopped meanwhile.
const zombieTimeout = 20 * time.Second

// sendUntilSold sends a request through nginx until it is sold. It returns the attempts that were not answered, because
// they reached the victim, which is stopped.
func (s *Stage) sendUntilSold(ctx context.Context, o order) (waiting []*pending, err error) {
	for {
		p, stuck, err := s.sendThrough(ctx, s.nginx.URL, o)
		switch {
		case err != nil:
			return waiting, err
		case stuck:
			waiting = append(waiting, p)
		case p.op.Outcome == history.Sold:
			return waiting, nil
		}
	}
}

// sendThrough sends a request to a URL. It returns when the request is answered or stuck at the victim, which is
// stopped.
func (s *Stage) sendThrough(ctx context.Context, url string, o order) (p *pending, stuck bool, err error) {
	reached := s.nginx.victim.Catch(s.isRequest)
	defer reached.Release()
	o.through = url
	p = s.start(ctx, o)
	select {
	case <-reached.Arrived():
		s.Stepf("the request of %s reaches the victim", o.client)
		return p, true, nil
	case <-p.done:
		return p, false, p.err
	case <-ctx.Done():
		return p, false, ctx.Err()
	}
}

// front is an nginx in front of both replicas.
type front struct {
	*topology.Balancer
	victim, survivor *tcpproxy.Proxy // between nginx and the replicas
}

// behindNginx starts the replicas on the servers of the lab, and an nginx in front of them. If resend is set, nginx
// sends a POST again whose connection broke.
func behindNginx(resend bool, args ...string) func(context.Context, *Lab) (*Deployment, error) {
	return func(ctx context.Context, l *Lab) (*Deployment, error) {
		d, err := l.deploy(ctx, l.Topology.Addresses(), args...)
		if err != nil {
			return nil, err
		}
		if err := d.startNginx(ctx, resend); err != nil {
			return nil, errors.Join(err, d.stop(ctx))
		}
		return d, nil
	}
}

func (d *Deployment) startNginx(ctx context.Context, resend bool) (err error) {
	d.nginx = &front{}
	if d.nginx.victim, err = d.startProxy(d.Victim); err != nil {
		return err
	}
	if d.nginx.survivor, err = d.startProxy(d.Survivor); err != nil {
		return err
	}
	d.nginx.Balancer, err = topology.StartBalancer(ctx, resend, d.nginx.victim.Addr(), d.nginx.survivor.Addr())
	if err == nil {
		d.onStop(d.nginx.Stop)
	}
	return err
}

// startProxy starts a proxy in front of a replica.
func (d *Deployment) startProxy(r *topology.Isolated) (*tcpproxy.Proxy, error) {
	p, err := tcpproxy.Start(r.Address())
	if err == nil {
		d.onStop(func(context.Context) error { p.Close(); return nil })
	}
	return p, err
}
