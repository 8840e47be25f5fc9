package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"stock/loadtest/internal/explore/trace"
)

// Option is something that can happen next in a schedule: an actor's step is executed, or a fault strikes.
type Option struct {
	Label string // in tokens: a letter for the actor, and a sign for the fault
	Actor int    // who takes the step, or whom the fault strikes or has join; -1 for none
	Fault string // name of the fault; empty: the step is executed
	Text  string // what is executed

	Reads, Writes []string // what the step touches; see wire.Exchange

	exchange *exchange // the step, if it is that of a schedule
}

// commutes reports whether two steps lead to the same state in either order. Faults commute with nothing.
func (o Option) commutes(other Option) bool {
	if o.Fault != "" || other.Fault != "" || o.Actor == other.Actor {
		return false
	}
	return disjoint(o.Writes, other.Writes) && disjoint(o.Writes, other.Reads) && disjoint(o.Reads, other.Writes)
}

func disjoint(a, b []string) bool {
	for _, name := range a {
		if len(b) > 0 && name == everything || slices.Contains(b, name) || slices.Contains(b, everything) {
			return false
		}
	}
	return true
}

// everything is the name of all that all stores have.
const everything = "*"

// Point is a moment of a schedule at which the search chooses.
type Point struct {
	Options []Option
	Current int // the actor that moved last; -1 at the beginning
}

// String lists the steps that can be taken.
func (p Point) String() string {
	var steps []string
	for _, o := range p.Options {
		if o.Fault == "" {
			steps = append(steps, o.Label+" "+o.Text)
		}
	}
	return strings.Join(steps, "; ")
}

// System can execute schedules, one after the other.
type System interface {
	// Run executes one schedule. It calls choose at each point, with at least one option, until all actors have ended. If
	// choose returns -1, nothing new can follow: the schedule may end in any way, and its outcome does not count. try is
	// 1 unless the schedule was executed before, and something about it was in doubt: the system should then take more
	// time to find out what can happen next. It is at most patient.
	Run(ctx context.Context, try int, choose func(Point) int) (trace.Execution, error)
}

// Search is a search for all schedules of a System within Bounds. Systems of the same kind can work on it side by side.
type Search struct {
	Bounds trace.Bounds
	// Found is called for each schedule that was executed, by one goroutine at a time.
	Found func(trace.Schedule)
	// Settled reports whether no more schedules are needed in which these faults strike; nil: all are needed. It is called
	// by the goroutines that call Found.
	Settled func(faults []string) bool

	mu      sync.Mutex
	changed *sync.Cond
	todo    []job             // in their order
	planned map[string]bool   // beginnings, and schedules that were found
	missing map[string]string // beginnings that were offered and could not be repeated, with the reason
	working int
	err     error
	tally   trace.Tally
}

// beginning is how schedules begin.
type beginning struct {
	labels      []string
	faults      []string // names of those among them
	preemptions int
}

// then adds an option to a beginning. A preemption leaves an actor that could go on. So does an actor that joins:
// without that, most schedules would be those of three actors.
func (a beginning) then(p Point, o Option) beginning {
	a.labels = append(slices.Clone(a.labels), o.Label)
	if o.Fault != "" {
		a.faults = append(slices.Clone(a.faults), o.Fault)
	}
	goesOn := func(other Option) bool { return other.Fault == "" && other.Actor == p.Current }
	if o.Actor >= 0 && o.Actor != p.Current && slices.ContainsFunc(p.Options, goesOn) {
		a.preemptions++
	}
	return a
}

func (a beginning) within(b trace.Bounds) bool {
	return len(a.faults) <= b.Faults && (b.Preemptions < 0 || a.preemptions <= b.Preemptions)
}

func (a beginning) String() string { return strings.Join(a.labels, ".") }

// job is to execute a schedule that has a beginning.
type job struct {
	beginning
	sleep []Option // steps that need not be next, because schedules in which they come earlier were executed
	again bool     // it was executed before, and something was in doubt
}

