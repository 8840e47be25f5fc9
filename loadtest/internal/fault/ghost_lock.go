package fault

import (
	"context"
	"syscall"
	"time"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// ghostLocks are stories of a client that gives up, but whose request for a lock Redis carries out, so that the client
// does not know that it holds it.
var ghostLocks = []Scenario{{
	Name:    "ghost-lock/stall",
	Title:   "Redis stalls (SIGSTOP), and grants a lock when its client has given up.",
	Applies: keyInOneRedis,
	Claim: ghostClaim(map[string]Claim{
		"lock-redis-expiry": ghostUntilLeaseEnds, "lock-redis-owner": ghostUntilLeaseEnds,
	}, takesBack),
	On: onGhosts,
	Play: func(s *Stage) {
		a, asks := s.askForLock()
		s.strike("Redis is stopped", s.redis.stall)
		a.isUnanswered("Redis was stopped")
		asks.Release() // to the socket of the server, which does not read it yet
		a.wait()
		s.requiref(!happened(asks.Answered()), "Redis answered client A while it was stopped")
		s.Provef("A was refused before Redis answered its request for the lock, of %d bytes", asks.Bytes())
		s.mend("Redis goes on", func(context.Context) error { return s.redis.master.Signal(syscall.SIGCONT) })
		s.buyAfterGhost(asks)
	},
}, {
	Name:    "ghost-lock/late-request",
	Title:   "A request for a lock is delayed on the wire until its client has given up, and has tried to undo it.",
	Applies: keyInOneRedis,
	Claim: ghostClaim(map[string]Claim{
		"lock-redis-queue": claim("refuses a request that its client has undone", report.Safe),
	}, ghostUntilLeaseEnds),
	On: onGhosts,
	Play: func(s *Stage) {
		a, asks := s.askForLock()
		a.wait()
		s.Provef("A was refused while the proxy held its request for the lock, of %d bytes", asks.Bytes())
		asks.Release()
		s.buyAfterGhost(asks)
	},
}, {
	Name:    "ghost-lock/lost-reply",
	Title:   "The connection is cut when Redis grants a lock, so that its client does not learn of it.",
	Applies: keyInOneRedis,
	Claim: ghostClaim(map[string]Claim{
		"lock-redis-expiry": ghostUntilLeaseEnds,
		"lock-redis-queue":  claim("asks again, and is granted the lock that is its own", report.Safe),
	}, takesBack),
	On: onGhosts,
	Practices: []Practice{
		script("retry-set-nx", "is refused by the lock that its own first request has set", report.Blocked),
		script("retry-as-owner", "is granted the lock that is its own", report.Safe),
	},
	Play: func(s *Stage) {
		a, asks := s.askForLock()
		asks.Cut(tcpproxy.BeforeReply)
		s.await(asks.Answered())
		s.Provef("the proxy cut the connection when Redis answered A's request for the lock, of %d bytes", asks.Bytes())
		a.wait()
		s.buyAfterGhost(asks)
	},
}}

// Claims about a lock without a holder.
var (
	ghostUntilLeaseEnds = claim("leaves a lock without a holder, until its lease ends", report.Blocked)
	takesBack           = claim("takes back what Redis may have granted", report.Safe)
)

// ghostClaim claims what the list says of a lock, or else the same of all. That of lock-redis-setnx has no lease.
func ghostClaim(list map[string]Claim, others Claim) func(scenario.Strategy) Claim {
	return func(s scenario.Strategy) Claim {
		if s.Name == "lock-redis-setnx" {
			return claim("leaves a lock without a holder, for ever", report.Unavailable)
		}
		if c, listed := list[s.Name]; listed {
			return c
		}
		return others
	}
}

// onGhosts has clients wait long enough for the lock that Redis is stopped before.
var onGhosts = Setting{Redis: oneRedis(servers.RedisOptions{}), Args: patient(lockWait(2 * lease))}

// askForLock has A ask for the lock, and holds its request on the wire.
func (s *Stage) askForLock() (*pending, message) {
	s.send(to(s.Victim, "Z", 1)) // the first request may need more messages: Redis does not know the script yet
	asks := s.catch(s.Victim.Redis, mentions(s.lockKey()))
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
