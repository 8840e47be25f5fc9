package fault

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/verify"
)

// Scenarios lists every story. To add one, write it in a file and add it here.
var Scenarios = []Scenario{holderDies, lateWrite, clientRetries}

// Time is how long they take at most, if each is played once.
const Time = 2*patience + 7*time.Second

// Options configures Run.
type Options struct {
	Scenarios []Scenario
	Choices   []scenario.Choice
	Repeat    int // how often each scenario is played
	// Step is called before each step is played, one cell after the other; nil plays the cells side by side.
	Step func(scenario, strategy string, step report.FaultStep)
	// Done is called for each cell when its scenario has ended.
	Done func(report.Fault, history.History) error
}

// blockedAfter is how long the next buyer may wait without being called blocked: a sale takes milliseconds, but all
// cells are played side by side.
const blockedAfter = 700 * time.Millisecond

// cellTime is the longest that a story may take.
const cellTime = time.Minute

// firstItem is below the ids of the stories' items: no load uses them.
const firstItem = 1_000_000

// Run plays each scenario for each strategy to which it applies, one scenario after the other.
func (l *Lab) Run(ctx context.Context, o Options) error {
	for repeat := 1; repeat <= o.Repeat; repeat++ {
		for _, sc := range o.Scenarios {
			var cells []*cell
			for _, choice := range o.Choices {
				if sc.Applies(choice.Strategy) == "" {
					cells = append(cells, l.newCell(sc, choice, repeat, o.Step))
				}
			}
			if err := l.play(ctx, cells, o); err != nil {
				return fmt.Errorf("scenario %s: %w", sc.Name, err)
			}
		}
	}
	return nil
}

// Cells counts the cells that Run plays.
func (o Options) Cells() (n int) {
	for _, sc := range o.Scenarios {
		for _, choice := range o.Choices {
			if sc.Applies(choice.Strategy) == "" {
				n += o.Repeat
			}
		}
	}
	return n
}

// play plays the cells of a scenario.
func (l *Lab) play(ctx context.Context, cells []*cell, o Options) error {
	groups := [][]*cell{cells}
	if o.Step != nil {
		groups = slices.Collect(slices.Chunk(cells, 1))
	}
	for _, group := range groups {
		together := newCompany(len(group))
		var all sync.WaitGroup
		for _, c := range group {
			c.stage.company = together
			all.Go(func() {
				defer together.leave(ctx)
				c.play(ctx)
			})
		}
		all.Wait()
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.repair(ctx); err != nil {
			return err
		}
		for _, c := range group {
			if err := o.Done(c.result(), c.history); err != nil {
				return err
			}
		}
	}
	return nil
}

// cell is a scenario for one strategy.
type cell struct {
	scenario Scenario
	repeat   int
	stage    *Stage
	history  history.History
	verdict  verify.Verdict
	err      error // why the story could not be played to its end
}

func (l *Lab) newCell(
	sc Scenario, choice scenario.Choice, repeat int, step func(_, _ string, _ report.FaultStep),
) *cell {
	l.items++
	s := &Stage{
		Lab: l, Strategy: choice.Strategy, Store: choice.Store, Item: firstItem + l.items,
		note: func(report.FaultStep) {},
	}
	if step != nil {
		s.note = func(st report.FaultStep) { step(sc.Name, choice.Strategy.Name, st) }
	}
	return &cell{scenario: sc, repeat: repeat, stage: s}
}

func (c *cell) play(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cellTime)
	defer cancel()
	if c.err = c.stage.open(ctx, c.scenario.Name); c.err != nil {
		return
	}
	if c.err = c.scenario.Play(ctx, c.stage); c.err != nil {
		return
	}
	c.history, c.verdict, c.err = c.stage.judge(ctx)
}

// result decides what came of the story.
func (c *cell) result() report.Fault {
	s := c.stage
	r := report.Fault{
		Scenario: c.scenario.Name, Strategy: s.Strategy.Name, Store: s.Store, Repeat: c.repeat,
		Claimed: c.scenario.Claimed(s.Strategy.Claim), Proof: s.proof, Evidence: c.verdict.Evidence, Steps: s.steps,
		Replay: fmt.Sprintf("loadtest faults --scenarios %s --strategies %s --step", c.scenario.Name, s.Strategy.Name),
	}
	switch {
	case c.err != nil:
		r.Outcome, r.Evidence = report.Inconclusive, []string{c.err.Error()}
	case c.verdict.Result == verify.Wrong:
		r.Outcome = report.Unsafe
	case s.proof == "" || c.verdict.Result != verify.Correct:
		r.Outcome = report.Inconclusive
	case s.never:
		r.Outcome, r.Seconds = report.Unavailable, s.blocked.Seconds()
	case s.blocked > blockedAfter:
		r.Outcome, r.Seconds = report.Blocked, s.blocked.Seconds()
	default:
		r.Outcome = report.Safe
	}
	r.ClaimHeld = slices.Contains(c.scenario.Expected(s.Strategy.Claim), r.Outcome)
	return r
}
