package fault

import (
	"context"
	"fmt"
	"time"

	"stock/internal/servers"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
)

// masterPlays are scenarios of a Redis that fails although a Redis replica or other masters have the lock, and of locks
// that are lost otherwise.
var masterPlays = map[string]func(*Stage){
	"wait-for-replica/healthy": func(s *Stage) {
		a := s.holdWrite()
		s.forget(a, s.redis.replica, replicaPromoted, s.redis.failOver)
		sold := s.askMeanwhile(a)
		// Until the promoted one has a Redis replica, it grants nothing.
		s.mend("the old master is back, as a Redis replica of the promoted one", s.redis.rejoin)
		s.buyOn(sold)
	},
	"wait-for-replica/cut": func(s *Stage) {
		s.cutReplication()
		waits := s.catch(s.Victim.Redis, messages.Mentions("wait"))
		a := s.start(to(s.Victim, "A", 1)).caught(waits)
		waits.Release()
		asked := time.Now()
		if a.wait().Outcome == history.Sold {
			s.Failf("A was granted the lock while its Redis replica received nothing")
			return
		}
		s.lacksLock(s.redis.replica)
		s.Provef("A had set the lock and sent WAIT, and the Redis replica has not received the lock")
		s.buyWithin(to(s.Survivor, "B", 2), asked, 4*time.Second) // for a few tries
	},
	"clock-jumps/ahead": twoHold(func(s *Stage) {
		rest := s.keyPTTL()
		s.jump("the clock of Redis jumps ahead by an hour", clockJump)
		if rest > s.busyLease() && s.keyPTTL() == noKey {
			s.Provef("TIME is an hour ahead; A's lock had a PTTL of %s, and is gone", rest)
		}
	}),
	"redlock-clock-jumps": twoHold(func(s *Stage) {
		before := s.votes()
		s.toMasters("the clocks of masters 1 and 2 jump ahead by an hour",
			func(ctx context.Context, r *servers.Redis) error { return r.SetClock(ctx, clockJump) }, 1, 2)
		if after := s.votes(); len(before) == 3 && len(after) == 1 && after[3] > s.busyLease() {
			s.Provef("TIME is an hour ahead on masters 1 and 2, and A's votes there are gone; on master 3, the PTTL of "+
				"A's vote is %s", after[3])
		}
	}),
	"redlock-restarts-empty": twoHold(func(s *Stage) {
		before := s.votes()
		s.startMasters("master 2 restarts without its data, and master 3 starts", 2, 3)
		if after := s.votes(); voters(before) == "{1, 2}" && voters(after) == "{1}" {
			s.Provef("masters {1, 2} have voted for A; after the restarts, {1} remembers it, with a PTTL of %s", after[1])
		}
	}, 3),
	"redlock-restarts-late": restartedAround(func(s *Stage) {
		s.killMasters("master 2 is killed", 2)
		s.startMasters("master 3 starts", 3)
	}, func(s *Stage) {
		s.eventually("the vote of master 1 has expired", func() bool { return s.votes()[1] == 0 })
		s.startMasters("the lease has ended; master 2 starts without its data", 2)
	}),
	"redlock-restarts-with-aof": restartedAround(func(s *Stage) {
		s.startMasters("master 2 restarts from its append-only file, and master 3 starts", 2, 3)
	}, func(*Stage) {}),
	"redlock-masters-lost/one-of-three":  mastersLost(1),
	"redlock-masters-lost/two-of-five":   mastersLost(2),
	"redlock-masters-lost/three-of-five": mastersLost(3),
	"multi-master-down": func(s *Stage) {
		s.refuseInside(1, func() { s.killMasters("master 3 is killed", 3) }, 3)
	},
	"multi-restarts-empty/one": func(s *Stage) {
		s.refuseInside(1, func() { s.startMasters("master 3 restarts without its data", 3) })
	},
	"multi-restarts-empty/all": twoHold(func(s *Stage) {
		before := s.votes()
		s.startMasters("all masters restart without their data", 1, 2, 3)
		if len(before) == 3 && len(s.votes()) == 0 {
			s.Provef("A had the votes of all masters, and none remembers it")
		}
	}),
	"pass-after-loss": func(s *Stage) {
		s.send(to(s.Survivor, "Z", 1)) // so that it knows the item, and the first thing that it reads is under the lock
		a := s.hold(to(s.Victim, "A", 1), messages.Write)
		b := s.start(to(s.Victim, "B", 2))
		s.deleteLock()
		read := s.catch(s.Survivor.MySQL, s.ReadsStock)
		write := s.catch(s.Survivor.MySQL, s.WritesStock)
		c := s.start(to(s.Survivor, "C", 3)).caught(read)
		pass := s.catch(s.Victim.Redis, s.PassesLock)
		a.Release()
		a.caught(pass)
		read.Release() // A has written
		c.caught(write)
		s.Provef("C was inside when A, who had lost the lock, passed it to B in a message of %d bytes", pass.Bytes())
		asks := s.seen(messages.Mentions(s.LockKey()), s.Victim.Redis)
		pass.Release()
		if !b.answeredBefore(asks) {
			s.Stepf("B asks Redis for the lock")
		}
		a.wait()
		write.land()
		c.wait()
		b.wait()
	},
}

