package fault

import (
	"context"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// lateWrite is the story of a write that leaves the replica in time and reaches the store too late.
var lateWrite = Scenario{
	Name:    "late-write",
	Title:   "The holder's write is delayed on the wire until the next buyer has bought.",
	Applies: everyStrategy,
	Claim: func(s scenario.Strategy) Claim {
		switch words := s.Claim.LateWrite; words {
		case "blocks":
			return claim(words, report.Safe, report.Blocked, report.Unavailable)
		case "refused":
			return claim(words, report.Safe, report.Blocked) // the holder may keep its lock until it gives up
		}
		return catalogued(s.Claim.LateWrite)
	},
	Play: func(s *Stage) {
		if s.Strategy.Claim.LateCaveat != "" {
			// A timestamp of whole seconds does not tell the next sales from one in a second that has just begun.
			now := time.Now()
			select {
			case <-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)):
			case <-s.ctx.Done():
			}
			s.send(to(s.Survivor, "Z", 1))
		}
		a := s.hold(to(s.Victim, "A", 1), Write)
		s.Provef("the proxy between the victim and %s holds %s", s.Store, a.what)
		s.buyBeforeWrite(a)
	},
}

// redisScenarios are stories of a Redis that forgets a lock, or of a message about it that comes late: another holder
// may be inside when the first one writes.
var redisScenarios = []Scenario{
	{
		Name:    "deletes-anothers-lock",
		Title:   "A holder's release is delayed on the wire until its lease has ended and the next holder is inside.",
		Applies: keyInRedis,
		Claim: func(s scenario.Strategy) Claim {
			switch s.Name {
			case "lock-redis-setnx", "lock-redis-expiry":
				return claim("deletes the lock of whoever holds it", report.Unsafe)
			case "lock-redis-owner":
				return claim("checks the owner, and deletes in a second command", report.Unsafe)
			}
			return claim("deletes its own lock alone", report.Safe)
		},
		On: Setting{Args: patient(lockWait(patientTimeout / 2))}, // B waits until A's lease has ended
		Play: func(s *Stage) {
			// The scripts must be known to Redis, or it would ask for the text of the one that comes late.
			s.send(to(s.Victim, "Z", 1))
			a := s.hold(to(s.Victim, "A", 1), Write)
			late := s.catch(s.Victim.Redis, s.releasesLock)
			a.message.land()
			late.arrive()
			s.Stepf("A has written; the proxy holds its release of %d bytes", late.Bytes())
			if s.Strategy.Claim.HolderCrash == "blocks-forever" { // the lock does not end by itself
				s.deleteLock(s.Item)
			}
			b := s.hold(patiently(to(s.Survivor, "B", 2)), Write)
			asked, rest := time.Now(), s.keyPTTL()
			s.Stepf("B has been granted the lock and has read the stock; the PTTL of the lock is %s", rest)
			late.land()
			s.enterIfFree(asked, rest)
			b.land()
			a.wait()
			s.send(to(s.Survivor, "D", 1))
		},
	},
	scripted("crash-before-expire", "A client is cut off just after its lock was set, and never returns.",
		script("setnx-then-expire", "blocks-forever", report.Unavailable),
		script("set-nx-px", "blocks-until-lease-ends", report.Blocked)),
	scripted("fence-counter-lost", "Redis loses its data, and with it the last fencing token (FLUSHALL).",
		script("incr-token", "refuses everybody: its tokens begin again from 1", report.Unavailable),
		script("token-from-time", "makes the token from the time, so that it rises all the same", report.Safe)),
	scripted("write-only-fence",
		"A holder's write comes late, between the read and the write of the next holder, who has a newer token.",
		script("fence-in-write", "accepts a late write until a newer token has come", report.Unsafe),
		script("register-then-read", "refuses a late write once the next holder has read", report.Safe),
		script("fence-and-stock-in-write", "refuses the next holder, which has read before the late write", report.Safe)),
	scripted("late-renewal", "A renewal is delayed on the wire until its holder has released the lock.",
		script("renew-by-set", "leaves a lock without a holder", report.Blocked),
		script("renew-own-lock", "renews a lock only if it is its own", report.Safe)),
	lockForgotten("redis-restarts/empty",
		"Redis is killed and restarted while a holder's write is on its way (SIGKILL). It keeps nothing on disk.",
		lockLost, oneRedis(servers.RedisOptions{}), restartRedis),
	lockForgotten("redis-restarts/aof",
		"Redis is killed and restarted while a holder's write is on its way (SIGKILL). It writes an append-only file, and "+
			"flushes it after each command (appendfsync always).",
		lockKept, oneRedis(servers.RedisOptions{AOF: true, Fsync: "always"}), restartRedis),
	lockEvicted("volatile-lru"), lockEvicted("allkeys-lru"), lockEvicted("noeviction"),
	lockForgotten("failover",
		"The master of Redis is killed while a holder's write is on its way (SIGKILL). The Redis replica, which has "+
			"not received the lock, is promoted.",
		lockLost, redisPair, func(s *Stage) held {
			s.cutReplication()
			a := s.holdWrite()
			s.lacksLock(s.redis.replica)
			s.forget(a, s.redis.replica, replicaPromoted, s.redis.failOver)
			return a
		}),
	lockForgotten("failover-planned",
		"The master of Redis is told to stop while a holder's write is on its way (SIGTERM). The Redis replica, which has "+
			"received the lock, is promoted.",
		lockKept, redisPair, func(s *Stage) held {
			a := s.holdWrite()
			s.eventually("the Redis replica has the lock", func() bool { return s.lockPTTL(s.redis.replica) != noKey })
			s.forget(a, s.redis.replica, "the master ended, and its Redis replica was promoted", s.redis.endAndFailOver)
			return a
		}),
	// Until a Sentinel tells the old master that it is a Redis replica now, several seconds later, it accepts what
	// clients send that have not learnt of the promotion.
	lockForgotten("sentinel-split-brain",
		"The master of Redis is stopped (SIGSTOP), and goes on when Sentinel has promoted its Redis replica. One replica "+
			"of the service has not learnt of that.",
		lockLost, redisWithSentinels, func(s *Stage) held {
			master, replica := s.redis.master, s.redis.replica
			s.strike("the master was stopped, and goes on when Sentinel has promoted its Redis replica",
				func(ctx context.Context) error {
					if err := s.redis.stall(ctx); err != nil {
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

// lockForgotten is the story of a Redis that may forget the lock of a holder whose write is on its way, and is asked
// for it again. forget returns that holder.
func lockForgotten(
	name, title string, claimed func(scenario.Strategy) Claim, on start, forget func(*Stage) held,
) Scenario {
	return Scenario{
		Name: name, Title: title, Applies: keyInOneRedis, Claim: claimed, On: Setting{Redis: on, Args: endless},
		Play: func(s *Stage) { s.arriveLate(forget(s)) },
	}
}

func restartRedis(s *Stage) held {
	a := s.holdWrite()
	s.forget(a, s.redis.master, "Redis was killed and restarted", s.redis.master.Restart)
	return a
}

// lockEvicted is the story of a Redis that runs out of memory.
func lockEvicted(policy string) Scenario {
	claimed := func(s scenario.Strategy) Claim {
		switch {
		case policy == "noeviction":
			return claim("refuses new keys, and keeps the lock", report.Safe)
		case policy == "volatile-lru" && s.Claim.HolderCrash == "blocks-forever":
			return claim("keeps the lock, because it does not expire", report.Safe)
		}
		return lockLost(s)
	}
	return lockForgotten("lock-evicted/"+policy,
		"Redis runs out of memory while a holder's write is on its way. Its policy is "+policy+" (maxmemory-policy).",
		claimed, oneRedis(servers.RedisOptions{Args: []string{"--maxmemory-policy", policy}}), func(s *Stage) held {
			a := s.holdWrite()
			s.forget(a, s.redis.master, "Redis ran out of memory", s.fillRedis)
			s.ranOutOfMemory()
			return a
		})
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

// usedMemory returns how many bytes Redis uses.
func usedMemory(ctx context.Context, client *redis.Client) (int64, error) {
	info := client.InfoMap(ctx, "memory")
	if info.Err() != nil {
		return 0, info.Err()
	}
	return strconv.ParseInt(info.Item("Memory", "used_memory"), 10, 64)
}

// ranOutOfMemory ends the story unless Redis has evicted keys, or refused commands.
func (s *Stage) ranOutOfMemory() {
	client := openRedis(s.redis.master.Addr)
	defer client.Close()
	info, err := client.InfoMap(s.ctx, "stats", "errorstats").Result()
	s.check(err)
	evicted, refused := info["Stats"]["evicted_keys"], info["Errorstats"]["errorstat_OOM"]
	s.requiref(evicted != "0" || refused != "", "Redis has neither evicted a key nor refused a command")
	s.Stepf("evicted_keys of Redis is %s, and its errorstat_OOM is %q", evicted, refused)
}

// lacksLock ends the story if a server of Redis has the item's lock.
func (s *Stage) lacksLock(r *servers.Redis) {
	s.requiref(s.lockPTTL(r) == noKey, "the Redis replica has received the lock of client A")
}

// isMaster ends the story unless a server of Redis says that it is a master.
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

// failoverLosesSales is claimed if the promoted Redis replica lacks sales.
func failoverLosesSales(s scenario.Strategy) Claim {
	switch {
	case s.WriteThrough:
		return claim("MySQL has the sales, and Redis sells their units again", report.Unsafe)
	case s.WriteBehind:
		return claim("loses sales that neither the Redis replica nor MySQL has received", report.Unsafe)
	}
	return claim("loses sales that the Redis replica has not received", report.Unsafe)
}
