package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/explore/wire"
)

// schedule is one schedule while it is executed: its actors, and what each of them does.
//
// An actor is at a step while the gate holds an exchange of its replica; it executes while an exchange has passed and
// is not answered; it waits in a store if the store says so; it waits in its process if nothing of it is under way.
type schedule struct {
	lane   *lane
	faults []fault

	mu      sync.Mutex
	changed chan struct{} // receives after every event; one is kept
	actors  []*actor
	sending sync.WaitGroup
	over    chan struct{} // closed when everything may pass
	steps   []*trace.Step
	current int
	struck  []string // the faults so far
	touched map[string]bool
	waited  bool // until the leases of a lost holder had ended
	items   []int64
	silence time.Duration // see the constant
	locks   string        // the keys of its locks begin so
	// renewNothing says that leases end if nobody can go on.
	renewNothing bool
	saved        []savedKey              // what the last write to Redis has changed; nil: nothing, or no fault needs it
	opening      map[*wire.Conn][]string // statements that begin a transaction, which may turn out to be of the schedule
	wrote        map[string]string       // who was the last to write something in Redis
}

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
	pending   []*held
	flying    []*flight
	conns     []*wire.Conn // that its replica has used
	lastEvent time.Time
	waiting   bool               // in its process: nothing was heard of it for a while
	repeats   map[string]*repeat // by text
	cut       bool               // a connection of its replica was cut
	lost      bool               // its replica was killed
	executed  []int64            // when steps of its were executed
	pauses    bool               // it has lost a connection, and was not heard of since
}

// repeat is a step that would have the same reply again, because nobody else has changed what it touches.
type repeat struct {
	reply   string
	touched []string
	times   int // it had this reply
}

// polls reports whether a step only waits for others. One repetition is no poll: a request may read the stock twice.
func (r *repeat) polls() bool { return r != nil && r.times > 1 }

// held is an exchange that the gate holds.
type held struct {
	exchange *wire.Exchange
	decided  chan wire.Action
}

// flight is an exchange that has passed, and is not answered yet.
type flight struct {
	*wire.Exchange
	step *trace.Step // its line of the trace; nil if it was not chosen
}

