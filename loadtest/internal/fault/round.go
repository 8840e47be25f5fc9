package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"stock/loadtest/internal/barrier"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

// blockedAfter is how long the next buyer may wait without being called blocked: a sale takes milliseconds, but many
// cells are played side by side.
const blockedAfter = 1300 * time.Millisecond

// judgeTime is the longest that reading what a scenario has left may take. A round's time may be over before.
const judgeTime = takeOver + 10*time.Second

// round is a scenario that is played once, with its cells side by side.
type round struct {
	player   *Player
	scenario Scenario
	cells    []*cell
	over     chan struct{} // closed when it has been played
}

// cell is a scenario for one strategy.
type cell struct {
	scenario Scenario
	claim    Claim
	repeat   int
	command  string // Options.Command
	stage    *Stage
	missing  string        // why it cannot be played here; empty if it can
	place    int           // among all cells of the run
	first    *report.Fault // what came of it beside others, if it is played again
	history  history.History
	verdict  verify.Verdict
	err      error // why the scenario could not be played to its end
}

func (p *Player) newCell(sc Scenario, choice load.Choice, o Options, repeat int) *cell {
	s := &Stage{
		player: p, Sale: messages.Sale{Strategy: choice.Strategy, Store: choice.Store, Item: p.nextItem()}, Scenario: sc.Name,
		note: func(report.FaultStep) {}, owners: map[string]string{},
	}
	if o.Step != nil {
		s.note = func(st report.FaultStep) { o.Step(s, st) }
	}
	return &cell{
		scenario: sc, claim: sc.Claim(choice.Strategy), missing: choice.Strategy.Unavailable[choice.Store],
		repeat: repeat, command: cmp.Or(o.Command, Command), stage: s,
	}
}

// play plays the round's cells that can be played here, unless ctx has ended.
func (r *round) play(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	if !r.player.Reading {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, roundTime)
		defer cancel()
	}
	playable := slices.DeleteFunc(slices.Clone(r.cells), func(c *cell) bool { return c.missing != "" })
	if len(playable) == 0 {
		return
	}
	err := r.playOn(ctx, playable)
	for _, c := range playable {
		c.missing = cmp.Or(c.missing, missing(err))
		c.err = errors.Join(c.err, err)
	}
}

// playOn plays cells side by side on a deployment of their own.
func (r *round) playOn(ctx context.Context, cells []*cell) (err error) {
	d, err := r.player.deploy(ctx, r.scenario.On)
	if err != nil {
		return fmt.Errorf("start the servers of the scenario: %w", err)
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	var items []int64
	for _, c := range cells {
		items = append(items, c.stage.Item)
	}
	if err := d.setStock(ctx, units, items...); err != nil {
		return err
	}
	together := &company{Barrier: barrier.New(len(cells))}
	var all sync.WaitGroup
	for _, c := range cells {
		c.stage.Deployment, c.stage.company = d, together
		c.stage.KeyPrefix, c.stage.Lease = d.Addresses.KeyPrefix, d.On.Lease
		all.Go(func() {
			defer together.Leave(ctx)
			c.perform(ctx)
		})
	}
	all.Wait()
	return nil
}

// perform plays a cell and has it judged. A scenario that could not be played to its end is judged, too: its answers
// may contradict the store, which is often why it could not go on.
func (c *cell) perform(ctx context.Context) {
	if c.err = c.stage.open(ctx, c.scenario.Name); c.err != nil {
		return
	}
	c.err = c.stage.play(ctx, c.scenario.Play)
	c.missing = missing(c.err)
	if c.missing != "" || c.err != nil && !c.judgeable(ctx) {
		c.history = history.History{Run: c.stage.run, Ops: c.stage.ops}
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), judgeTime)
	defer cancel()
	var err error
	c.history, c.verdict, err = c.stage.judge(ctx, c.err == nil)
	c.err = errors.Join(c.err, err)
}

// judgeable reports whether a scenario that failed can be judged.
func (c *cell) judgeable(ctx context.Context) bool {
	return c.stage.booked.Load() && !errors.Is(ctx.Err(), context.Canceled)
}

// doubted reports whether a result may come of a busy machine. Damage never does.
func doubted(f report.Fault) bool {
	return !f.ClaimHeld && f.Effect != report.Skipped && f.Effect != report.Unsafe
}

