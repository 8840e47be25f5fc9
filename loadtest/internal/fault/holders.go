package fault

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// holderScenarios are stories of a request that is held in its critical section while something happens to its replica,
// or to its lock.
var holderScenarios = []Scenario{
	{
		Name: "holder-pauses",
		Title: "The replica is stopped inside its critical section until all leases have ended, and then goes on " +
			"(SIGSTOP, SIGCONT).",
		Applies: func(s scenario.Strategy) string {
			if s.Claim.HolderPause == "loses-updates" && s.Claim.LateCaveat != "" {
				return "whether the sale is lost depends on whether a new second begins meanwhile"
			}
			return everyStrategy(s)
		},
		Claim:     pauseClaim,
		Practices: []Practice{script("check-then-write", "loses-updates", report.Unsafe)},
		On:        Setting{Args: withLease(pauseLease)},
		Play:      playHolderPauses,
	},
	scripted("lock-connection-killed",
		"The connection that holds GET_LOCK is lost while its holder is between read and write.",
		script("get-lock-new-connection", "works on another connection, and does not notice", report.Unsafe),
		script("get-lock-same-connection", "loses its connection to the stock with the lock", report.Safe)),
	{
		Name:    "long-work",
		Title:   "The holder works for three leases, and meanwhile another replica asks for the lock again and again.",
		Applies: only(renewed...),
		Claim:   always("stays the holder for as long as it works", report.Safe),
		On:      Setting{Args: withLease(workLease, lockWait(workLease))},
		Play: func(s *Stage) {
			a := s.hold(patiently(to(s.Victim, "A", 1)), Read)
			asked := 0
			for entered := time.Now(); s.between(entered, time.Now()) < 3*workLease; asked++ {
				if b := s.send(to(s.Survivor, fmt.Sprintf("B%d", asked), 2)); b.Outcome == history.Sold {
					s.Failf("B was granted the lock while A, who had it, was inside")
					a.land()
					return
				}
			}
			s.Provef("a proxy held %s for three leases of %v, and B was refused %d times meanwhile", a.what, workLease,
				asked)
			if op := a.land(); op.Outcome != history.Sold {
				s.Failf("A has lost its lock while it worked: %s", op.Error)
			}
			s.buyNow("C", 3)
		},
	}, {
		Name:    "black-hole",
		Title:   "The network between a holder and its lock's server swallows everything, after a renewal.",
		Applies: only(append([]string{"lock-etcd", "lock-zookeeper"}, renewedInRedis...)...),
		Claim:   always("gives up before its lease ends on the server", report.Blocked),
		On:      Setting{Args: patient()},
		Practices: []Practice{
			script("renew-until-error", "relies on its lock until a renewal fails", report.Unsafe),
		},
		Play: func(s *Stage) {
			a := s.hold(patiently(to(s.Victim, "A", 1)), Read)
			if slices.Contains(renewedInRedis, s.Strategy.Name) {
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
	}, {
		Name: "etcd-partition",
		Title: "The leader of three etcd members is cut off from the others. The holder reaches nobody but that leader, " +
			"and the next buyer nobody but the others.",
		Applies: only("lock-etcd"),
		Claim:   always("gives up before the majority grants the lock again", report.Blocked),
		On:      Setting{Locks: threeEtcdApart, Args: patient()},
		Play: func(s *Stage) {
			a := s.hold(patiently(to(s.Victim, "A", 1)), Read)
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
	}, {
		Name:    "clock-jumps/back",
		Title:   "A holder dies, and the clock of Redis is set back by an hour.",
		Applies: leaseInRedis,
		Claim:   always("blocked until the clock has caught up", report.Unavailable),
		On:      Setting{Redis: clockedRedis, Args: withLease(pauseLease)},
		Play: func(s *Stage) {
			a := s.hold(to(s.Victim, "A", 1), Commit)
			// The victim first: a renewal would set the end of the lease by the new clock.
			s.strike("the victim is killed, and the clock of Redis is set back by an hour", func(ctx context.Context) error {
				if err := s.Victim.Kill(); err != nil {
					return err
				}
				return s.setClock(ctx, s.redis.master, -clockJump)
			})
			struck := time.Now()
			rest := s.keyPTTL()
			s.requiref(rest >= pttl(clockJump), "A's lock had ended before the clock was set back: its PTTL is %s", rest)
			s.Provef("A was inside; TIME is an hour behind, and the PTTL of A's lock of %v is %s", pauseLease, rest)
			a.die()
			// Long enough to see that the lock does not end with its lease.
			if s.tryToBuy(to(s.Survivor, "B", 2), struck, pauseLease+time.Second) {
				return
			}
			s.giveUp(struck)
			s.jump("the clock of Redis is set right", 0, s.redis.master)
			s.send(to(s.Survivor, "C", 1))
		},
	}, {
		Name:    "shutdown",
		Title:   "The replica that is deducting is told to stop (SIGTERM).",
		Applies: everyStrategy,
		Claim:   always("finishes", report.Safe),
		On: Setting{Args: []string{"--lease=" + shutdownTimeout.String(), "--request-timeout=" + shutdownTimeout.String(),
			"--drain-timeout=" + shutdownTimeout.String(), "--drain-delay=" + drainDelay.String()}},
		Play: func(s *Stage) {
			holder := s.holdBesideOthers(order{client: "A", at: s.Victim, timeout: shutdownTimeout}, Commit)
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
			s.requiref(s.Store != oracle.Redis || took <= redisTimeout,
				"the client of Redis may have given up: its message was held for %v", took)
			a := holder.land()
			took = time.Duration(a.ReceivedNS - a.SentNS)
			s.requiref(a.Outcome == history.Sold || took < shutdownTimeout,
				"the request of client A took %v, and may take %v", took, shutdownTimeout)
			if a.Outcome != history.Sold {
				s.Failf("A was inside when the victim was told to stop, and was not sold anything: %s", a.Error)
				return
			}
			// If A had left its lock behind, B would have to wait for the lease to end.
			s.buyNow("B", 2)
		},
	},
}

// holderDies is the story of a replica that is killed inside the critical section.
var holderDies = Scenario{
	Name:    "holder-dies",
	Title:   "The replica that is deducting is killed inside its critical section (SIGKILL).",
	Applies: everyStrategy,
	Claim:   func(s scenario.Strategy) Claim { return catalogued(s.Claim.HolderCrash) },
	On:      Setting{Args: withLease(pauseLease)},
	Play: func(s *Stage) {
		a := s.hold(patiently(to(s.Victim, "A", 1)), Commit)
		blocked := s.blockedSince(s.killVictim)
		a.die()
		s.Provef("the victim was killed while a proxy held %s, which has reached no server", a.what)
		s.buy(to(s.Survivor, "B", 2), blocked)
	},
}

// blockedSince has a fault strike, and returns since when others are blocked by the holder: if its lock is a lease,
// since before the fault, because the other cells may take a while to get ready.
func (s *Stage) blockedSince(strike func()) time.Time {
	inside := time.Now()
	strike()
	if s.Strategy.Claim.HolderCrash == "blocks-until-lease-ends" {
		return inside
	}
	return time.Now()
}

func pauseClaim(s scenario.Strategy) Claim {
	words := s.Claim.HolderPause
	switch {
	case words == "blocks" && s.Claim.LateCaveat != "":
		return claim(words+", "+s.Claim.LateCaveat, report.Safe, report.Blocked)
	case words == "blocks", words != "loses-updates" && s.Claim.HolderCrash == "blocks-until-lease-ends":
		return claim(words, report.Blocked)
	}
	return catalogued(words)
}

// playHolderPauses stops the victim while A has read the stock, and the reply is held. If nobody is excluded before A
// has written, or MySQL has the last word, the COMMIT is held. Redis's client would not wait that long for a reply to a
// read: there, the write is held.
func playHolderPauses(s *Stage) {
	steps, pause := []Step{Read, Write}, s.Strategy.Claim.HolderPause
	switch {
	case pause == "blocks", s.Strategy.WriteThrough:
		steps = []Step{Commit}
	case s.Store == oracle.Redis:
		steps = []Step{Write}
	}
	a := s.holdBesideOthers(patiently(to(s.Victim, "A", 1)), steps...)
	blocked := s.blockedSince(s.stopVictim)
	a.isUnanswered("the victim was stopped")
	s.Provef("/proc says that the victim is stopped, while a proxy holds %s", a.what)
	limit := patience
	if pause == "blocks" {
		limit = pauseLease + time.Second // long enough to see that the lock does not end with a lease
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

// workLease lets a renewal come two seconds late on a busy machine.
const workLease = 3 * time.Second

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

// Times of the replicas of shutdown. A request may be held for long on a busy machine.
const (
	shutdownTimeout = 20 * time.Second // of a request
	drainDelay      = time.Second
	redisTimeout    = 2500 * time.Millisecond // the service waits a little longer for a reply of Redis
)
