package fault

import (
	"fmt"
	"sync/atomic"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/traffic"
)

// retryPlays are scenarios of a client that does not know what became of its request, and sends it again, and of sales
// whose last step fails.
var retryPlays = map[string]func(*Stage){
	"client-retries": func(s *Stage) {
		front := s.proxyTo(s.Victim.Address())
		front.Cut(1, tcpproxy.BeforeReply)
		first := s.send(order{client: "A", at: s.Victim, through: "http://" + front.Addr()})
		stock := s.stock(s.Store)
		s.requiref(first.Outcome == history.Unknown && !front.Armed() && stock == units-1,
			"client A was told %q, and %s has %d units", first.Outcome, s.Store, stock)
		s.Provef("the proxy in front of the victim cut the connection when the answer came; %s has %d units", s.Store, stock)
		s.send(s.again())
	},
	"proxy-resends/post": func(s *Stage) {
		op, sent := s.loseAnswerToNginx()
		switch {
		case sent > 1:
			s.Failf("nginx sent the request %d times", sent)
		case op.Outcome != history.Unknown:
			s.failf("nginx got no answer, and client A was told %q", op.Outcome)
		default:
			s.Provef("the proxy cut nginx's connection when the replica's answer came; nginx did not send the request again")
		}
	},
	"proxy-resends/non-idempotent": func(s *Stage) {
		op, sent := s.loseAnswerToNginx()
		s.requiref(op.Outcome == history.Sold && sent == 2,
			"nginx sent the request %d times, and A was told %q", sent, op.Outcome)
		s.Provef("the proxy cut nginx's connection when the replica's answer came; nginx sent the request to the %s too",
			op.Replica)
	},
	"second-store/unknown": func(s *Stage) {
		commit := s.catch(s.Victim.MySQL, s.Decides())
		a := s.start(to(s.Victim, "A", 1)).caught(commit)
		commit.Cut(tcpproxy.BeforeReply)
		a.wait()
		s.Provef("the proxy cut the connection after A's last message (%d bytes) arrived; MySQL has %d units",
			commit.Bytes(), s.stock(oracle.MySQL))
		s.buyNow("B", 2)
	},
	"second-store/refuses": func(s *Stage) {
		s.whileLocked(s.Item, func() {
			if a := s.send(to(s.Victim, "A", 1)); a.Outcome == history.Busy {
				s.Provef("another transaction had locked the row, and A was refused: %s", a.Error)
			}
		})
		s.buyNow("B", 2)
	},
	"commit-unknown": func(s *Stage) {
		commit := s.catch(s.StoreProxy(s.Victim.Proxies), s.Decides())
		first := s.start(to(s.Victim, "A", 1)).caught(commit)
		commit.Cut(cuts[s.variant()])
		left := map[string]int64{"before": units, "after": units - 1}[s.variant()]
		told, stock := first.wait().Outcome, s.stock(s.Store)
		s.requiref(told == history.Unknown && stock == left, "client A was told %q, and MySQL has %d units", told, stock)
		s.Provef("the proxy cut the connection %s the sale's %d bytes reached MySQL, which now has %d units",
			s.variant(), commit.Bytes(), stock)
		s.buy(s.again(), time.Now())
	},
	"reservation-unknown": func(s *Stage) {
		s.run.Reserves = true
		held := s.reserve("A", roundTime)
		confirmation := s.catch(s.Victim.MySQL, messages.Confirms)
		confirmed := s.meanwhile(func() { s.call(s.Victim, traffic.About(held, history.Confirm, false)) })
		confirmation.arrive()
		confirmation.Cut(cuts[s.variant()])
		confirmed()
		inspect := s.call(s.Survivor, traffic.About(held, history.Inspect, false))
		s.call(s.Survivor, traffic.About(held, history.Confirm, true))
		s.Provef("the proxy cut the connection %s the confirmation (%d bytes) arrived; then the reservation is %s",
			s.variant(), confirmation.Bytes(), inspect.State)
	},
	"batch-unknown": func(s *Stage) {
		proxy := s.StoreProxy(s.Victim.Proxies)
		before := s.catch(proxy, s.Decides())
		a := s.start(to(s.Victim, "A", 1)).caught(before)
		members := make([]*pending, batchSize)
		for i := range members {
			members[i] = s.start(to(s.Victim, fmt.Sprintf("B%d", i+1), 1))
		}
		time.Sleep(gathering)
		commit := s.catch(proxy, s.DecidesBatch())
		before.Release()
		a.wait()
		commit.arrive()
		commit.Cut(cuts[s.variant()])
		unknown := 0
		for _, b := range members {
			if b.wait().Outcome == history.Unknown {
				unknown++
			}
		}
		if unknown > 1 {
			s.Provef("%d requests have an unknown outcome, because one connection was cut at a message of %d bytes",
				unknown, commit.Bytes())
		}
		s.buyNow("C", 1)
	},
}

// again is A's request, which is sent again to the survivor.
func (s *Stage) again() order {
	return order{client: "A, again,", name: "A", at: s.Survivor, again: s.Strategy.Idempotent}
}

// cuts are the points at which a connection is cut: before a message has reached its server, or after, so that the
// reply is lost.
var cuts = map[string]tcpproxy.CutPoint{"before": tcpproxy.BeforeRequest, "after": tcpproxy.BeforeReply}

// loseAnswerToNginx sends a request of client A through nginx, and loses the first answer of a replica on its way to
// nginx. It returns how A's request ended, and how often nginx sent it.
func (s *Stage) loseAnswerToNginx() (history.Op, int64) {
	var sent atomic.Int64
	count := func(m tcpproxy.Message) bool {
		if s.IsRequest(m) {
			sent.Add(1)
		}
		return false
	}
	first := func(m tcpproxy.Message) bool { return s.IsRequest(m) && sent.Load() == 1 }
	s.catch(s.behind[0], count)
	s.catch(s.behind[1], count)
	victim, survivor := s.catch(s.behind[0], first), s.catch(s.behind[1], first)
	p := s.start(order{client: "A", through: s.nginx})
	select {
	case <-victim.Arrived():
		victim.Cut(tcpproxy.BeforeReply)
	case <-survivor.Arrived():
		survivor.Cut(tcpproxy.BeforeReply)
	case <-p.done:
		p.wait()
		s.failf("client A was answered before nginx had sent its request")
	}
	op := p.wait()
	if sent.Load() > 1 {
		// To the judge, nginx is a client that was not answered and sent the request again.
		first := op
		first.Outcome, first.Replica, first.Error = history.Unknown, "", "the connection was cut"
		first.Remaining, first.Token, first.EnteredNS, first.LeftNS, first.Replayed = 0, 0, 0, 0, false
		s.record("nginx", first)
	}
	return op, sent.Load()
}

const (
	batchSize = 3 // requests that are to share a commit
	// gathering is how long requests have to arrive in the queue of their replica, which nobody can see from outside.
	// That they did is proved by what became of them.
	gathering = 300 * time.Millisecond
)
