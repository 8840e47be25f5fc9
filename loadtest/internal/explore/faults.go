package explore

import (
	"context"
	"fmt"
	"slices"

	"stock/internal/monotonic"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/explore/wire"
)

// fault is something that can strike between any two steps of a schedule.
type fault struct {
	name string
	// sign stands for it in tokens, after the letter of the actor that it strikes, if it strikes one.
	sign  string
	title string

	action wire.Action // what becomes of a step that it strikes
	kills  bool        // it strikes an actor's replica
	starts string      // the name of the actor whose request it starts
	// store is called if it strikes a store.
	store func(context.Context, *schedule) error
	when  func(*schedule) bool // it can strike; nil: always. schedule.mu is held
}

// Names of the faults.
const (
	LostRequest = trace.LostRequest
	LostReply   = trace.LostReply
	ReplicaDies = "replica-dies"
	LeaseEnds   = "lease-ends"
	SentAgain   = "sent-again"
	Restocked   = "restocked"
	StockSet    = "stock-set"
	KeyGone     = "key-gone"
	Promoted    = "promoted"
	TimeOver    = "time-over"
)

// faultTable lists all faults. An actor is lost if its replica dies: its locks stay until their leases end.
var faultTable = []fault{
	{
		name: LostRequest, sign: "-", action: wire.LoseBoth,
		title: "the connection is cut before a request reaches the store",
	},
	{
		name: LostReply, sign: "~", action: wire.LoseReply,
		title: "the store executes a request, and its reply is lost with the connection",
	},
	{
		name: ReplicaDies, sign: "#", action: wire.LoseBoth, kills: true,
		title: "a replica dies: its connections are cut, and nothing follows",
	},
	{
		name: LeaseEnds, sign: "!lease",
		title: "the leases of all locks end in the store, and no holder notices; GET_LOCK loses its connection",
		when:  func(s *schedule) bool { return len(s.leases()) > 0 },
		store: func(ctx context.Context, s *schedule) error { return s.end(ctx, s.leases) },
	},
	{
		name: SentAgain, sign: "!again",
		title:  "a client gets no answer in time, and sends its request again to another replica",
		when:   func(s *schedule) bool { return !s.actors[0].answered },
		starts: againName,
	},
	{
		name: Restocked, sign: "!restock",
		title:  "units are put back",
		starts: restockName,
	},
	{
		name: StockSet, sign: "!set",
		title:  "the stock is set",
		starts: setName,
	},
	{
		name: KeyGone, sign: "!gone",
		title: "the keys of all locks are deleted in Redis, also those without a lease",
		when:  func(s *schedule) bool { return len(s.lockKeys()) > len(s.leases()) },
		store: func(ctx context.Context, s *schedule) error { return s.end(ctx, s.lockKeys) },
	},
	{
		name: Promoted, sign: "!promoted",
		title: "a replica of Redis is promoted that has not received the last write; all connections are cut",
		when:  func(s *schedule) bool { return s.saved != nil },
		store: func(ctx context.Context, s *schedule) error { return s.lane.promote(ctx, s.saved) },
	},
	{
		name: TimeOver, sign: "!over",
		title: "the time of all reservations is over",
		when:  func(s *schedule) bool { return s.race != nil && s.lane.reservations(s.items) > 0 },
		store: func(ctx context.Context, s *schedule) error {
			ctx, cancel := context.WithTimeout(ctx, clientTimeout)
			defer cancel()
			defer s.race.timePasses(monotonic.Now())
			return s.lane.expireReservations(ctx, s.items)
		},
	},
}

// Names of the actors that a fault starts.
const (
	againName   = "A again"
	restockName = "restock"
	setName     = "admin"
)

// options lists where the fault can strike now, given the steps that can be taken. s.mu is held.
func (f fault) options(s *schedule, steps []Option) (options []Option) {
	late := slices.ContainsFunc(s.actors, func(a *actor) bool { return a.started && !a.first })
	if slices.Contains(s.struck, f.name) && f.store != nil || f.starts != "" && late || f.when != nil && !f.when(s) {
		return nil
	}
	o := Option{Label: f.sign, Actor: -1, Fault: f.name, Text: f.title}
	switch {
	case f.store != nil:
		return []Option{o}
	case f.starts != "":
		o.Actor = slices.IndexFunc(s.actors, func(a *actor) bool { return a.name == f.starts })
		return []Option{o}
	}
	for _, step := range steps {
		if s.actors[step.Actor].first {
			o.Label, o.Actor, o.exchange = step.Label+f.sign, step.Actor, step.exchange
			options = append(options, o)
		}
	}
	return options
}

// strike lets the fault strike.
func (s *schedule) strike(ctx context.Context, f fault, o Option) error {
	s.mu.Lock()
	s.struck = append(s.struck, f.name)
	s.mu.Unlock()
	switch {
	case f.starts != "":
		s.add(trace.Step{Kind: trace.Strikes, Text: f.title, Fault: f.name})
		s.start(ctx, s.actors[o.Actor])
		return s.firstStep(ctx, o.Actor)
	case f.store != nil:
		s.add(trace.Step{Kind: trace.Strikes, Text: f.title, Fault: f.name})
		if err := f.store(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		s.forget()
	default:
		a := s.actors[o.Actor]
		s.add(trace.Step{Actor: a.name, Kind: trace.Strikes, Text: f.title, Fault: f.name})
		a.cut = true
		if f.kills {
			s.kill(a)
			return nil
		}
		s.let(o, f.action, trace.Executes)
	}
	return nil
}

// firstStep executes the first step of a request that a fault has started. To start it earlier would make no
// difference, because nobody notices a request before that step.
func (s *schedule) firstStep(ctx context.Context, who int) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	pending := slices.Clone(s.actors[who].pending)
	s.mu.Unlock()
	if len(pending) > 0 {
		s.let(Option{Actor: who, exchange: pending[0]}, wire.Pass, trace.Executes)
	}
	return nil
}

// kill has a replica die: its client gets no answer.
func (s *schedule) kill(a *actor) {
	s.mu.Lock()
	a.lost = true
	s.mu.Unlock()
	a.hangUp() // before its replica can answer that it has lost its connections
	s.lane.replicas[a.replica].cut()
	s.forget()
}

// forget lets actors repeat steps: something else has happened since.
func (s *schedule) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actors {
		for _, r := range a.repeats {
			r.times = 0
		}
	}
}
