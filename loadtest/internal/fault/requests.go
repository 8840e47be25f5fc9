package fault

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
)

// order is a request of a client.
type order struct {
	client  string             // its name in the steps
	at      *topology.Isolated // the replica that it is sent to
	through string             // URL to send it to instead; empty: the replica's
	name    string             // empty: the client's
	again   bool
	count   int64          // units; 0: one
	lines   []history.Line // of an order of several items; it has no count
	timeout time.Duration  // how long the client waits for the answer; 0: clientTimeout
}

// to is an order of some units at a replica.
func to(at *topology.Isolated, client string, count int64) order {
	return order{client: client, at: at, count: count}
}

// patiently is an order whose client waits for as long as the scenario may last.
func patiently(o order) order {
	o.timeout = patientTimeout
	return o
}

// send sends a request and records it with its answer.
func (s *Stage) send(o order) history.Op {
	op := s.exchange(o)
	s.record(o.client, op)
	return op
}

// exchange is send without the record.
func (s *Stage) exchange(o order) history.Op {
	url, replica := o.through, ""
	if o.at != nil {
		url, replica = cmp.Or(url, o.at.URL), o.at.Name
	}
	load := traffic.Load{
		Strategy: s.Strategy.Name, Store: s.Store, Keys: s.Strategy.Idempotent, Timeout: s.timeout(o),
	}
	request := history.Op{Kind: history.Deduct, GoodsID: s.Item, Count: max(o.count, 1)}
	if o.lines != nil {
		request = history.Op{Kind: history.Order, Lines: o.lines}
	}
	request.Name, request.Again = requestName(s.Item, cmp.Or(o.name, o.client)), o.again
	answered := s.asks(o.client, replica, request.Name)
	defer answered()
	op, err := traffic.SendOne(s.ctx, url, load, request)
	s.check(err)
	return op
}

// timeout is how long the client waits for the answer: longer than anybody reads, unless the scenario says when it
// ends.
func (s *Stage) timeout(o order) time.Duration {
	if s.player.Reading && (o.timeout == 0 || o.timeout == patientTimeout) {
		return readersTimeout
	}
	return cmp.Or(o.timeout, clientTimeout)
}

// record adds a request with its answer to the history.
func (s *Stage) record(client string, op history.Op) {
	s.keep(op)
	switch {
	case op.Outcome == history.Sold && op.Kind == history.Order:
		s.Stepf("%s has bought what it ordered: %s", client, describeLines(op.Lines))
	case op.Outcome == history.Sold && op.OmitsRemaining:
		s.Stepf("%s has bought %d of the item", client, op.Count)
	case op.Outcome == history.Sold:
		s.Stepf("%s has bought %d of the item, and is told that %d remain", client, op.Count, op.Remaining)
	case op.Outcome == history.Unknown:
		s.Stepf("%s gets no answer: %s", client, op.Error)
	default:
		s.Stepf("%s is refused: %s", client, op.Error)
	}
}

// keep adds requests to the history without a step.
func (s *Stage) keep(ops ...history.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, ops...)
}

// describeLines says what an order bought, and what remains.
func describeLines(lines []history.Line) string {
	parts := make([]string, len(lines))
	for i, line := range lines {
		parts[i] = fmt.Sprintf("%d of item %d, of which %d remain", line.Count, line.GoodsID, line.Remaining)
	}
	return strings.Join(parts, ", ")
}

// pending is a request that was sent and is not answered yet.
type pending struct {
	stage   *Stage
	client  string
	request string // its name
	done    chan struct{}
	op      history.Op
	err     error
}

// start sends a request in the background.
func (s *Stage) start(o order) *pending {
	p := &pending{stage: s, client: o.client, request: requestName(s.Item, o.client), done: make(chan struct{})}
	asked := "nginx"
	if o.at != nil {
		asked = "the " + o.at.Name
	}
	s.Stepf("%s asks %s for %d of the item", o.client, asked, max(o.count, 1))
	s.background.Go(func() {
		defer close(p.done)
		p.err = tell(func() { p.op = s.send(o) })
	})
	return p
}

// wait waits for the answer.
func (p *pending) wait() history.Op {
	<-p.done
	p.stage.check(p.err)
	return p.op
}

