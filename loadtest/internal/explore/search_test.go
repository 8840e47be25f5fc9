package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/explore/trace"
)

// program is a System in memory: actors that read and write variables. What each has read, and the variables at the
// end, are its outcome.
type program [][]operation

type operation struct {
	variable string
	write    int  // the value; 0: a read
	faulty   bool // it can be lost
}

func (p program) Run(_ context.Context, _ int, choose func(Point) int) (trace.Execution, error) {
	next := make([]int, len(p))
	variables := map[string]int{}
	read := make([][]int, len(p))
	for current := -1; ; {
		point := Point{Current: current}
		for actor := range p {
			if next[actor] < len(p[actor]) {
				point.Options = append(point.Options, p.option(actor, next[actor]))
			}
		}
		for _, o := range slices.Clone(point.Options) {
			if p[o.Actor][next[o.Actor]].faulty {
				point.Options = append(point.Options, Option{Label: o.Label + "-", Actor: o.Actor, Fault: LostRequest})
			}
		}
		if len(point.Options) == 0 {
			return trace.Execution{Kind: fmt.Sprint(read, variables)}, nil
		}
		at := choose(point)
		if at < 0 {
			return trace.Execution{}, nil
		}
		chosen := point.Options[at]
		current = chosen.Actor
		op := p[current][next[current]]
		next[current]++
		switch {
		case chosen.Fault != "":
		case op.write != 0:
			variables[op.variable] = op.write
		default:
			read[current] = append(read[current], variables[op.variable])
		}
	}
}

func (p program) option(actor, step int) Option {
	op := p[actor][step]
	o := Option{Label: string(rune('A' + actor)), Actor: actor}
	if op.write != 0 {
		o.Writes = []string{op.variable}
	} else {
		o.Reads = []string{op.variable}
	}
	return o
}

// ticking is a System whose every first execution is disturbed by the beginning of another second.
type ticking struct{ program }

func (s ticking) Run(ctx context.Context, try int, choose func(Point) int) (trace.Execution, error) {
	o, err := s.program.Run(ctx, try, choose)
	if try == 1 {
		o.Kind, o.Timed = "disturbed", true
	}
	return o, err
}

func TestAScheduleInWhichAnotherSecondBeganIsExecutedAgain(t *testing.T) {
	system := ticking{program{{{variable: "x"}, {variable: "x", write: 1}}, {{variable: "x"}, {variable: "x", write: 2}}}}
	if outcomes, tally := search(t, system, trace.Bounds{}, 1); outcomes["disturbed"] > 0 || tally.Schedules == 0 {
		t.Errorf("%v after %+v; want some schedules, and none that was disturbed", outcomes, tally)
	}
	o, err := Replay(t.Context(), system, "A.B.A.B")
	if err != nil || o.Kind == "disturbed" {
		t.Errorf("the replay ended %q: %v", o.Kind, err)
	}
}

// late is a System whose every execution takes longer than a lease.
type late struct{ program }

func (s late) Run(ctx context.Context, try int, choose func(Point) int) (trace.Execution, error) {
	o, err := s.program.Run(ctx, try, choose)
	o.Kind, o.Timed = trace.LostUpdate, true
	return o, err
}

func TestWhatTimeMayHaveChangedEachTimeIsNotJudged(t *testing.T) {
	system := late{program{same(2), same(2)}}
	outcomes, tally := search(t, system, trace.Bounds{Preemptions: -1}, 1)
	if tally.Schedules == 0 || outcomes[trace.Unjudged] != tally.Schedules {
		t.Errorf("%v after %d schedules, want none that is judged", outcomes, tally.Schedules)
	}
	outcomes, _ = search(t, system, trace.Bounds{Random: true, Duration: 50 * time.Millisecond}, 1)
	if len(outcomes) > 0 {
		t.Errorf("%v by chance, want nothing", outcomes)
	}
	if o, err := Replay(t.Context(), system, "A.B.A.B"); err != nil || o.Kind != trace.Unjudged || len(o.Evidence) != 1 {
		t.Errorf("the replay is %s, %q: %v", o.Kind, o.Evidence, err)
	}
}

// search returns how often each outcome was found.
func search(t *testing.T, p System, bounds trace.Bounds, workers int) (outcomes map[string]int, tally trace.Tally) {
	t.Helper()
	outcomes = map[string]int{}
	s := &Search{Bounds: bounds, Found: func(s trace.Schedule) { outcomes[s.Execution.Kind]++ }}
	tally, err := s.Run(t.Context(), slices.Repeat([]System{p}, workers))
	must.Succeed(t, err)
	return outcomes, tally
}

