package fault

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// masterScenarios are stories of a Redis that fails although a Redis replica or other masters have the lock, and of
// locks that are lost otherwise.
var masterScenarios = []Scenario{
	{
		Name: "wait-for-replica/healthy",
		Title: "The master of Redis is killed while a holder is inside, and the Redis replica, which has confirmed the " +
			"lock (WAIT), is promoted.",
		Applies: only("lock-redis-wait"),
		Claim:   lockKept,
		On:      Setting{Redis: redisPair, Args: endless},
		Play: func(s *Stage) {
			a := s.holdWrite()
			s.forget(a, s.redis.replica, replicaPromoted, s.redis.failOver)
			sold := s.askMeanwhile(a)
			// Until the promoted one has a Redis replica, it grants nothing.
			s.mend("the old master is back, as a Redis replica of the promoted one", s.redis.rejoin)
			s.buyOn(sold)
		},
	}, {
		Name: "wait-for-replica/cut",
		Title: "The Redis replica receives nothing more. If the lock is granted all the same, the master is killed, and " +
			"the Redis replica is promoted.",
		Applies: only("lock-redis-wait"),
		Claim:   always("is not granted the lock without the Redis replica", report.Unavailable),
		// Requests wait longer for the lock than it waits for the Redis replica, so that it is what gives up.
		On: Setting{Redis: redisPair, Args: withLease(longLease, lockWait(3*waitLimit))},
		Practices: []Practice{{
			Name:  "wait-on-another-connection",
			Claim: claim("is told of what that connection had seen, which was before the lock", report.Unsafe),
			Play:  playWaitOnAnotherConnection,
		}},
		Play: func(s *Stage) {
			s.cutReplication()
			waits := s.catch(s.Victim.Redis, mentions("wait"))
			a := s.start(to(s.Victim, "A", 1)).caught(waits)
			waits.Release()
			asked := time.Now()
			if a.wait().Outcome == history.Sold {
				s.Failf("A was granted the lock while its Redis replica received nothing")
				return
			}
			s.lacksLock(s.redis.replica)
			s.Provef("A had set the lock and sent WAIT, and the Redis replica has not received the lock")
			s.buyWithin(to(s.Survivor, "B", 2), asked, 4*shortWait) // for a few tries
		},
	},
	twoHold("clock-jumps/ahead", "The clock of Redis jumps ahead by an hour while a holder's write is on its way.",
		leaseInRedis, Setting{Redis: clockedRedis}, func(s *Stage) {
			rest := s.keyPTTL()
			s.jump("the clock of Redis jumps ahead by an hour", clockJump, s.redis.master)
			if rest > clockBusy && s.keyPTTL() == noKey {
				s.Provef("TIME is an hour ahead; A's lock had a PTTL of %s, and is gone", rest)
			}
		}),
	twoHold("redlock-clock-jumps",
		"The clocks of two of three masters jump ahead by an hour while a holder's write is on its way.",
		only("lock-redlock"), Setting{Locks: clockedMasters}, func(s *Stage) {
			before := s.votes()
			s.jump("the clocks of masters 1 and 2 jump ahead by an hour", clockJump, s.masters[:2]...)
			if after := s.votes(); len(before) == 3 && len(after) == 1 && after[3] > clockBusy {
				s.Provef("TIME is an hour ahead on masters 1 and 2, and A's votes there are gone; on master 3, the PTTL of "+
					"A's vote is %s", after[3])
			}
		}),
	twoHold("redlock-restarts-empty",
		"A is granted the lock by masters 1 and 2 of three. Master 2 restarts without its data, and master 3, which "+
			"was down, starts.",
		only("lock-redlock"), Setting{Locks: redlockMasters(3, servers.RedisOptions{})}, func(s *Stage) {
			before := s.votes()
			s.startMasters("master 2 restarts without its data, and master 3 starts", 2, 3)
			if after := s.votes(); voters(before) == "{1, 2}" && voters(after) == "{1}" {
				s.Provef("masters {1, 2} have voted for A; after the restarts, {1} remembers it, with a PTTL of %s", after[1])
			}
		}, 3),
	restartedAround("redlock-restarts-late",
		"As redlock-restarts-empty, but master 2 starts only when every lease to which it may have agreed has ended.",
		servers.RedisOptions{}, func(s *Stage) {
			s.killMasters("master 2 is killed", 2)
			s.startMasters("master 3 starts", 3)
		}, func(s *Stage) {
			s.eventually("the vote of master 1 has expired", func() bool { return s.votes()[1] == 0 })
			s.startMasters("the lease has ended; master 2 starts without its data", 2)
		}),
	restartedAround("redlock-restarts-with-aof",
		"As redlock-restarts-empty, but each master flushes its append-only file before it answers.",
		servers.RedisOptions{AOF: true, Fsync: "always"}, func(s *Stage) {
			s.startMasters("master 2 restarts from its append-only file, and master 3 starts", 2, 3)
		}, func(*Stage) {}),
	mastersLost("redlock-masters-lost/one-of-three", 1, 3), mastersLost("redlock-masters-lost/two-of-five", 2, 5),
	mastersLost("redlock-masters-lost/three-of-five", 3, 5),
	refusedInside("multi-master-down",
		"One of the three masters that must all grant a lock is killed while a holder is inside.",
		"lock-redis-multi", claim("nobody is granted the lock", report.Unavailable), 3, 2, func(s *Stage) {
			s.killMasters("master 3 is killed", 3)
		}, 3),
	refusedInside("multi-restarts-empty/one",
		"One of the three masters that must all grant a lock restarts without its data while a holder is inside.",
		"lock-redis-multi", claim("the other masters remember the holder", report.Safe), 3, 2, func(s *Stage) {
			s.startMasters("master 3 restarts without its data", 3)
		}),
	twoHold("multi-restarts-empty/all",
		"All three masters of a lock restart without their data while a holder's write is on its way.",
		only("lock-redis-multi"), Setting{Locks: redlockMasters(3, servers.RedisOptions{})}, func(s *Stage) {
			before := s.votes()
			s.startMasters("all masters restart without their data", 1, 2, 3)
			if len(before) == 3 && len(s.votes()) == 0 {
				s.Provef("A had the votes of all masters, and none remembers it")
			}
		}),
	{
		Name: "pass-after-loss",
		Title: "The lock of a holder is deleted and granted to another replica. Then the holder passes it to the next " +
			"caller of its own process.",
		Applies: only("lock-redis-rlock"),
		Claim:   always("passes only what it has", report.Safe),
		On:      Setting{Args: withLease(longLease, lockWait(patientTimeout/2))},
		Play: func(s *Stage) {
			s.send(to(s.Survivor, "Z", 1)) // so that it knows the item, and the first thing that it reads is under the lock
			a := s.hold(to(s.Victim, "A", 1), Write)
			b := s.start(to(s.Victim, "B", 2))
			s.deleteLock(s.Item)
			read := s.catch(s.Survivor.MySQL, s.readsStock)
			write := s.catch(s.Survivor.MySQL, s.writesStock)
			c := s.start(to(s.Survivor, "C", 3)).caught(read)
			pass := s.catch(s.Victim.Redis, s.passesLock)
			a.Release()
			a.caught(pass)
			read.Release() // A has written
			c.caught(write)
			s.Provef("C was inside when A, who had lost the lock, passed it to B in a message of %d bytes", pass.Bytes())
			asks := s.seen(mentions(s.lockKey()), s.Victim.Redis)
			pass.Release()
			if !b.answeredBefore(asks) {
				s.Stepf("B asks Redis for the lock")
			}
			a.wait()
			write.land()
			c.wait()
			b.wait()
		},
	}, {
		Name: "late-order",
		Title: "A has read both items of its order. Its lock of the second is deleted, and B buys that item before A " +
			"writes both.",
		Applies: only("lock-redis-fenced"),
		Claim:   lockLost,
		On:      Setting{Args: withLease(longLease, lockWait(patientTimeout/2))},
		Play: func(s *Stage) {
			second := s.newItem()
			lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
			a := s.hold(order{client: "A", at: s.Victim, lines: lines}, Write)
			s.deleteLock(second)
			s.mustBuy(order{client: "B", at: s.Survivor, lines: []history.Line{{GoodsID: second, Count: 2}}})
			s.Provef("B has bought the second item, which A has read and not written")
			a.land()
			s.buy(order{client: "C", at: s.Survivor, lines: lines}, time.Now())
		},
	},
}

