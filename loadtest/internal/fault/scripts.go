package fault

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/scripts"
)

// explorePractices executes every interleaving of the practices that are scripts, one practice after the other. Those
// that are in doubt are executed again.
func explorePractices(ctx context.Context, cells []*cell, o Options) error {
	if len(cells) == 0 {
		return nil
	}
	x, err := explore.StartScripts(ctx, 1, explore.MySQL)
	why := missing(err)
	if err != nil && why == "" {
		return err
	}
	if err == nil {
		defer x.Close()
	}
	for _, c := range cells {
		c.missing = why
		for range 2 {
			if why == "" && (c.found == nil || doubted(c.result())) {
				c.explore(ctx, x)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.found != nil && c.err == nil {
			c.tell()
		}
		if err := o.Done(c.result(), history.History{}); err != nil {
			return err
		}
	}
	return nil
}

// explore executes every interleaving of a practice, with the faults of its script at every point.
func (c *cell) explore(ctx context.Context, x *explore.Explorer) {
	c.found, c.err = &trace.Result{}, nil
	path := "loadtest/scripts/" + c.way.Script + ".star"
	text, err := scripts.Files.ReadFile(c.way.Script + ".star")
	var script *explore.Script
	if err == nil {
		script, err = explore.LoadScript(path, text, 2)
	}
	if c.err = err; err != nil {
		return
	}
	c.faults = script.Faults
	*c.found, c.err = x.ExploreScript(ctx, script, trace.Bounds{Preemptions: 2, Faults: min(len(script.Faults), 1)})
}

// damaged returns the shortest schedule that did damage; nil if none did.
func (c *cell) damaged() (shortest *trace.Schedule) {
	for _, found := range c.found.Cells {
		for _, s := range found.Shortest {
			if shortest == nil || len(s.Outcome.Steps) < len(shortest.Outcome.Steps) {
				shortest = &s
			}
		}
	}
	return shortest
}

// explored decides what came of a practice that is a script.
func (c *cell) explored(r report.Fault) report.Fault {
	r.Replay = fmt.Sprintf("go run ./loadtest explore loadtest/scripts/%s.star", c.way.Script)
	switch damage := c.damaged(); {
	case c.missing != "":
		r.Outcome, r.Evidence = report.Skipped, []string{c.missing}
		return r
	case c.err != nil:
		r.Outcome, r.Evidence = report.Inconclusive, []string{c.err.Error()}
	case damage != nil:
		found := damage.Outcome
		r.Outcome, r.Evidence = outcomeOf(found.Kind), slices.Concat([]string{found.Kind}, found.Evidence)
		r.Replay += " --replay " + damage.Token
	case !c.found.Judged() || !c.found.Exhausted:
		r.Outcome, r.Evidence = report.Inconclusive, []string{"not every schedule could be executed and judged"}
	case slices.ContainsFunc(c.found.Cells, func(found trace.Cell) bool { return found.Waited > 0 }):
		r.Outcome = report.Blocked
	default:
		r.Outcome = report.Safe
	}
	r.Proof = fmt.Sprintf("%d schedules were executed: all orders of the steps", c.found.Tally.Schedules)
	if len(c.faults) > 0 {
		r.Proof += ", with at most one fault: " + strings.Join(c.faults, ", ")
	}
	r.ClaimHeld = c.held(r.Outcome)
	return r
}

// outcomeOf returns the outcome for a kind of damage that the explorer or a script names.
func outcomeOf(kind string) report.Outcome {
	switch kind {
	case trace.Deadlock, "nobody can buy":
		return report.Unavailable
	case "a lock without a holder":
		return report.Blocked
	}
	return report.Unsafe
}

// tell tells the shortest schedule that did damage.
func (c *cell) tell() {
	c.stage.began = time.Now()
	damage := c.damaged()
	if damage == nil {
		c.stage.Stepf("no schedule did damage")
		return
	}
	for _, step := range damage.Outcome.Steps {
		text := step.Text
		if step.Reply != "" {
			text += "  → " + step.Reply
		}
		kind := report.Event
		if step.Kind == trace.Strikes {
			kind = report.Strike
		}
		c.stage.step(kind, cmp.Or(step.Actor, "stores")+": "+text)
	}
}