// compareJobs says which of two jobs is executed first: schedules with few faults and preemptions are.
func compareJobs(a, b job) int {
	return cmp.Or(cmp.Compare(len(a.faults), len(b.faults)), cmp.Compare(a.preemptions, b.preemptions),
		cmp.Compare(len(a.labels), len(b.labels)), slices.Compare(a.labels, b.labels))
}

// push puts a job into the queue.
func (s *Search) push(j job) {
	at, _ := slices.BinarySearchFunc(s.todo, j, compareJobs)
	s.todo = slices.Insert(s.todo, at, j)
}

// Run searches with all systems side by side, until every schedule within the bounds was executed or ctx ends.
func (s *Search) Run(ctx context.Context, systems []System) (trace.Tally, error) {
	if s.Bounds.Random {
		return s.random(ctx, systems)
	}
	s.changed = sync.NewCond(&s.mu)
	s.todo, s.planned, s.missing = []job{{}}, map[string]bool{}, map[string]string{}
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	var working sync.WaitGroup
	for _, system := range systems {
		working.Go(func() {
			for j, ok := s.next(ctx); ok; j, ok = s.next(ctx) {
				s.finish(s.execute(ctx, system, j))
			}
		})
	}
	working.Wait()
	s.tally.Waiting = len(s.todo)
	return s.tally, cmp.Or(s.err, ctx.Err())
}

// next waits for a job. It returns false if there will be none.
func (s *Search) next(ctx context.Context) (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.todo) == 0 && s.working > 0 && s.err == nil && ctx.Err() == nil {
			s.changed.Wait()
		}
		if len(s.todo) == 0 || s.err != nil || ctx.Err() != nil {
			return job{}, false
		}
		j := s.todo[0]
		s.todo = s.todo[1:]
		if s.Settled == nil || !s.Settled(j.faults) {
			s.working++
			return j, true
		}
		s.tally.Settled++
	}
}

// finish records what an execution has led to.
func (s *Search) finish(e execution, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.working--
	switch {
	case err != nil:
		s.err = cmp.Or(s.err, err)
		return
	case e.diverged:
		s.again(e)
		return
	case !e.redundant:
		s.found(e)
	}
	for _, j := range e.others {
		s.plan(j)
	}
}

// found reports a schedule that was executed to its end, once.
func (s *Search) found(e execution) {
	token := e.String()
	if s.planned["="+token] {
		return
	}
	s.planned["="+token] = true
	s.tally.Schedules++
	s.Found(trace.Schedule{Token: token, Preemptions: e.preemptions, Faults: len(e.faults), Execution: e.outcome})
}

// plan puts a job into the queue, once.
func (s *Search) plan(j job) {
	name := j.String()
	if s.missing[name] != "" { // offered a second time
		name, j.again = "again:"+name, true
	}
	if !s.planned[name] {
		s.planned[name] = true
		s.push(j)
	}
}

// again plans to execute once more what an execution branched off from: the one that offered a step that cannot be
// taken was disturbed, and may have missed others. If that one offers the step, too, it is tried again. Then it counts
// as diverged.
func (s *Search) again(e execution) {
	name := strings.Join(e.job.labels[:len(e.labels)+1], ".")
	if s.missing[name] != "" {
		if e.job.again {
			s.tally.Diverged++
			s.tally.Example = e.why
		}
		return
	}
	s.missing[name] = e.why
	s.push(job{beginning: e.beginning, again: true})
}

// execution is what came of a job.
type execution struct {
	beginning
	job       job
	bounds    trace.Bounds
	sleep     []Option
	others    []job // that branch off from it
	outcome   trace.Execution
	redundant bool // it differs from others only in the order of steps that commute
	diverged  bool
	why       string // it diverged
}

// tries is how often a schedule is executed: again if its beginning could not be repeated, because a strategy chose at
// random, or if time may have changed what came of it: timestamps in seconds differ if a new second began, and leases
// end. If time may have done so in each try, nobody knows what comes of the schedule.
// patient is the greatest value of System.Run's try.
const tries, patient = 16, 3