// twoHold is the story of servers that forget the lock of a holder whose write is on its way, so that B is granted it.
// The masters with the given numbers are killed before.
func twoHold(
	name, title string, applies func(scenario.Strategy) string, on Setting, forget func(*Stage), down ...int,
) Scenario {
	on.Args = withLease(longLease)
	return Scenario{
		Name: name, Title: title, Applies: applies, Claim: lockLost, On: on,
		Play: func(s *Stage) {
			for _, n := range down {
				s.killMasters(fmt.Sprintf("master %d is killed", n), n)
			}
			a := s.holdWrite()
			forget(s)
			s.buyBeforeWrite(a)
		},
	}
}

// restartedAround is the story of masters of which some restart while A holds the lock, and others while B waits.
func restartedAround(name, title string, disk servers.RedisOptions, held, waited func(*Stage)) Scenario {
	return Scenario{
		Name: name, Title: title, Applies: only("lock-redlock"),
		Claim: always("granted again when the lease has ended", report.Blocked),
		On:    Setting{Locks: redlockMasters(3, disk), Args: withLease(pauseLease)},
		Play: func(s *Stage) {
			s.killMasters("master 3 is killed", 3)
			a := s.hold(patiently(to(s.Victim, "A", 1)), Read)
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
		},
	}
}

