package fault

import (
	"context"
	"fmt"
	"time"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/oracle"
)

// message is one that a proxy holds as soon as it arrives. It goes on when it is released, or when the scenario has
// ended.
type message struct {
	*tcpproxy.Caught
	stage *Stage
}

// catch holds the first message that matches.
func (s *Stage) catch(at *tcpproxy.Proxy, match func(tcpproxy.Message) bool) message {
	m := message{at.Catch(match), s}
	s.atEnd = append(s.atEnd, m.Release)
	return m
}

// arrive waits until the message is held.
func (m message) arrive() { m.stage.await(m.Arrived()) }

// land lets the message go on, and waits until it is answered.
func (m message) land() {
	m.Release()
	m.stage.await(m.Answered())
}

// held is a request that cannot go on, because a proxy holds a message of it, or the reply to one.
type held struct {
	*pending
	message
	what string // is held
}

// hold sends a request, and holds it at the first of the steps that its strategy has. If it has not, the request is
// answered instead, and the client's next one is held at the next step.
func (s *Stage) hold(o order, steps ...messages.Step) held {
	client := o.client
	for i, step := range steps {
		if i > 0 {
			o.client = fmt.Sprintf("%s%d", client, i)
		}
		h, caught := s.tryToHold(o, step)
		if caught {
			return h
		}
		s.requiref(h.op.Outcome == history.Sold, "client %s was refused before it could be held: %s", o.client, h.op.Error)
	}
	s.failf("the strategy has none of the steps %v", steps)
	return held{}
}

// holdBesideOthers is hold for a request that waits until the cells that are played side by side have one, too. Those
// that wait for Redis come last, because its client gives up after 3 s.
func (s *Stage) holdBesideOthers(o order, steps ...messages.Step) held {
	const what = "the others are held"
	if s.Store == oracle.Redis {
		s.meet(what)
		return s.hold(o, steps...)
	}
	h := s.hold(o, steps...)
	s.meet(what)
	return h
}

// tryToHold sends a request, and reports whether it is held. If it is not, it is answered.
func (s *Stage) tryToHold(o order, step messages.Step) (h held, caught bool) {
	s.mu.Lock()
	first := len(s.ops) == 0
	s.mu.Unlock()
	if step == messages.Read && first {
		// At the first request for an item, a replica reads the stock before it takes the lock, to see that the item
		// exists.
		s.send(to(o.at, "Z", 1))
	}
	m := message{s.Catch(o.at.Proxies, step), s}
	s.atEnd = append(s.atEnd, m.Release)
	h = held{pending: s.start(o), message: m}
	if h.answeredBefore(m.Arrived()) {
		m.Release()
		h.wait()
		return h, false
	}
	h.what = messages.Describe(o.client+"'s", step, m.Data())
	s.mu.Lock()
	for _, a := range s.asking {
		if a.request == h.request {
			a.Held, a.held = h.what, m.Caught
		}
	}
	s.mu.Unlock()
	s.Stepf("a proxy between the %s and its servers holds %s", o.at.Name, h.what)
	return h, true
}

// land lets the request go on, and waits until the message and the request are answered.
func (h held) land() history.Op {
	h.message.land()
	h.stage().Stepf("%s has been released", h.what)
	return h.wait()
}

func (h held) stage() *Stage { return h.pending.stage }

// die drops the message of a request whose replica was killed, and waits until the client's connection has ended. It
// ends the scenario if the replica had answered.
func (h held) die() {
	h.Cut(tcpproxy.BeforeRequest)
	op := h.wait()
	h.stage().requiref(op.Status == 0, "%s was answered before its replica was killed: %d %s",
		h.request, op.Status, op.Error)
}

// caught waits until a message of the request is held, and returns the request, which must not be answered before.
func (p *pending) caught(m message) *pending {
	select {
	case <-m.Arrived():
	case <-p.done:
		p.stage.failf("client %s was answered before its message was seen on the wire: %s", p.client, p.wait().Outcome)
	case <-p.stage.ctx.Done():
		p.stage.check(p.stage.ctx.Err())
	}
	return p
}

// proxyTo starts a proxy of the scenario's own.
func (s *Stage) proxyTo(address string) *tcpproxy.Proxy {
	proxy, err := tcpproxy.Start(address)
	s.check(err)
	s.atEnd = append(s.atEnd, proxy.Close)
	return proxy
}

// seen returns a channel that is closed when a message that matches arrives at a proxy, which holds it only for a
// moment.
func (s *Stage) seen(match func(tcpproxy.Message) bool, at *tcpproxy.Proxy) <-chan struct{} {
	m := at.Catch(match)
	s.background.Go(func() {
		defer m.Release()
		select {
		case <-m.Arrived():
		case <-s.ctx.Done():
		}
	})
	return m.Arrived()
}

// buyBeforeWrite has B buy before A's write goes on, and C after that. B buys another count than A: if both left the
// same stock, nobody could tell that one was lost.
func (s *Stage) buyBeforeWrite(a held) {
	s.buyNow("B", 2)
	a.land()
	s.send(to(s.Survivor, "C", 1))
}

// holdWrite has A read the stock, and holds A's write on the wire.
func (s *Stage) holdWrite() held { return s.hold(patiently(to(s.Victim, "A", 1)), messages.Write) }

// askMeanwhile has B ask for the lock. When B has sold, or was not granted the lock, A's write goes on.
func (s *Stage) askMeanwhile(a held) (sold bool) {
	sold = s.tryToBuy(to(s.Survivor, "B", 2), time.Now(), 2*s.On.LockWait)
	s.blocked = 0 // nobody should buy while A is inside
	a.land()
	return sold
}

// buyOn has B buy, if it was not granted the lock before, and C after that.
func (s *Stage) buyOn(sold bool) {
	if !sold {
		s.buyNow("B-again", 2)
	}
	s.send(to(s.Survivor, "C", 1))
}

// killVictim kills the victim, once for all cells.
func (s *Stage) killVictim() {
	s.strike("the victim is killed", func(context.Context) error { return s.Victim.Kill() })
}

// stopVictim stops the victim (SIGSTOP), and waits until it has stopped.
func (s *Stage) stopVictim() {
	s.strike("the victim is stopped", func(ctx context.Context) error { return pause(ctx, s.Victim.Process()) })
}

// continueVictim lets the victim go on (SIGCONT).
func (s *Stage) continueVictim() {
	s.mend("the victim goes on", func(context.Context) error { return s.Victim.Continue() })
}

// forget has a fault strike while A is inside, and returns when. The lock is on the master before, and should be on the
// server after.
func (s *Stage) forget(a held, after *servers.Redis, what string, strike func(context.Context) error) (struckNS int64) {
	rest := s.lockPTTL(s.redis.master)
	s.requiref(rest != noKey, "client A is inside, but its lock %s is not in Redis", s.LockKey())
	asked := time.Now()
	struckNS = s.strike(what, strike)
	left := s.lockPTTL(after)
	a.isUnanswered("the fault struck")
	took := time.Since(asked)
	s.requiref(rest <= 0 || took < time.Duration(rest), "A's lease may have ended by itself, after %v", took)
	s.Provef("A was inside when %s; the PTTL of its lock was %s before, and is %s now", what, rest, left)
	return struckNS
}