// same are n steps that touch the same variable.
func same(n int) []operation { return slices.Repeat([]operation{{variable: "x"}}, n) }

func TestEveryInterleavingIsExecutedOnce(t *testing.T) {
	for _, test := range []struct {
		program program
		want    int
	}{
		{program{same(6), same(6)}, 924}, {program{same(2), same(2), same(2)}, 90}, {program{same(3), {}}, 1},
	} {
		tokens := map[string]bool{}
		s := &Search{
			Bounds: trace.Bounds{Preemptions: -1, NoReduction: true},
			Found:  func(s trace.Schedule) { tokens[s.Token] = true },
		}
		tally, err := s.Run(t.Context(), []System{test.program, test.program})
		if err != nil || tally.Schedules != test.want || len(tokens) != test.want {
			t.Errorf("%v: %+v and %d different ones, %v; want %d", test.program, tally, len(tokens), err, test.want)
		}
	}
}

func TestThePreemptionBoundCountsSwitchesFromActorsThatCouldGoOn(t *testing.T) {
	p := program{same(4), same(4)}
	for bound, want := range map[int]int{0: 2, 1: 8, 2: 26} {
		if _, tally := search(t, p, trace.Bounds{Preemptions: bound, NoReduction: true}, 1); tally.Schedules != want {
			t.Errorf("%d preemptions: %d schedules, want %d", bound, tally.Schedules, want)
		}
	}
}

func TestStepsThatCommuteAreNotTriedInBothOrders(t *testing.T) {
	p := program{
		{{variable: "a", write: 1}, {variable: "a", write: 2}},
		{{variable: "b", write: 1}, {variable: "b", write: 2}},
	}
	outcomes, tally := search(t, p, trace.Bounds{Preemptions: -1}, 1)
	if len(outcomes) != 1 || tally.Schedules >= 6 {
		t.Errorf("%v, %+v; want one outcome and fewer than 6 schedules", outcomes, tally)
	}
}

// The reduction must lose no outcome, whatever the bounds.
func TestTheReductionFindsEveryOutcome(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 150 {
		p := make(program, 2+random.IntN(2))
		value := 0
		for i := range p {
			for range 1 + random.IntN(4) {
				op := operation{variable: string(rune('x' + random.IntN(3))), faulty: random.IntN(4) == 0}
				if value++; random.IntN(2) == 0 {
					op.write = value
				}
				p[i] = append(p[i], op)
			}
		}
		bounds := trace.Bounds{Preemptions: random.IntN(5) - 1, Faults: random.IntN(2)}
		reduced, few := search(t, p, bounds, 2)
		bounds.NoReduction = true
		all, many := search(t, p, bounds, 2)
		if missing := missing(all, reduced); len(missing) > 0 || few.Schedules > many.Schedules {
			t.Fatalf("%v within %+v: %d schedules, %d without reduction, which also find %q", p, bounds, few.Schedules,
				many.Schedules, missing)
		}
	}
}

func missing(all, found map[string]int) (missing []string) {
	for outcome := range all {
		if found[outcome] == 0 {
			missing = append(missing, outcome)
		}
	}
	return missing
}

func TestNoMoreFaultsStrikeThanAllowed(t *testing.T) {
	p := program{
		{{variable: "x", write: 1, faulty: true}, {variable: "x", write: 2, faulty: true}},
		{{variable: "x", write: 3, faulty: true}},
	}
	for faults, want := range map[int]int{0: 3, 1: 12} { // three orders; in each, none or one of three steps is lost
		most := 0
		s := &Search{
			Bounds: trace.Bounds{Preemptions: -1, Faults: faults, NoReduction: true},
			Found:  func(s trace.Schedule) { most = max(most, strings.Count(s.Token, "-")) },
		}
		if tally, err := s.Run(t.Context(), []System{p}); err != nil || tally.Schedules != want || most != faults {
			t.Errorf("%d faults: %+v, at most %d in one, %v; want %d schedules", faults, tally, most, err, want)
		}
	}
}

