package fault

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/monotonic"
	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/messages"
)

// redisPlays are scenarios of a Redis that forgets a lock, or of a message about it that comes late: another holder may
// be inside when the first one writes.
var redisPlays = map[string]func(*Stage){
	"late-write": func(s *Stage) {
		if s.Strategy.Claim.LateCaveat != "" {
			// A timestamp of whole seconds does not tell the next sales from one in a second that has just begun.
			now := time.Now()
			_ = monotonic.Sleep(s.ctx, now.Truncate(time.Second).Add(time.Second).Sub(now))
			s.send(to(s.Survivor, "Z", 1))
		}
		a := s.hold(to(s.Victim, "A", 1), messages.Write)
		s.Provef("the proxy between the victim and %s holds %s", s.Store, a.what)
		s.buyBeforeWrite(a)
	},
	"deletes-anothers-lock": func(s *Stage) {
		// The scripts must be known to Redis, or it would ask for the text of the one that comes late.
		s.send(to(s.Victim, "Z", 1))
		a := s.hold(to(s.Victim, "A", 1), messages.Write)
		late := s.catch(s.Victim.Redis, s.ReleasesLock)
		a.message.land()
		late.arrive()
		s.Stepf("A has written; the proxy holds its release of %d bytes", late.Bytes())
		if neverUnlocks(s.Strategy) { // the lock does not end by itself
			s.deleteLock()
		}
		b := s.hold(patiently(to(s.Survivor, "B", 2)), messages.Write)
		asked, rest := time.Now(), s.keyPTTL()
		s.Stepf("B has been granted the lock and has read the stock; the PTTL of the lock is %s", rest)
		late.land()
		s.enterIfFree(asked, rest)
		b.land()
		a.wait()
		s.send(to(s.Survivor, "D", 1))
	},
	"redis-restarts": forgotten(func(s *Stage) held {
		a := s.holdWrite()
		s.forget(a, s.redis.master, "Redis was killed and restarted", s.redis.master.Restart)
		return a
	}),
	"lock-evicted": forgotten(func(s *Stage) held {
		a := s.holdWrite()
		s.forget(a, s.redis.master, "Redis ran out of memory", s.fillRedis)
		s.ranOutOfMemory()
		return a
	}),
	"failover": forgotten(func(s *Stage) held {
		s.cutReplication()
		a := s.holdWrite()
		s.lacksLock(s.redis.replica)
		s.forget(a, s.redis.replica, replicaPromoted, s.redis.failOver)
		return a
	}),
	"failover-planned": forgotten(func(s *Stage) held {
		a := s.holdWrite()
		s.eventually("the Redis replica has the lock", func() bool { return s.lockPTTL(s.redis.replica) != noKey })
		s.forget(a, s.redis.replica, "the master ended, and its Redis replica was promoted",
			func(ctx context.Context) error {
				return errors.Join(s.redis.master.Process.Stop(ctx), s.redis.promote(ctx))
			})
		return a
	}),
	// Until a Sentinel tells the old master that it is a Redis replica now, several seconds later, it accepts what
	// clients send that have not learnt of the promotion.
	"sentinel-split-brain": forgotten(func(s *Stage) held {
		master, replica := s.redis.master, s.redis.replica
		s.strike("the master was stopped, and goes on when Sentinel has promoted its Redis replica",
			func(ctx context.Context) error {
				if err := pause(ctx, master.Process); err != nil {
					return err
				}
				if err := s.redis.sentinels.AwaitPromotion(ctx); err != nil {
					return err
				}
				s.Survivor.Redis.Redirect(replica.Addr)
				return master.Signal(syscall.SIGCONT)
			})
		a := s.holdWrite()
		s.isMaster(master)
		s.isMaster(replica)
		if old := s.lockPTTL(master); old != noKey {
			s.Provef("both servers say that they are the master; the PTTL of A's lock is %s on the old one, and %s on the new",
				old, s.lockPTTL(replica))
		}
		return a
	}),
}

// forgotten plays the scenario of a Redis that may forget the lock of a holder whose write is on its way, and is asked
// for it again. forget returns that holder.
func forgotten(forget func(*Stage) held) func(*Stage) {
	return func(s *Stage) { s.buyOn(s.askMeanwhile(forget(s))) }
}

// fillRedis writes until Redis has evicted all that it may, and refuses to write more. It then lifts the limit again,
// so that nothing else is refused for want of memory.
func (s *Stage) fillRedis(ctx context.Context) error {
	client := openRedis(s.redis.master.Addr)
	defer client.Close()
	err := client.ConfigSet(ctx, "maxmemory", "1").Err()
	for err == nil {
		err = client.Set(ctx, "filler", "x", 0).Err()
	}
	if !redis.IsOOMError(err) {
		return err
	}
	return client.ConfigSet(ctx, "maxmemory", "0").Err()
}