func (s *Search) execute(ctx context.Context, system System, j job) (execution, error) {
	for try := 1; ; try++ {
		e := execution{job: j, bounds: s.Bounds}
		patience := min(try, patient)
		if j.again {
			patience = patient
		}
		outcome, err := system.Run(ctx, patience, e.choose)
		e.outcome = outcome
		if outcome.Timed {
			const why = "each time, leases may have ended by themselves, because it took so long, or another second began"
			e.outcome.Kind, e.outcome.Evidence = trace.Unjudged, []string{why}
		}
		if err != nil || !e.diverged && !outcome.Timed || try == tries {
			return e, err
		}
	}
}

// choose is what a System calls at each point.
func (e *execution) choose(p Point) int {
	if e.diverged || e.redundant {
		return -1
	}
	if i := len(e.labels); i < len(e.job.labels) {
		at := slices.IndexFunc(p.Options, func(o Option) bool { return o.Label == e.job.labels[i] })
		if at < 0 {
			e.diverged = true
			e.why = fmt.Sprintf("%s: after %q, %s is not possible, only %s", e.job, e, e.job.labels[i], p)
			return -1
		}
		e.beginning = e.then(p, p.Options[at])
		if len(e.labels) == len(e.job.labels) {
			e.sleep = e.job.sleep
		}
		return at
	}
	at := e.favourite(p)
	if at < 0 {
		e.redundant = true
		return -1
	}
	e.branch(p, at)
	e.sleep = slices.DeleteFunc(slices.Clone(e.sleep), func(o Option) bool { return !o.commutes(p.Options[at]) })
	e.beginning = e.then(p, p.Options[at])
	return at
}

// favourite returns the step that is executed first at a point: that of the current actor if it can go on. If all steps
// sleep, it returns -1.
func (e *execution) favourite(p Point) int {
	best := -1
	for i, o := range p.Options {
		if o.Fault != "" || e.asleep(o) {
			continue
		}
		if o.Actor == p.Current {
			return i
		}
		if best < 0 {
			best = i
		}
	}
	return best
}

func (e *execution) asleep(o Option) bool {
	return slices.ContainsFunc(e.sleep, func(z Option) bool { return z.Label == o.Label })
}

// branch plans the other options of a point.
//
// A step that commutes with what is executed before it need not be tried again after that (sleep sets: Godefroid,
// Partial-Order Methods, 1996). Only steps of the current actor are put to sleep: to execute such a step earlier never
// takes more preemptions, so the equivalent schedule is within the bounds, too.
func (e *execution) branch(p Point, taken int) {
	for i, o := range p.Options {
		other := job{beginning: e.then(p, o)}
		if i == taken || !other.within(e.bounds) || o.Fault == "" && e.asleep(o) {
			continue
		}
		if o.Fault == "" && !e.bounds.NoReduction {
			sleeping := e.sleep
			if t := p.Options[taken]; t.Actor == p.Current && t.Fault == "" {
				sleeping = append(slices.Clone(sleeping), t)
			}
			for _, z := range sleeping {
				if z.commutes(o) {
					other.sleep = append(other.sleep, z)
				}
			}
		}
		e.others = append(e.others, other)
	}
}

// errDiverged is returned for a token that does not describe a schedule of the system.
var errDiverged = errors.New("the schedule could not be repeated")

// Replay executes the schedule of a token.
func Replay(ctx context.Context, system System, token string) (trace.Execution, error) {
	labels := strings.Split(token, ".")
	if token == "" {
		labels = nil
	}
	s := &Search{}
	e, err := s.execute(ctx, system, job{beginning: beginning{labels: labels}})
	switch {
	case err != nil:
	case e.diverged:
		err = fmt.Errorf("%w: %s", errDiverged, e.why)
	case len(e.labels) < len(labels):
		err = fmt.Errorf("%w: it ended after %q", errDiverged, e)
	}
	return e.outcome, err
}