// twoHold plays the scenario of servers that forget the lock of a holder whose write is on its way, so that B is
// granted it. The masters with the given numbers are killed before.
func twoHold(forget func(*Stage), down ...int) func(*Stage) {
	return func(s *Stage) {
		for _, n := range down {
			s.killMasters(fmt.Sprintf("master %d is killed", n), n)
		}
		a := s.holdWrite()
		forget(s)
		s.buyBeforeWrite(a)
	}
}

// restartedAround plays the scenario of masters of which some restart while A holds the lock, and others while B waits.
func restartedAround(held, waited func(*Stage)) func(*Stage) {
	return func(s *Stage) {
		s.killMasters("master 3 is killed", 3)
		a := s.hold(patiently(to(s.Victim, "A", 1)), messages.Read)
		granted := time.Now()
		before := s.votes()
		held(s)
		if after := s.votes(); voters(before) == "{1, 2}" && after[1] > 0 {
			s.Provef("masters {1, 2} have voted for A; the votes after the restarts: %s", voters(after))
		}
		bought := s.meanwhile(func() { s.buy(to(s.Survivor, "B", 2), granted) })
		waited(s)
		bought()
		a.land() // its lease has ended by its own clock: it does not write
		s.send(to(s.Survivor, "C", 1))
	}
}

// mastersLost plays the scenario of masters of Redlock that die while a holder is inside. A minority is not missed.
func mastersLost(lost int) func(*Stage) {
	return func(s *Stage) {
		numbers := []int{1, 2, 3}[:lost]
		what := fmt.Sprintf("%d of %d masters are killed", lost, len(s.masters))
		missed := numbers
		if lost <= len(s.masters)/2 {
			missed = nil
		}
		s.refuseInside(lost, func() { s.killMasters(what, numbers...) }, missed...)
	}
}

// refuseInside has masters break while A is inside, which loses as many votes, and B ask in vain. C buys when A has
// left, or asks in vain until the masters that are missed have been started again.
func (s *Stage) refuseInside(lost int, strike func(), missed ...int) {
	a := s.holdWrite()
	before := s.votes()
	strike()
	after := s.votes()
	b := s.send(to(s.Survivor, "B", 2))
	if masters := len(s.masters); len(before) == masters && len(after) == masters-lost && b.Outcome != history.Sold {
		s.Provef("A was inside with the votes of all masters, and then with those of %s; B was refused meanwhile",
			voters(after))
	}
	a.land()
	since := time.Now()
	if missed == nil {
		s.buy(to(s.Survivor, "C", 3), since)
	} else if !s.tryToBuy(to(s.Survivor, "C", 3), since, lease) {
		s.giveUp(since)
		s.startMasters("what was killed starts again, without its data", missed...)
		s.send(to(s.Survivor, "D", 1))
	}
}