func TestAReplayRepeatsASchedule(t *testing.T) {
	p := program{
		{{variable: "x"}, {variable: "x", write: 1}},
		{{variable: "x"}, {variable: "x", write: 2}},
	}
	found := map[string]string{}
	s := &Search{
		Bounds: trace.Bounds{Preemptions: -1},
		Found:  func(s trace.Schedule) { found[s.Token] = s.Execution.Kind },
	}
	_, err := s.Run(t.Context(), []System{p})
	must.Succeed(t, err)
	for _, token := range slices.Sorted(maps.Keys(found)) {
		if o, err := Replay(t.Context(), p, token); err != nil || o.Kind != found[token] {
			t.Errorf("replay of %s: %s, %v; want %s", token, o.Kind, err, found[token])
		}
	}
	for _, token := range []string{"A.C", "A.A.A", "A.A.B.B.B"} {
		if _, err := Replay(t.Context(), p, token); !errors.Is(err, errDiverged) {
			t.Errorf("replay of %s: %v, want an error that says that it cannot be repeated", token, err)
		}
	}
}

func TestSchedulesWithFewFaultsAndPreemptionsComeFirst(t *testing.T) {
	p := program{{{variable: "x", faulty: true}, {variable: "x"}}, same(3)}
	var costs []int
	s := &Search{
		Bounds: trace.Bounds{Preemptions: 3, Faults: 1, NoReduction: true},
		Found:  func(s trace.Schedule) { costs = append(costs, 10*s.Faults+s.Preemptions) },
	}
	if _, err := s.Run(t.Context(), []System{p}); err != nil || !slices.IsSorted(costs) {
		t.Errorf("costs %v, %v; want them sorted", costs, err)
	}
}

// unsteady is a System that offers B in some runs only.
type unsteady struct{ runs, offers int }

func (u *unsteady) Run(_ context.Context, _ int, choose func(Point) int) (trace.Execution, error) {
	options := []Option{{Label: "A"}, {Label: "B", Actor: 1}}
	if u.runs%(tries+1) > 0 || u.runs/(tries+1) >= u.offers {
		options = options[:1]
	}
	u.runs++
	choose(Point{Options: options, Current: -1})
	return trace.Execution{}, nil
}

func TestADisturbedScheduleIsExecutedAgain(t *testing.T) {
	s := &Search{Bounds: trace.Bounds{Preemptions: -1}, Found: func(trace.Schedule) {}}
	tally, err := s.Run(t.Context(), []System{&unsteady{offers: 1}})
	if err != nil || tally != (trace.Tally{Schedules: 1}) {
		t.Errorf("%+v, %v; want one schedule", tally, err)
	}
}

func TestWhatCannotBeRepeatedIsCounted(t *testing.T) {
	s := &Search{Bounds: trace.Bounds{Preemptions: -1}, Found: func(trace.Schedule) {}}
	tally, err := s.Run(t.Context(), []System{&unsteady{offers: 2}})
	if err != nil || tally.Schedules != 1 || tally.Diverged != 1 || !strings.Contains(tally.Example, "B is not possible") {
		t.Errorf("%+v, %v; want one schedule, and one that could not be repeated", tally, err)
	}
}

func TestASearchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	executed := 0
	s := &Search{Bounds: trace.Bounds{Preemptions: -1, NoReduction: true}, Found: func(trace.Schedule) {
		if executed++; executed == 5 {
			cancel()
		}
	}}
	tally, err := s.Run(ctx, []System{program{same(6), same(6)}})
	if !errors.Is(err, context.Canceled) || tally.Schedules != 5 || tally.Waiting == 0 {
		t.Errorf("%+v, %v; want 5 schedules, and some that wait", tally, err)
	}
}

func TestRandomSchedulesAreThoseOfTheirSeed(t *testing.T) {
	p := program{same(4), same(4), same(4)}
	tokens := func(seed uint64) (found []string) {
		ctx, cancel := context.WithCancel(t.Context())
		bounds := trace.Bounds{Preemptions: 2, Random: true, Seed: seed, Duration: time.Hour}
		s := &Search{Bounds: bounds, Found: func(s trace.Schedule) {
			if found = append(found, s.Token); len(found) == 20 {
				cancel()
			}
		}}
		if _, err := s.Run(ctx, []System{p}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		return found
	}
	a := tokens(1)
	if b := tokens(1); !slices.Equal(a, b) {
		t.Errorf("%v and %v; want the same", a, b)
	}
	for _, token := range a {
		if _, err := Replay(t.Context(), p, token); err != nil {
			t.Errorf("replay of %s: %v", token, err)
		}
	}
	if slices.Equal(a, tokens(2)) {
		t.Error("another seed leads to the same schedules")
	}
}
