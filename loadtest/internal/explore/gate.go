package explore

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"stock/loadtest/internal/explore/wire"
)

// Arrive implements wire.Gate.
func (r *replica) Arrive(e *wire.Exchange, gone <-chan struct{}) wire.Action {
	running := r.lane.running()
	serving := running != nil && r.lane.subject != nil && running.serves(r.number)
	if s := r.lane.concerned(e, serving); s != nil {
		return s.arrive(r.number, e, gone)
	}
	switch {
	case running == nil:
	case r.lane.subject == nil && looksForWork(e):
		e.Noted()
		select {
		case <-running.over:
		case <-gone:
		}
	default:
		running.pass(e)
	}
	return wire.Pass
}

// Answered implements wire.Gate.
func (r *replica) Answered(e *wire.Exchange, err error) {
	if s := r.lane.running(); s != nil {
		s.replied(r.number, e, err)
	}
}

// Heard implements wire.Gate.
func (r *replica) Heard() {
	if s := r.lane.running(); s != nil {
		s.heard(r.number)
	}
}

// concerned returns the schedule to which an exchange belongs: it names an item or what was made for it, such as a
// reservation, or ends a transaction that did. It returns nil for others. Replicas look for work all the time, and end
// what an earlier schedule has left behind.
//
// A service of the user may know an item by another name than its clients. So whatever it does while it is serving a
// request belongs to the schedule, unless it does the same without one.
func (l *lane) concerned(e *wire.Exchange, serving bool) *schedule {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		if l.watching {
			l.idle[e.Shape()] = true
		}
		if l.heard != nil && len(e.Writes) > 0 && !l.idle[e.Shape()] {
			l.heard[e.Shape()] = true
		}
		return nil
	}
	_, script := l.subject.(*scripted)
	switch {
	case script:
	case !scansStreams(e) && l.named(e):
		l.sticky[e.Conn] = true
		l.names = append(l.names, uuids.FindAllString(e.Text, -1)...)
	case l.sticky[e.Conn] && endsTransaction(e):
	case serving && (!l.idle[e.Shape()] || e.Parts != ""): // which may be anything
		l.sticky[e.Conn] = l.sticky[e.Conn] || !e.Local
	default:
		if beginsTransaction(e) { // for something else: connections are shared
			delete(l.sticky, e.Conn)
		}
		return nil
	}
	return l.now
}

// named reports whether an exchange names an item of the schedule, or what was made for one.
func (l *lane) named(e *wire.Exchange) bool {
	return slices.ContainsFunc(l.names, func(name string) bool { return strings.Contains(e.Text, name) })
}

// looksForWork reports whether a replica looks for reservations that have expired, or for sales on their way to MySQL,
// as it does once a second. Held back, it cannot find those of a schedule by chance: the schedule's own requests find
// its reservations, and write its sales.
func looksForWork(e *wire.Exchange) bool {
	return strings.Contains(e.Text, "FROM reservation") || scansStreams(e)
}

// scansStreams reports whether a replica asks for the state of all streams of sales.
func scansStreams(e *wire.Exchange) bool {
	return strings.HasPrefix(e.Text, "XINFO ") || strings.HasPrefix(e.Text, "EXISTS ")
}

func beginsTransaction(e *wire.Exchange) bool {
	text := strings.ToUpper(e.Text)
	return strings.HasPrefix(text, "BEGIN") || strings.HasPrefix(text, "START TRANSACTION")
}

// endsTransaction reports whether an exchange concerns the whole transaction of its connection.
func endsTransaction(e *wire.Exchange) bool {
	text := strings.ToUpper(e.Text)
	return strings.HasPrefix(text, "COMMIT") || strings.HasPrefix(text, "ROLLBACK")
}

// uuids matches the ids that a service makes, as literals of SQL.
var uuids = regexp.MustCompile(`\b0x[0-9a-f]{32}\b`)

// passing is the gate of the masters of Redlock. Their exchanges pass: a lock makes many of them at the same time, in
// an order that does not matter to others unless they lose a majority. What has the reply of before is a poll, and
// changes nothing.
type passing struct {
	*replica
	mu   sync.Mutex
	last map[string]string // replies, by the shape of what was asked
}

// Arrive implements wire.Gate.
func (p *passing) Arrive(e *wire.Exchange, _ <-chan struct{}) wire.Action {
	if s := p.lane.concerned(e, false); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.touches(e)
	}
	return wire.Pass
}

// Answered implements wire.Gate.
func (p *passing) Answered(e *wire.Exchange, err error) {
	shape := e.Shape()
	p.mu.Lock()
	same := p.last[shape] == e.Reply
	p.last[shape] = e.Reply
	p.mu.Unlock()
	if !same {
		p.replica.Answered(e, err)
	}
}