func newSchedule(l *lane, faults []fault, actors []*actor) *schedule {
	return &schedule{
		lane: l, faults: faults, actors: actors, current: -1, silence: silence,
		changed: make(chan struct{}, 1), over: make(chan struct{}), touched: map[string]bool{},
		opening: map[*wire.Conn][]string{}, wrote: map[string]string{},
	}
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
	if a == nil || e.Local || e.Handshake {
		if a != nil {
			a.flying = append(a.flying, &flight{Exchange: e})
			s.event(a)
		}
		s.mu.Unlock()
		return wire.Pass
	}
	if a.lost {
		s.mu.Unlock()
		return wire.LoseBoth
	}
	h := &held{exchange: e, decided: make(chan wire.Action, 1)}
	for _, text := range s.opening[e.Conn] {
		s.step(a, &wire.Exchange{Conn: e.Conn, Store: e.Store, Text: text}, trace.Passes)
	}
	delete(s.opening, e.Conn)
	a.pending = append(a.pending, h)
	a.pauses = false
	s.event(a)
	s.mu.Unlock()
	select {
	case action := <-h.decided:
		return action
	case <-s.over:
		return wire.Pass
	case <-gone:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.pending = slices.DeleteFunc(a.pending, func(other *held) bool { return other == h })
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
	if e.Local && !e.Handshake && e.Store == "mysql" && e.Text != "PING" {
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
	if at := slices.IndexFunc(a.flying, func(f *flight) bool { return f.Exchange == e }); at >= 0 {
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
func (s *schedule) note(a *actor, f *flight, reply string) {
	switch {
	case f.Handshake:
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
	a.repeats[e.Text] = &repeat{reply: reply, touched: slices.Concat(e.Reads, e.Writes), times: 1}
	if !slices.Contains([]string{"nil", "0"}, reply) && !strings.HasPrefix(reply, "error") {
		for _, name := range e.Writes {
			s.wrote[name] = a.name
		}
	}
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

func (s *schedule) of(replica int) *actor {
	for _, a := range s.actors {
		if a.replica == replica && a.started {
			return a
		}
	}
	return nil
}

// begin starts the requests, one after the other, so that their first steps are the same in every schedule.
func (s *schedule) begin(ctx context.Context) error {
	for _, a := range s.actors {
		if a.first {
			s.start(ctx, a)
			if err := s.settle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// start sends the request of an actor.
func (s *schedule) start(ctx context.Context, a *actor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.started, a.repeats = true, map[string]*repeat{}
	ctx, a.hangUp = context.WithCancel(ctx)
	s.event(a)
	s.sending.Go(func() {
		tell := func(text string) { s.add(trace.Step{Actor: a.name, Text: text, Kind: trace.Answers}) }
		answers, err := a.send(ctx, tell)
		s.mu.Lock()
		defer s.mu.Unlock()
		a.answered, a.answers, a.err = true, answers, err
		s.event(a)
	})
}

// Times of the controller.
const (
	// executing is how long an exchange may be under way before the store is asked whether it waits.
	executing = 2 * time.Millisecond
	// silence is how long nothing must be heard of a replica, and all its threads must sleep, until its request is taken
	// to wait in its process. It is longer than the pauses between two polls of a lock: see serviceArgs.
	silence = 15 * time.Millisecond
	// leaseTime is how long nobody may be able to go on before the schedule is stuck: all leases have ended then.
	leaseTime = 1500 * time.Millisecond
	// longestPause is longer than any between two tries of an optimistic strategy.
	longestPause = 150 * time.Millisecond
)

// silenceOf is how long nothing must be heard of an actor. A client of Redis that has lost its connection pauses for a
// random time before it sends its commands again.
func (s *schedule) silenceOf(a *actor) time.Duration {
	if a.pauses {
		return max(longestPause, s.silence)
	}
	return s.silence
}

// settle waits until every actor is at a step, waits, or has ended.
func (s *schedule) settle(ctx context.Context) error {
	for {
		wake, err := s.unsettled(ctx)
		if err != nil || wake == 0 {
			return err
		}
		select {
		case <-s.changed:
		case <-time.After(wake):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unsettled returns after which time to look again; 0 if every actor has settled.
func (s *schedule) unsettled(ctx context.Context) (wake time.Duration, err error) {
	s.mu.Lock()
	var flying []*flight
	for _, a := range s.actors {
		quiet := time.Since(a.lastEvent)
		switch {
		case a.started && a.lost && !a.answered: // its client has hung up
			wake = max(wake, executing)
		case !a.started || len(a.pending) > 0 && len(a.flying) == 0 || a.waiting:
		case len(a.flying) > 0:
			flying = append(flying, a.flying...)
			if quiet < executing {
				wake = max(wake, executing-quiet)
			}
		case a.answered && quiet < executing: // what it still does, such as giving back a lock, shows up soon
			wake = max(wake, executing-quiet)
		case !a.answered && quiet < s.silenceOf(a):
			wake = max(wake, s.silenceOf(a)-quiet)
		case !s.lane.asleep(a):
			a.lastEvent = time.Now()
			wake = max(wake, executing)
		default:
			a.waiting = true
		}
	}
	s.mu.Unlock()
	if wake > 0 || len(flying) == 0 {
		return wake, nil
	}
	blocked, err := s.lane.blocked(ctx, flying)
	if err != nil {
		return 0, err
	}
	if !blocked {
		return executing, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actors {
		for _, f := range a.flying {
			if !slices.Contains(flying, f) {
				return executing, nil
			}
			if f.step != nil {
				f.step.Kind = trace.Waits
			}
		}
	}
	return 0, nil
}

// options lists what can happen next, the steps first. It is empty if nobody can go on.
func (s *schedule) options() (options []Option, repeating bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var repeated []Option
	for i, a := range s.actors {
		if a.lost {
			continue
		}
		slices.SortStableFunc(a.pending, func(x, y *held) int { return strings.Compare(x.exchange.Shape, y.exchange.Shape) })
		for n, h := range a.pending {
			o := Option{
				Label: label(i, n), Actor: i, Text: h.exchange.Text,
				Reads: h.exchange.Reads, Writes: h.exchange.Writes,
			}
			if a.repeats[h.exchange.Text].polls() {
				repeated = append(repeated, o)
				continue
			}
			options = append(options, o)
		}
	}
	if len(options) == 0 {
		options, repeating = repeated, len(repeated) > 0
	}
	if steps := options; len(steps) > 0 && !repeating {
		for _, f := range s.faults {
			options = append(options, f.options(s, steps)...)
		}
	}
	return options, repeating
}

// label names the n-th step that an actor could take.
func label(actor, n int) string {
	text := string(rune('A' + actor))
	if n > 0 {
		text += fmt.Sprint(n + 1)
	}
	return text
}

// ended reports whether every actor has ended, and nothing of it is under way.
func (s *schedule) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actors {
		if a.started && (!a.answered || len(a.pending) > 0 || len(a.flying) > 0) {
			return false
		}
	}
	return true
}

// errStuck is returned when nobody can go on.
var errStuck = errors.New("nobody can go on")

// play executes the schedule.
func (s *schedule) play(ctx context.Context, choose func(Point) int) error {
	var idle idleTime
	for {
		if err := s.settle(ctx); err != nil {
			return err
		}
		if s.ended() {
			return nil
		}
		options, polling := s.options()
		if len(options) == 0 || polling {
			if err := s.passTime(ctx, options, &idle); err != nil {
				return err
			}
			continue
		}
		idle = idleTime{}
		at := choose(Point{Options: options, Current: s.current})
		if at < 0 {
			return nil
		}
		if err := s.take(ctx, options[at]); err != nil {
			return err
		}
	}
}

// idleTime is the time in which nobody can go on.
type idleTime struct {
	since time.Time
	polls int
	noted bool
}

// passTime lets pollers poll, and others wait, until one of them can go on: because a lease has ended, or because it
// has only paused between two tries.
func (s *schedule) passTime(ctx context.Context, polls []Option, idle *idleTime) error {
	if idle.since.IsZero() {
		idle.since = time.Now()
	}
	passed := time.Since(idle.since)
	if passed > longestPause && !idle.noted {
		idle.noted, s.waited = true, true
		s.add(trace.Step{Kind: trace.TimeGoes, Text: "nobody can go on: time passes"})
		if s.lostHolder() {
			s.end(s.expiring)
		}
	}
	if passed > leaseTime {
		s.add(trace.Step{Kind: trace.Stuck, Text: "nobody can go on: " + s.whoWaits(ctx)})
		return errStuck
	}
	if len(polls) > 0 {
		s.let(polls[idle.polls%len(polls)], wire.Pass, trace.Polls)
		idle.polls++
	}
	if len(polls) == 0 || idle.polls > len(polls) {
		s.pause(ctx)
	}
	return nil
}

// lostHolder reports whether somebody may be gone who held a lock. Nobody renews its lease then.
func (s *schedule) lostHolder() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewNothing || slices.ContainsFunc(s.faults, func(f fault) bool {
		return f.claim == claimCrash && slices.Contains(s.struck, f.name)
	})
}

// pause waits for an event, or for a short time.
func (s *schedule) pause(ctx context.Context) {
	select {
	case <-s.changed:
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actors {
		a.waiting = false
	}
}

// take lets an option happen.
func (s *schedule) take(ctx context.Context, o Option) error {
	for _, f := range s.faults {
		if f.name == o.Fault {
			return s.strike(ctx, f, o)
		}
	}
	s.let(o, wire.Pass, trace.Executes)
	return nil
}

// let decides what becomes of the step of an option.
func (s *schedule) let(o Option, action wire.Action, kind trace.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.actors[o.Actor]
	for n, h := range a.pending {
		if label(o.Actor, n) != strings.TrimRight(o.Label, faultSigns) {
			continue
		}
		a.pending = slices.Delete(a.pending, n, n+1)
		a.flying = append(a.flying, &flight{h.exchange, s.step(a, h.exchange, kind)})
		a.pauses = action != wire.Pass
		a.executed = append(a.executed, monotonic.Now())
		s.touches(h.exchange)
		s.save(h.exchange)
		s.current = o.Actor
		s.event(a)
		h.decided <- action
		return
	}
}

// touches notes what an exchange touches. s.mu is held.
func (s *schedule) touches(e *wire.Exchange) {
	for _, name := range slices.Concat(e.Reads, e.Writes) {
		s.touched[name] = true
	}
}

func (s *schedule) add(step trace.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, &step)
}

// trace returns the steps so far.
func (s *schedule) trace() (steps []trace.Step) {
	for _, step := range s.steps {
		steps = append(steps, *step)
	}
	return steps
}

// died reports whether a replica was killed.
func (s *schedule) died(replica int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(replica)
	return a != nil && a.lost
}

// release lets everything pass from now on.
func (s *schedule) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.over)
}