// mastersLost is the story of masters of Redlock that die while a holder is inside.
func mastersLost(name string, lost, of int) Scenario {
	numbers := []int{1, 2, 3}[:lost]
	title := fmt.Sprintf("Masters are killed while a holder is inside: %d of %d.", lost, of)
	kill := func(s *Stage) { s.killMasters(fmt.Sprintf("%d of %d masters are killed", lost, of), numbers...) }
	if lost > of/2 {
		claimed := claim("nobody is granted the lock", report.Unavailable)
		return refusedInside(name, title, "lock-redlock", claimed, of, of-lost, kill, numbers...)
	}
	return refusedInside(name, title, "lock-redlock", claim("one holder, and sales go on", report.Safe), of, of-lost, kill)
}

// refusedInside is the story of masters that break while A is inside, and B asks in vain. left is how many votes for A
// remain of those of all masters. C buys when A has left, or asks in vain until the masters that are missed have been
// started again.
func refusedInside(
	name, title, lock string, claimed Claim, masters, left int, strike func(*Stage), missed ...int,
) Scenario {
	return Scenario{
		Name: name, Title: title, Applies: only(lock), Claim: func(scenario.Strategy) Claim { return claimed },
		On: Setting{Locks: redlockMasters(masters, servers.RedisOptions{}), Args: withLease(longLease)},
		Play: func(s *Stage) {
			a := s.holdWrite()
			before := s.votes()
			strike(s)
			after := s.votes()
			b := s.send(to(s.Survivor, "B", 2))
			if len(before) == masters && len(after) == left && b.Outcome != history.Sold {
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
		},
	}
}

// playWaitOnAnotherConnection asks for the Redis replica on another connection than the one that has set the lock: WAIT
// is about what was written before a connection's last command.
func playWaitOnAnotherConnection(s *Stage) {
	db, master := s.mysql(), s.openRedis()
	defer master.Close()
	asks := master.Conn()
	defer asks.Close()
	replicas, err := asks.Wait(s.ctx, 1, patientTimeout).Result()
	s.requiref(replicas > 0, "the Redis replica is not in sync before the fault: %w", err)
	s.cutReplication()
	answerA := s.ask("A", 1)
	s.check(s.setLock(master, "A"))
	replicas, err = asks.Wait(s.ctx, 1, waitLimit).Result()
	s.check(err)
	units, err := s.readUnits(s.ctx, db)
	s.check(err)
	s.Stepf("A has set the lock, is told that %d Redis replicas have it, and has read %d", replicas, units)
	s.strike(replicaPromoted, s.redis.failOver)
	promoted := openRedis(s.redis.replica.Addr)
	defer promoted.Close()
	b := s.perform("B", 2, func() (int64, error) {
		if err := s.setLock(promoted, "B"); err != nil {
			return 0, err
		}
		return s.readAndWrite(s.ctx, db, 2)
	})
	s.Provef("A was inside when the master was killed, and on the promoted Redis replica, B was told: %s", b.Outcome)
	answerA(s.writeUnits(s.ctx, db, units-1))
}

// setLock asks a server of Redis for the lock once.
func (s *Stage) setLock(at *redis.Client, owner string) error {
	err := at.SetArgs(s.ctx, s.lockKey(), owner, redis.SetArgs{Mode: "NX", TTL: longLease}).Err()
	if errors.Is(err, redis.Nil) {
		return errHeld
	}
	return err
}