// ranOutOfMemory ends the scenario unless Redis has evicted keys, or refused commands.
func (s *Stage) ranOutOfMemory() {
	client := openRedis(s.redis.master.Addr)
	defer client.Close()
	info, err := client.InfoMap(s.ctx, "stats", "errorstats").Result()
	s.check(err)
	evicted, refused := info["Stats"]["evicted_keys"], info["Errorstats"]["errorstat_OOM"]
	s.requiref(evicted != "0" || refused != "", "Redis has neither evicted a key nor refused a command")
	s.Stepf("evicted_keys of Redis is %s, and its errorstat_OOM is %q", evicted, refused)
}

// lacksLock ends the scenario if a server of Redis has the item's lock.
func (s *Stage) lacksLock(r *servers.Redis) {
	s.requiref(s.lockPTTL(r) == noKey, "the Redis replica has received the lock of client A")
}

// isMaster ends the scenario unless a server of Redis says that it is a master.
func (s *Stage) isMaster(r *servers.Redis) {
	client := openRedis(r.Addr)
	defer client.Close()
	role, err := client.Do(s.ctx, "ROLE").Slice()
	s.check(err)
	s.requiref(len(role) > 0 && role[0] == "master", "%s is not a master: %v", r.Name, role)
}

// enterIfFree has C buy if A's release has deleted the lock of B, which is inside. rest was left of B's lease when
// somebody asked.
func (s *Stage) enterIfFree(asked time.Time, rest pttl) {
	if s.keyPTTL() != noKey {
		s.Provef("A's release arrived while B was inside; B's lock is still there")
		return
	}
	s.requiref(rest <= 0 || time.Since(asked) <= time.Duration(rest), "B's lease may have ended by itself")
	s.Provef("A's release arrived while B was inside, and deleted B's lock")
	if s.Strategy.Fenced() { // the fence keeps the stock right
		s.Failf("A's release has deleted the lock of B, which was inside")
	}
	s.send(to(s.Survivor, "C", 3))
}

// ghostPlays are scenarios of a client that gives up, but whose request for a lock Redis carries out, so that the
// client does not know that it holds it.
var ghostPlays = map[string]func(*Stage){
	"ghost-lock/stall": func(s *Stage) {
		a, asks := s.askForLock()
		s.strike("Redis is stopped", func(ctx context.Context) error { return pause(ctx, s.redis.master.Process) })
		a.isUnanswered("Redis was stopped")
		asks.Release() // to the socket of the server, which does not read it yet
		a.wait()
		s.requiref(!happened(asks.Answered()), "Redis answered client A while it was stopped")
		s.Provef("A was refused before Redis answered its request for the lock, of %d bytes", asks.Bytes())
		s.mend("Redis goes on", func(context.Context) error { return s.redis.master.Signal(syscall.SIGCONT) })
		s.buyAfterGhost(asks)
	},
	"ghost-lock/late-request": func(s *Stage) {
		a, asks := s.askForLock()
		a.wait()
		s.Provef("A was refused while the proxy held its request for the lock, of %d bytes", asks.Bytes())
		asks.Release()
		s.buyAfterGhost(asks)
	},
	"ghost-lock/lost-reply": func(s *Stage) {
		a, asks := s.askForLock()
		asks.Cut(tcpproxy.BeforeReply)
		s.await(asks.Answered())
		s.Provef("the proxy cut the connection when Redis answered A's request for the lock, of %d bytes", asks.Bytes())
		a.wait()
		s.buyAfterGhost(asks)
	},
}

// askForLock has A ask for the lock, and holds its request on the wire.
func (s *Stage) askForLock() (*pending, message) {
	s.send(to(s.Victim, "Z", 1)) // the first request may need more messages: Redis does not know the script yet
	asks := s.catch(s.Victim.Redis, messages.Mentions(s.LockKey()))
	a := s.start(patiently(to(s.Victim, "A", 1))).caught(asks)
	s.Stepf("the proxy between the victim and Redis holds A's request for the lock")
	return a, asks
}

// buyAfterGhost waits until Redis has carried out A's request for the lock, and has B buy.
func (s *Stage) buyAfterGhost(asks message) {
	since := time.Now()
	s.await(asks.Answered())
	s.Stepf("Redis has answered A's request; the PTTL of the lock is %s", s.lockPTTL(s.redis.master))
	s.buyWithin(to(s.Survivor, "B", 2), since, ghostPatience)
}