// answered reports whether the answer has come.
func (p *pending) answered() bool { return happened(p.done) }

// isUnanswered ends the scenario if the answer came before something happened to the request.
func (p *pending) isUnanswered(what string) {
	if p.answered() {
		p.stage.failf("client %s was answered before %s: %s", p.client, what, p.wait().Error)
	}
}

// answeredBefore waits until the request is answered or the event has happened, and reports whether it is answered.
func (p *pending) answeredBefore(event <-chan struct{}) bool {
	select {
	case <-event:
		return false
	case <-p.done:
		return true
	}
}

// patience is how long the next buyer tries. It exceeds every lease, and the time in which the victim gives up a
// request that MySQL does not answer.
const patience = 14 * time.Second

// buy is buyWithin patience.
func (s *Stage) buy(o order, since time.Time) { s.buyWithin(o, since, patience) }

// buyNow is buy for a client of the survivor who asks for the item from now on.
func (s *Stage) buyNow(client string, count int64) { s.buy(to(s.Survivor, client, count), time.Now()) }

// buyWithin is tryToBuy, and records that nobody could buy the item if nothing is sold within limit.
func (s *Stage) buyWithin(o order, since time.Time, limit time.Duration) {
	if !s.tryToBuy(o, since, limit) {
		s.giveUp(since)
	}
}

// mustBuy sends a request that nothing keeps from being sold.
func (s *Stage) mustBuy(o order) {
	op := s.send(o)
	s.requiref(op.Outcome == history.Sold, "client %s was not sold anything: %s", o.client, op.Error)
}

// tryToBuy sends requests until one is sold, each with another client's name, and records how long the item was blocked
// since then. It reports whether something was sold within limit.
func (s *Stage) tryToBuy(o order, since time.Time, limit time.Duration) (sold bool) {
	client := o.client
	for i := 1; ; i++ {
		s.check(s.ctx.Err()) // a request whose context has ended has an unknown outcome, and no error
		op := s.send(o)
		switch waited := s.between(since, answeredAt(op)); {
		case op.Outcome == history.Sold:
			s.blocked = waited
			return true
		case waited > limit:
			return false
		}
		o.client = fmt.Sprintf("%s%d", client, i)
	}
}

// answeredAt returns when a request was answered.
func answeredAt(op history.Op) time.Time {
	return time.Now().Add(time.Duration(op.ReceivedNS - monotonic.Now()))
}

// giveUp records that nobody could buy the item since then.
func (s *Stage) giveUp(since time.Time) {
	s.blocked, s.never = s.between(since, time.Now()), true
	s.Stepf("nobody could buy for %.1f s", s.blocked.Seconds())
}

// restock puts units of an item back, and records it.
func (s *Stage) restock(item, count int64) {
	op := history.Op{Kind: history.Restock, Name: requestName(s.Item, "restock"), GoodsID: item, Count: count}
	op, err := traffic.RestockOne(s.ctx, s.Survivor.AdminURL, s.Store, clientTimeout, op)
	s.check(err)
	s.keep(op)
	s.requiref(op.Outcome == history.Sold, "%d units of item %d were not put back: %s", count, item, op.Error)
	s.Stepf("%d of item %d put back; there are %d now", count, item, op.Remaining)
}

// call sends a request about a reservation to a replica, and records it with its answer.
func (s *Stage) call(at *topology.Isolated, c history.Op) history.Op {
	load := traffic.Load{Strategy: s.Strategy.Name, Store: s.Store, Timeout: clientTimeout}
	c, err := traffic.SendOne(s.ctx, at.URL, load, c)
	s.check(err)
	s.keep(c)
	client := strings.TrimPrefix(c.Name, requestName(s.Item, ""))
	s.Stepf("%s is answered to its %s: %s %s%s", client, c.Kind, c.Outcome, c.State, c.Error)
	return c
}

// reserve has a client hold a unit for a time.
func (s *Stage) reserve(client string, ttl time.Duration) history.Op {
	held := s.call(s.Victim, history.Op{
		Kind: history.Hold, Name: requestName(s.Item, client), GoodsID: s.Item, Count: 1, TTLMS: ttl.Milliseconds(),
	})
	s.requiref(held.Outcome == history.Done, "client %s was not granted a reservation: %s", client, held.Error)
	return held
}