// result decides what came of the scenario.
func (c *cell) result() report.Fault {
	s := c.stage
	r := report.Fault{
		Scenario: c.scenario.Name, Title: c.scenario.Title, Strategy: s.Strategy.Name, Store: s.Store, Repeat: c.repeat,
		Claimed: c.claim.Words, Proof: s.proof, Evidence: append([]string{}, c.verdict.Evidence...),
		Place:  c.place,
		Steps:  append([]report.FaultStep{}, s.steps...),
		Replay: fmt.Sprintf("%s --scenarios %s --strategies %s --step", c.command, c.scenario.Name, s.Strategy.Name),
	}
	if s.broken != "" {
		r.Evidence = slices.Insert(r.Evidence, 0, s.broken)
	}
	wrong := s.broken != "" || c.verdict.Result == verify.Wrong
	switch {
	case c.missing != "":
		r.Effect, r.Evidence = report.Skipped, []string{c.missing}
		return r
	case wrong && (s.proof != "" || !c.allows(report.Unsafe)):
		r.Effect = report.Unsafe
		if c.err != nil {
			r.Evidence = append(r.Evidence, c.err.Error())
		}
	case c.err != nil:
		r.Effect, r.Evidence = report.Inconclusive, []string{c.err.Error()}
	case s.proof == "":
		r.Effect, r.Evidence = report.Inconclusive, slices.Insert(r.Evidence, 0, unproved)
	case c.verdict.Result != verify.Correct:
		r.Effect = report.Inconclusive
	case s.never:
		r.Effect, r.Seconds = report.Unavailable, s.blocked.Seconds()
	case s.blocked > blockedAfter:
		r.Effect, r.Seconds, r.Until = report.Blocked, s.blocked.Seconds(), c.until()
	default:
		r.Effect = report.Safe
	}
	r.Windows = s.windows(&c.history)
	if c.first != nil {
		r.First = c.first.Found()
		r.Evidence = append(r.Evidence, "played again, alone: at first it was "+r.First)
		if contradicts(*c.first, r) {
			r.Evidence = slices.Insert(r.Evidence, 0, fmt.Sprintf("not judged: first %s, then %s", c.first, r))
			r.Effect, r.Seconds, r.Until = report.Inconclusive, 0, ""
		}
	}
	r.ClaimHeld = c.held(r.Effect)
	return r
}

// contradicts reports whether two outcomes of a cell differ, of which nobody knows which one counts. Damage always
// does, and a fault that missed the first time has shown nothing.
func contradicts(first, then report.Fault) bool {
	return first.Effect != report.Inconclusive && then.Effect != report.Unsafe && then.Effect != first.Effect
}

// until says what the next buyer waited for, if the lab has set how long that takes, and empty otherwise.
func (c *cell) until() string {
	s, lease := c.stage, c.stage.Lease
	switch {
	case !c.allows(report.Blocked):
	case (hasLease(s.Strategy) || strings.Contains(c.claim.Words, "lease")) &&
		// It is renewed when a third of it is over, and the server may take a moment to notice its end.
		s.blocked >= lease*3/5 && s.blocked <= lease+time.Second:
		return fmt.Sprintf("the lease ends (here %g s)", lease.Seconds())
	case c.claim.Words == "refused" && c.soldWhenHolderGaveUp():
		return fmt.Sprintf("the holder gives up (here %.0f s)", s.blocked.Seconds())
	}
	return ""
}

// soldWhenHolderGaveUp reports whether somebody bought as soon as a request had ended without an outcome.
func (c *cell) soldWhenHolderGaveUp() bool {
	const soon = 500 * time.Millisecond
	return slices.ContainsFunc(c.history.Ops, func(a history.Op) bool {
		return a.Outcome == history.Unknown && slices.ContainsFunc(c.history.Ops, func(b history.Op) bool {
			after := b.ReceivedNS - a.ReceivedNS
			return b.Outcome == history.Sold && after > 0 && after < int64(soon)
		})
	})
}

// unproved is the evidence of a cell without a proof.
const unproved = "nothing shows that the fault struck"

func (c *cell) allows(outcome report.Effect) bool {
	return slices.Contains(c.claim.Effects, outcome)
}

// held reports whether the claim agrees with the outcome. How long the item was blocked says nothing if somebody read
// meanwhile: leases have ended while nobody asked.
func (c *cell) held(outcome report.Effect) bool {
	served := []report.Effect{report.Safe, report.Blocked, report.Unavailable}
	if c.stage.player.Reading && slices.Contains(served, outcome) {
		return slices.ContainsFunc(served, c.allows)
	}
	return c.allows(outcome)
}

// Command plays scenarios, in a checkout of the repository.
const Command = "go run ./loadtest faults"

// Options configures Run.
type Options struct {
	Scenarios []Scenario
	Choices   []load.Choice
	Repeat    int    // how often each scenario is played
	Parallel  int    // the largest number of scenarios that are played at the same time; 0: 1
	Command   string // that plays scenarios, for Fault.Replay; empty: Command
	// Step is called when a step has been played, and may wait. If it is set, one cell of a scenario is played after
	// the other. It must be safe for concurrent use: a scenario does several things at once.
	Step func(*Stage, report.FaultStep)
	// Done is called for each cell when its scenario has ended, in the order of Scenarios. Cells that are played again
	// come last; Fault.Place tells the order of all.
	Done func(report.Fault, history.History) error
}
