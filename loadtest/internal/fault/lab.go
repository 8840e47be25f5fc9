package fault

import (
	"cmp"
	"context"
	"slices"
	"time"

	"stock/loadtest/internal/oracle"
)

// Run plays each scenario for every choice to which it applies, and for its practices. Cells that are in doubt are
// played again at the end, unless somebody follows the steps. Run returns early, with an error, if ctx ends or Done
// fails. Done is not called for a scenario during which ctx ended.
func (l *Lab) Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rounds, explored := l.rounds(o)
	turns := make(chan struct{}, max(o.Parallel, 1))
	go func() {
		for _, r := range rounds {
			turns <- struct{}{}
			go func() {
				r.play(ctx)
				close(r.over)
				<-turns
			}()
		}
	}()
	var failure error
	var doubtful []*cell
	for _, r := range rounds {
		<-r.over // no round may go on after Run has returned
		for _, c := range r.cells {
			result := c.result()
			switch failure = cmp.Or(failure, ctx.Err()); {
			case failure != nil:
			case o.Step == nil && doubted(result):
				doubtful = append(doubtful, c)
			default:
				failure = o.Done(result, c.history)
			}
		}
		if failure != nil {
			cancel()
		}
	}
	if failure == nil {
		failure = l.playAgain(ctx, doubtful, o)
	}
	if failure == nil {
		failure = l.explore(ctx, explored, o)
	}
	return failure
}

// againTime is how long cells are played again at most. Those whose turn does not come keep their first outcome.
const againTime = 5 * time.Minute

// playAgain plays cells once more, one after the other. A fault that missed, and a block that is not claimed, may come
// of a machine that was too busy with everything that was played side by side. A real one shows again.
func (l *Lab) playAgain(ctx context.Context, cells []*cell, o Options) error {
	for began := time.Now(); len(cells) > 0; cells = cells[1:] {
		c := cells[0]
		if time.Since(began) < againTime {
			c = l.again(c, o)
			(&round{lab: l, scenario: c.scenario, cells: []*cell{c}}).play(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := o.Done(c.result(), c.history); err != nil {
			return err
		}
	}
	return nil
}

// again returns a cell that plays the same as another one, on an item of its own.
func (l *Lab) again(c *cell, o Options) *cell {
	fresh, first := l.newCell(c.scenario, c.stage.Strategy, c.way, o, c.repeat), c.result()
	fresh.practice, fresh.place, fresh.first = c.practice, c.place, &first
	return fresh
}

// rounds lists what is to be played, in this order, and the cells that the explorer executes.
func (l *Lab) rounds(o Options) (rounds []*round, explored []*cell) {
	place := 0
	for repeat := 1; repeat <= o.Repeat; repeat++ {
		for _, sc := range o.Scenarios {
			var played []*cell
			for _, c := range l.cells(sc, o, repeat) {
				place++
				c.place = place
				if c.way.Play == nil {
					explored = append(explored, c)
				} else {
					played = append(played, c)
				}
			}
			perRound := max(len(played), 1)
			if o.Step != nil {
				perRound = 1
			}
			for group := range slices.Chunk(played, perRound) {
				rounds = append(rounds, &round{lab: l, scenario: sc, cells: group, over: make(chan struct{})})
			}
		}
	}
	return rounds, explored
}

// cells lists the cells of a scenario.
func (l *Lab) cells(sc Scenario, o Options, repeat int) (cells []*cell) {
	for _, choice := range o.Choices {
		if strategy := choice.Strategy; sc.Applies(strategy) {
			way := Practice{Name: strategy.Name, Store: choice.Store, Claim: sc.Claim(strategy), Play: sc.Play}
			c := l.newCell(sc, strategy, way, o, repeat)
			c.missing = strategy.Unavailable[choice.Store]
			cells = append(cells, c)
		}
	}
	for _, p := range sc.Practices {
		if o.Practices == nil || slices.Contains(o.Practices, p.Name) {
			p.Store, p.Script = cmp.Or(p.Store, oracle.MySQL), cmp.Or(p.Script, p.Name)
			c := l.newCell(sc, p.asStrategy(), p, o, repeat)
			c.practice = true
			cells = append(cells, c)
		}
	}
	return cells
}

// Cells counts the cells that Run plays.
func (l *Lab) Cells(o Options) (n int) {
	for _, sc := range o.Scenarios {
		n += o.Repeat * len(l.cells(sc, o, 1))
	}
	return n
}
