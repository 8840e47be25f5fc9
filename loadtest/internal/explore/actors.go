package explore

import (
	"context"
	"slices"
	"time"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/explore/wire"
)

// actor is a request, and what its replica does for it.
type actor struct {
	name    string
	replica int
	first   bool // it starts with the schedule
	send    client

	started   bool
	hangUp    context.CancelFunc
	answered  bool
	answers   answers
	err       error
	pending   []*exchange  // that the gate holds
	flying    []*exchange  // that have passed
	conns     []*wire.Conn // that its replica has used
	lastEvent time.Time
	waiting   bool               // in its process: nothing was heard of it for a while
	repeats   map[string]*repeat // by text
	cut       bool               // a connection of its replica was cut
	lost      bool               // its replica was killed
	executed  []int64            // when its steps were executed
	pauses    bool               // it has lost a connection, and was not heard of since
}

// repeat is a step that would have the same reply again, because nobody else has changed what it touches.
type repeat struct {
	reply   string
	touched []string
	times   int // it had this reply
}

// polls reports whether a step only waits for others. One repetition is no poll: a request may read the stock twice. A
// service of the user may read it more often, and goes on with a step that is new.
func (s *schedule) polls(r *repeat) bool {
	most := 1
	if s.lane.subject != nil {
		most = 4
	}
	return r != nil && r.times > most
}

// exchange is one that the gate holds, or that has passed and is not answered yet.
type exchange struct {
	*wire.Exchange
	decided chan wire.Action
	step    *trace.Step // its line of the trace; nil until it is chosen
}

func (s *schedule) of(replica int) *actor {
	for _, a := range s.actors {
		if a.replica == replica && a.started {
			return a
		}
	}
	return nil
}

// event wakes the goroutine that runs the schedule. s.mu is held.
func (s *schedule) event(a *actor) {
	if a != nil {
		a.lastEvent, a.waiting = time.Now(), false
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// arrive holds an exchange until the search chooses it.
func (s *schedule) arrive(replica int, e *wire.Exchange, gone <-chan struct{}) wire.Action {
	s.mu.Lock()
	a := s.of(replica)
	if a == nil || e.Local {
		if a != nil {
			a.flying = append(a.flying, &exchange{Exchange: e})
			s.event(a)
		}
		s.mu.Unlock()
		return wire.Pass
	}
	if a.lost {
		s.mu.Unlock()
		return wire.LoseBoth
	}
	h := &exchange{Exchange: e, decided: make(chan wire.Action, 1)}
	for _, text := range s.opening[e.Conn] {
		s.step(a, &wire.Exchange{Conn: e.Conn, Store: e.Store, Text: text}, trace.Passes)
	}
	delete(s.opening, e.Conn)
	a.pending = append(a.pending, h)
	a.pauses = false
	s.event(a)
	s.mu.Unlock()
	e.Noted()
	select {
	case action := <-h.decided:
		return action
	case <-s.over:
		return wire.Pass
	case <-gone:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.pending = slices.DeleteFunc(a.pending, func(other *exchange) bool { return other == h })
	s.event(a)
	select {
	case action := <-h.decided: // it was chosen just before its client has gone
		return action
	default:
		return wire.LoseBoth
	}
}

// pass notes an exchange that may belong to the schedule: what begins a transaction does not say what it is about.
func (s *schedule) pass(e *wire.Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Local && e.Store != "redis" && e.Text != "PING" && e.Text != "SYNC" {
		s.opening[e.Conn] = append(s.opening[e.Conn], e.Text)
	} else {
		delete(s.opening, e.Conn)
	}
}

// step adds a line to the trace. s.mu is held.
func (s *schedule) step(a *actor, e *wire.Exchange, kind trace.Kind) *trace.Step {
	step := &trace.Step{Actor: a.name, Text: e.Text, Kind: kind, Store: e.Store}
	s.steps = append(s.steps, step)
	for _, c := range a.conns {
		if c == e.Conn {
			return step
		}
		if c.Store == e.Store {
			step.Conn++
		}
	}
	a.conns = append(a.conns, e.Conn)
	return step
}

// replied notes the reply of an exchange that has passed.
func (s *schedule) replied(replica int, e *wire.Exchange, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(replica)
	if a == nil {
		return
	}
	if at := slices.IndexFunc(a.flying, func(f *exchange) bool { return f.Exchange == e }); at >= 0 {
		f := a.flying[at]
		a.flying = slices.Delete(a.flying, at, at+1)
		reply := e.Reply
		if err != nil {
			reply = trace.ConnectionEnded
		}
		s.note(a, f, reply)
	}
	s.event(a)
}

// note adds a reply to the trace.
func (s *schedule) note(a *actor, f *exchange, reply string) {
	switch {
	case f.step == nil:
		s.step(a, f.Exchange, trace.Passes).Reply = reply
	case f.step.Kind == trace.Waits:
		s.changes(a, f.Exchange, reply)
		resumed := *f.step
		resumed.Reply, resumed.Kind = reply, trace.Resumes
		s.steps = append(s.steps, &resumed)
		f.step.Reply = "waits"
	default:
		f.step.Reply = reply
		if s.changes(a, f.Exchange, reply) && f.step.Kind == trace.Polls { // pollers would fill the trace
			s.steps = slices.DeleteFunc(s.steps, func(step *trace.Step) bool { return step == f.step })
		}
	}
}

// changes notes which steps may have another reply after this one. If a step gets the same reply as before, it has
// changed nothing, and changes returns true: pollers would otherwise keep each other going.
func (s *schedule) changes(a *actor, e *wire.Exchange, reply string) (again bool) {
	last := a.repeats[e.Text]
	if last != nil && last.reply == reply && !endsTransaction(e) { // every COMMIT has the same text
		last.times++
		return true
	}
	if last == nil && s.lane.subject != nil {
		for _, r := range a.repeats {
			r.times = min(r.times, 1)
		}
	}
	a.repeats[e.Text] = &repeat{reply: reply, touched: slices.Concat(e.Reads, e.Writes), times: 1}
	for _, other := range s.actors {
		if other == a {
			continue
		}
		for _, r := range other.repeats {
			if !disjoint(e.Writes, r.touched) {
				r.times = 0
			}
		}
	}
	return false
}

// heard notes that a store sent something unasked, or that a connection has ended.
func (s *schedule) heard(replica int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.event(s.of(replica))
}

// serves reports whether a replica has a request to answer.
func (s *schedule) serves(replica int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(replica)
	return a != nil && !a.answered
}

// touches notes what an exchange touches. s.mu is held.
func (s *schedule) touches(e *wire.Exchange) {
	for _, name := range slices.Concat(e.Reads, e.Writes) {
		s.touched[name] = true
	}
}
