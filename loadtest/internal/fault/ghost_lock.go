package fault

import (
	"context"
	"syscall"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/messages"
)

// ghostPlays are stories of a client that gives up, but whose request for a lock Redis carries out, so that the client
// does not know that it holds it.
var ghostPlays = map[string]func(*Stage){
	"ghost-lock/stall": func(s *Stage) {
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
