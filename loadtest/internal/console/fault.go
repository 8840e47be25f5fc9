package console

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
)

// faultRequest is what the page asks to play.
type faultRequest struct {
	Scenario string `json:"scenario"`
	Strategy string `json:"strategy"`
}

// options returns what "loadtest faults" plays for the same.
func (r faultRequest) options(catalogue []load.Strategy) (o fault.Options, title string, err error) {
	sc, known := find(r.Scenario)
	if !known {
		return o, "", malformed("no scenario is named %q", r.Scenario)
	}
	o = fault.Options{Scenarios: []fault.Scenario{sc}, Repeat: 1, Parallel: 1}
	for _, s := range catalogue {
		if s.Name == r.Strategy {
			if !sc.Applies(s) {
				return o, "", malformed("%s means nothing for %s", sc.Name, s.Name)
			}
			o.Choices = []load.Choice{{Strategy: s, Store: s.Stores[0]}}
		}
	}
	if len(o.Choices) == 0 {
		return o, "", malformed("no strategy is named %q", r.Strategy)
	}
	return o, sc.Title, nil
}

func (c *Console) postFault(_ *http.Request, body faultRequest) error {
	options, title, err := body.options(c.catalogue)
	if err != nil {
		return err
	}
	a, err := c.begin("fault")
	if err != nil {
		return err
	}
	c.board.update(func(s *State) {
		s.Busy = a.kind
		s.Fault = &FaultState{
			ID: a.id, Scenario: body.Scenario, Title: title, Strategy: body.Strategy, Steps: []FaultStep{}, Evidence: []string{},
		}
	})
	c.tasks.Go(func() {
		defer c.end(a)
		t := &telling{console: c, activity: a}
		t.tell(options)
	})
	return nil
}

type nextRequest struct {
	activityRequest
	Steps int `json:"steps"` // that were shown: to press twice for one of them plays one step
}

func (c *Console) postNext(_ *http.Request, body nextRequest) error {
	if body.Steps < 1 {
		return malformed("%d steps: say from which step the fault shall go on", body.Steps)
	}
	a, err := c.going("fault", body.ID)
	if err == nil {
		a.gate.pass(body.Steps)
	}
	return err
}

func (c *Console) postFinish(_ *http.Request, body activityRequest) error {
	a, err := c.going("fault", body.ID)
	if err != nil {
		return err
	}
	a.gate.open()
	c.board.update(func(s *State) {
		if s.Fault != nil && s.Fault.ID == a.id { // it is not there yet, or another one has begun since
			s.Fault.Free = true
		}
	})
	return nil
}

// gate holds a fault after each step until somebody lets it go on. Steps are numbered from 1. Several clients of a
// fault may take their steps at the same time.
type gate struct {
	mu      sync.Mutex
	passed  int                   // all steps up to this one have passed
	waiting map[int]chan struct{} // by step
}

func newGate() *gate { return &gate{waiting: map[int]chan struct{}{}} }

// wait waits until a step may pass, or ctx ends.
func (g *gate) wait(ctx context.Context, step int) {
	g.mu.Lock()
	if step <= g.passed {
		g.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	g.waiting[step] = turn
	g.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
	}
}

// pass lets all steps up to this one pass.
func (g *gate) pass(last int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed = max(g.passed, last)
	for step, turn := range g.waiting {
		if step <= last {
			close(turn)
			delete(g.waiting, step)
		}
	}
}

// open lets every step pass, from now on.
func (g *gate) open() { g.pass(math.MaxInt) }

// held reports whether a step waits.
func (g *gate) held() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting) > 0
}

// telling is a fault that is played.
type telling struct {
	console  *Console
	activity *activity

	mu     sync.Mutex // guards what follows: several clients may take a step at the same time
	viewer *oracle.Viewer
	eyes   sync.WaitGroup // look at the fault between its steps
	close  context.CancelFunc
	read   time.Duration
	steps  int
}

