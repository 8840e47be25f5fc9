package fault

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/oracle"
)

// holderPlays are scenarios of a request that is held in its critical section while something happens to its replica,
// or to its lock.
var holderPlays = map[string]func(*Stage){
	"holder-dies": func(s *Stage) {
		a := s.hold(patiently(to(s.Victim, "A", 1)), messages.Commit)
		blocked := s.blockedSince(s.killVictim)
		a.die()
		s.Provef("the victim was killed while a proxy held %s, which has reached no server", a.what)
		s.buy(to(s.Survivor, "B", 2), blocked)
	},
	"holder-pauses": playHolderPauses,
	"long-work": func(s *Stage) {
		a := s.hold(patiently(to(s.Victim, "A", 1)), messages.Read)
		asked := 0
		for entered := time.Now(); s.between(entered, time.Now()) < 3*s.On.Lease; asked++ {
			if b := s.send(to(s.Survivor, fmt.Sprintf("B%d", asked), 2)); b.Outcome == history.Sold {
				s.Failf("B was granted the lock while A, who had it, was inside")
				a.land()
				return
			}
		}
		s.Provef("a proxy held %s for three leases of %v, and B was refused %d times meanwhile", a.what, s.On.Lease,
			asked)
		if op := a.land(); op.Outcome != history.Sold {
			s.Failf("A has lost its lock while it worked: %s", op.Error)
		}
		s.buyNow("C", 3)
	},
	"black-hole": func(s *Stage) {
		a := s.hold(patiently(to(s.Victim, "A", 1)), messages.Read)
		if renewedInRedis(s.Strategy) {
			s.awaitRenewal()
		}
		s.strike("everything between the victim and the locks' servers is swallowed", func(context.Context) error {
			for _, proxy := range []*tcpproxy.Proxy{s.Victim.Redis, s.Victim.Etcd, s.Victim.ZooKeeper} {
				proxy.BlackHole()
			}
			return nil
		})
		cut := time.Now()
		a.isUnanswered("its connections were cut off")
		s.Provef("A was inside, with %s held, when the proxies began to swallow; nobody could release its lock", a.what)
		s.sellAfter(a, cut)
	},
	"etcd-partition": func(s *Stage) {
		a := s.hold(patiently(to(s.Victim, "A", 1)), messages.Read)
		s.strike("the leader of etcd is cut off from the other members", s.etcd.cutOffLeader)
		cut := time.Now()
		a.isUnanswered("the leader was cut off")
		elected := s.meanwhile(func() {
			leader, term, err := s.etcd.awaitElection(s.ctx)
			s.check(err)
			s.Provef("A was inside when the leader of term %d was cut off; the others have elected %s, in term %d",
				s.etcd.status.Term, leader.Name, term)
		})
		s.sellAfter(a, cut)
		elected()
	},
	"clock-jumps/back": func(s *Stage) {
		a := s.hold(to(s.Victim, "A", 1), messages.Commit)
		// The victim first: a renewal would set the end of the lease by the new clock.
		s.strike("the victim is killed, and the clock of Redis is set back by an hour", func(ctx context.Context) error {
			if err := s.Victim.Kill(); err != nil {
				return err
			}
			return s.redis.master.SetClock(ctx, -clockJump)
		})
		struck := time.Now()
		rest := s.keyPTTL()
		s.requiref(rest >= pttl(clockJump), "A's lock had ended before the clock was set back: its PTTL is %s", rest)
		s.Provef("A was inside; TIME is an hour behind, and the PTTL of A's lock of %v is %s", s.On.Lease, rest)
		a.die()
		// Long enough to see that the lock does not end with its lease.
		if s.tryToBuy(to(s.Survivor, "B", 2), struck, s.On.Lease+time.Second) {
			return
		}
		s.giveUp(struck)
		s.jump("the clock of Redis is set right", 0)
		s.send(to(s.Survivor, "C", 1))
	},
	"shutdown": func(s *Stage) {
		holder := s.holdBesideOthers(order{client: "A", at: s.Victim, timeout: s.On.RequestTimeout}, messages.Commit)
		since := time.Now()
		s.strike("the victim is told to stop, and answers 503 to /readyz", func(ctx context.Context) error {
			if err := s.Victim.Terminate(); err != nil {
				return err
			}
			return eventually(ctx, "/readyz answers 503", func() (bool, error) {
				status, _, err := s.Victim.Readiness(ctx)
				return status == http.StatusServiceUnavailable, err
			})
		})
		s.Provef("a proxy held %s when the victim got SIGTERM, and /readyz has answered 503 since", holder.what)
		took := time.Since(since)
		// The service waits a little longer for a reply of Redis.
		s.requiref(s.Store != oracle.Redis || took <= 2500*time.Millisecond,
			"the client of Redis may have given up: its message was held for %v", took)
		a := holder.land()
		took = time.Duration(a.ReceivedNS - a.SentNS)
		s.requiref(a.Outcome == history.Sold || took < s.On.RequestTimeout,
			"the request of client A took %v, and may take %v", took, s.On.RequestTimeout)
		if a.Outcome != history.Sold {
			s.Failf("A was inside when the victim was told to stop, and was not sold anything: %s", a.Error)
			return
		}
		// If A had left its lock behind, B would have to wait for the lease to end.
		s.buyNow("B", 2)
	},
}

// blockedSince has a fault strike, and returns since when others are blocked by the holder: if its lock is a lease,
// since before the fault, because the other cells may take a while to get ready.
func (s *Stage) blockedSince(strike func()) time.Time {
	inside := time.Now()
	strike()
	if hasLease(s.Strategy) {
		return inside
	}
	return time.Now()
}

// playHolderPauses stops the victim while A has read the stock, and the reply is held. If nobody is excluded before A
// has written, or MySQL has the last word, the COMMIT is held. Redis's client would not wait that long for a reply to a
// read: there, the write is held.
func playHolderPauses(s *Stage) {
	steps, pause := []messages.Step{messages.Read, messages.Write}, s.Strategy.Claim.HolderPause
	switch {
	case pause == "blocks", s.Strategy.WriteThrough:
		steps = []messages.Step{messages.Commit}
	case s.Store == oracle.Redis:
		steps = []messages.Step{messages.Write}
	}
	a := s.holdBesideOthers(patiently(to(s.Victim, "A", 1)), steps...)
	blocked := s.blockedSince(s.stopVictim)
	a.isUnanswered("the victim was stopped")
	s.Provef("/proc says that the victim is stopped, while a proxy holds %s", a.what)
	limit := patience
	if pause == "blocks" {
		limit = s.On.Lease + time.Second // long enough to see that the lock does not end with a lease
	}
	// B buys another count than A: if both left the same stock, nobody could tell that one was lost.
	sold := s.tryToBuy(to(s.Survivor, "B", 2), blocked, limit)
	s.continueVictim()
	// When it answers, it has also had time to find that its lease has ended. It must not write after that.
	_, _, err := s.Victim.Readiness(s.ctx)
	s.check(err)
	a.land()
	if !sold {
		s.buy(to(s.Survivor, "B-again", 2), blocked)
	}
	s.send(to(s.Survivor, "C", 1))
}

// sellAfter has B buy while A, which is cut off since then, waits for the reply to its read. Then the reply comes: A
// writes, unless it has found that its lease has ended.
func (s *Stage) sellAfter(a held, cut time.Time) {
	s.buy(to(s.Survivor, "B", 2), cut)
	if s.never { // its replica has found by itself that the lease has ended
		s.eventually("A is answered", a.answered)
	}
	a.land()
	s.send(to(s.Survivor, "C", 1))
}
