package explore

import (
	"cmp"
	"context"
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
	waited  bool          // until the leases of a lost holder had ended
	idled   time.Duration // how long it waited so
	divided string        // why a step is not one step on the server; empty: each one is
	items   []int64
	race    *racing       // nil: the workload is none
	made    []string      // ids of reservations, as literals of SQL, that were made for the items before
	began   int64         // by package monotonic
	quiet   time.Duration // how long nothing must be heard of a replica in this try
	locks   string        // the keys of its locks begin so
	// renewNothing says that leases end if nobody can go on.
	renewNothing bool
	saved        []savedKey              // what the last write to Redis has changed; nil: nothing, or no fault needs it
	opening      map[*wire.Conn][]string // statements that begin a transaction, which may turn out to be of the schedule
}

func newSchedule(l *lane, faults []fault, actors []*actor) *schedule {
	return &schedule{
		began: monotonic.Now(), lane: l, faults: faults, actors: actors, current: -1, quiet: silence,
		changed: make(chan struct{}, 1), over: make(chan struct{}), touched: map[string]bool{},
		opening: map[*wire.Conn][]string{},
	}
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
	// stuckTime is how long nobody may be able to go on before the schedule is stuck: all leases have ended then.
	stuckTime = 1500 * time.Millisecond
	// longestPause is longer than any between two tries of an optimistic strategy.
	longestPause = 150 * time.Millisecond
	// longestLook is longer than the time between two looks at requests that cannot go on, unless the machine is busy.
	longestLook = 50 * time.Millisecond
)

// silenceOf is how long nothing must be heard of an actor. What it does after its answer, such as giving back a lock,
// shows up soon. A client of Redis that has lost its connection pauses for a random time before it sends its commands
// again.
func (s *schedule) silenceOf(a *actor) time.Duration {
	switch {
	case a.answered:
		return executing
	case a.pauses:
		return max(longestPause, s.quiet)
	}
	return s.quiet
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
	var flying []*exchange
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
		case quiet < s.silenceOf(a):
			wake = max(wake, s.silenceOf(a)-quiet)
		case s.lane.awake(a):
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
		slices.SortStableFunc(a.pending, func(x, y *exchange) int { return strings.Compare(x.Shape(), y.Shape()) })
		for n, h := range a.pending {
			o := Option{
				Label: label(i, n), Actor: i, Text: h.Text,
				Reads: h.Reads, Writes: h.Writes, exchange: h,
			}
			if s.polls(a.repeats[h.Text]) {
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
				s.idled += idle.waited()
				return err
			}
			continue
		}
		s.idled += idle.waited()
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
	since  time.Time
	looked time.Time     // last
	passed time.Duration // without what was lost because the machine was busy
	polls  int
	noted  bool
}

// look adds the time since the last look. It counts no more than longestLook of it: the requests may have had as little
// time to go on as this process had to look at them.
func (t *idleTime) look() {
	now := time.Now()
	if t.since.IsZero() {
		t.since, t.looked = now, now
	}
	t.passed += min(now.Sub(t.looked), longestLook)
	t.looked = now
}

// waited returns how long leases had time to end; 0 if nobody waited for that.
func (t *idleTime) waited() time.Duration {
	if !t.noted {
		return 0
	}
	return time.Since(t.since)
}

// passTime lets pollers poll, and others wait, until one of them can go on: because a lease has ended, or because it
// has only paused between two tries.
func (s *schedule) passTime(ctx context.Context, polls []Option, idle *idleTime) error {
	idle.look()
	if idle.passed > longestPause && !idle.noted {
		idle.noted, s.waited = true, true
		s.add(trace.Step{Kind: trace.TimeGoes, Text: "nobody can go on: time passes"})
		if s.lostHolder() {
			if err := s.end(ctx, s.expiring); err != nil {
				return err
			}
		}
	}
	if idle.passed > stuckTime {
		nobody := s.stuck()
		s.add(trace.Step{Kind: trace.Stuck, Text: nobody.Error()})
		return nobody
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
	return s.renewNothing || slices.ContainsFunc(s.actors, func(a *actor) bool { return a.cut })
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
	a, h := s.actors[o.Actor], o.exchange
	at := slices.Index(a.pending, h)
	if at < 0 {
		return // its client has gone
	}
	a.pending = slices.Delete(a.pending, at, at+1)
	h.step = s.step(a, h.Exchange, kind)
	a.flying = append(a.flying, h)
	a.pauses = action != wire.Pass
	a.executed = append(a.executed, monotonic.Now())
	s.touches(h.Exchange)
	s.divide(h.Exchange)
	s.save(h.Exchange)
	s.current = o.Actor
	s.event(a)
	h.decided <- action
}

func (s *schedule) add(step trace.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, &step)
}

// trace returns the steps so far. What nobody chose has no order among actors: it is sorted by actor, so that a replay
// has the same trace.
func (s *schedule) trace() (steps []trace.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, step := range s.steps {
		steps = append(steps, *step)
	}
	chosen := func(step trace.Step) bool {
		return step.Actor == "" || step.Kind != trace.Passes && step.Kind != trace.Resumes && step.Kind != trace.Answers
	}
	for i := 0; i < len(steps); {
		n := slices.IndexFunc(steps[i:], chosen)
		if n < 0 {
			n = len(steps) - i
		}
		slices.SortStableFunc(steps[i:i+n], func(a, b trace.Step) int { return cmp.Compare(a.Actor, b.Actor) })
		i += n + 1
	}
	return steps
}

// release lets everything pass from now on.
func (s *schedule) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.over)
}