// tell plays the fault, and writes the report.
func (t *telling) tell(o fault.Options) {
	ctx, c := t.activity.ctx, t.console
	dir, removeIfEmpty, err := lab.CreateDir("")
	if err != nil {
		t.ended(report.Fault{}, err, "")
		return
	}
	defer removeIfEmpty()
	o.Step = t.step
	var played report.Fault
	builder := report.NewBuilder(c.lab.Environment())
	failure := lab.PlayFaults(ctx, c.faults, o, builder, dir, func(f report.Fault) { played = f })
	t.stopLooking()
	address := ""
	if ctx.Err() == nil {
		if _, err := lab.Finish(ctx, builder, dir, failure); err == nil {
			address = c.addReport(dir)
		}
	}
	t.ended(played, failure, address)
}

// maxSteps is how many steps the page shows. Faults with a crowd have more.
const maxSteps = 150

// step is called with each step, and returns when the fault shall go on.
func (t *telling) step(stage *fault.Stage, step report.FaultStep) {
	ctx, c := t.activity.ctx, t.console
	number := t.show(stage, step)
	began := time.Now()
	t.activity.gate.wait(ctx, number)
	t.mu.Lock()
	t.read += time.Since(began)
	read := t.read
	t.mu.Unlock()
	c.board.update(func(s *State) { s.Fault.Waiting, s.Fault.ReadS = t.activity.gate.held(), seconds(read) })
}

// show adds a step, with what is to be seen now, and returns its number.
func (t *telling) show(stage *fault.Stage, step report.FaultStep) (number int) {
	if t.activity.ctx.Err() != nil {
		return 0 // what the fault says now comes of its cancellation
	}
	t.mu.Lock()
	t.steps++
	number = t.steps
	t.mu.Unlock()
	full := number > maxSteps
	var scene fault.Scene
	if viewer := t.startLooking(stage); viewer != nil && !full {
		scene = stage.Look(t.activity.ctx, viewer)
	}
	t.console.board.update(func(s *State) {
		fault := s.Fault
		fault.Waiting, fault.Store = !fault.Free, stage.Store
		if full {
			fault.More++
			return
		}
		shown := FaultStep{seconds(step.After), string(step.Kind), step.Text, scene}
		fault.Steps, fault.Now = append(slices.Clip(fault.Steps), shown), &scene
	})
	return number
}

// lookInterval is the time between two looks at a fault.
const lookInterval = 500 * time.Millisecond

// startLooking opens a viewer at the first step of a fault. Nil: nothing can be shown.
func (t *telling) startLooking(stage *fault.Stage) *oracle.Viewer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.viewer != nil || t.close != nil {
		return t.viewer
	}
	viewer, err := stage.OpenViewer()
	var ctx context.Context
	ctx, t.close = context.WithCancel(t.activity.ctx)
	if err != nil {
		return nil
	}
	t.viewer = viewer
	t.eyes.Go(func() {
		for monotonic.Sleep(ctx, lookInterval) == nil {
			scene := stage.Look(ctx, viewer)
			if ctx.Err() == nil {
				t.console.board.update(func(s *State) { s.Fault.Now = &scene })
			}
		}
	})
	return viewer
}

func (t *telling) stopLooking() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.close == nil {
		return
	}
	t.close()
	t.eyes.Wait()
	if t.viewer != nil {
		_ = t.viewer.Close()
	}
}

// ended shows what came of the fault.
func (t *telling) ended(played report.Fault, failure error, address string) {
	t.console.board.update(func(s *State) {
		fault := s.Fault
		fault.Ended, fault.Waiting, fault.Now, fault.Report = true, false, nil, address
		switch {
		case t.activity.ctx.Err() != nil:
			fault.Outcome = "canceled"
			return
		case failure != nil:
			fault.Outcome, fault.Evidence = string(report.Inconclusive), []string{lab.WithoutLog(failure)}
			return
		}
		fault.Outcome, fault.Claimed, fault.Proof = played.String(), played.ClaimWords(), played.Proof
		fault.ClaimHeld, fault.Replay = played.ClaimHeld, played.Replay
		fault.Evidence = append(fault.Evidence, played.Evidence...)
	})
}
