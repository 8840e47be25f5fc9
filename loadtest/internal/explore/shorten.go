package explore

import (
	"context"
	"slices"
	"time"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/load"
)

// shortenTime is how long simpler races are searched for one that refutes the same claim.
const shortenTime = time.Minute

// shorten looks for simpler races that do the same damage as each one that refutes a claim. It puts their schedules
// into the place of those that were found.
func (x *Explorer) shorten(
	ctx context.Context, choice load.Choice, r trace.Result, bounds trace.Bounds, claims claims,
) (trace.Result, error) {
	refuted, watch := x.UntilRefuted, x.Watch
	x.UntilRefuted, x.Watch, x.until = true, nil, time.Now().Add(shortenTime)
	defer func() { x.UntilRefuted, x.Watch, x.until = refuted, watch, time.Time{} }()
	for _, c := range r.Cells {
		for _, kind := range c.Damages() {
			name := c.Shortest[kind].Execution.Workload
			if c.Held || !isRace(name) {
				continue
			}
			short, w, err := x.simplest(ctx, choice, name, bounds, claims, damageOfCell{c.Fault, c.Requests, kind})
			if err != nil {
				return r, err
			}
			if w.Name != "" {
				c.Shortest[kind] = short
				r.Workloads = append(r.Workloads, w)
			}
		}
	}
	return r, nil
}

// damageOfCell is what a simpler race must do, too.
type damageOfCell struct{ fault, requests, kind string }

// simplest returns a schedule of the simplest race that does some damage, and the race; nothing if none was found that
// is simpler than the named one.
func (x *Explorer) simplest(
	ctx context.Context, choice load.Choice, name string, bounds trace.Bounds, claims claims, damage damageOfCell,
) (short trace.Schedule, w trace.Workload, err error) {
	current, _ := known(name)
	for simpler := true; simpler; {
		simpler = false
		for _, next := range current.race.Simpler() {
			tried, err := race(next.String())
			if err != nil || !tried.suits(choice.Strategy, choice.Store) || time.Now().After(x.until) {
				continue
			}
			result, err := x.search(ctx, choice, []workload{tried}, bounds, claims, cells{})
			if err != nil {
				return short, w, err
			}
			at := slices.IndexFunc(result.Cells, func(c trace.Cell) bool {
				return !c.Held && c.Fault == damage.fault && c.Requests == damage.requests && c.Kinds[damage.kind] > 0
			})
			if at >= 0 {
				current, simpler = tried, true
				short, w = result.Cells[at].Shortest[damage.kind], result.Workloads[0]
				break
			}
		}
	}
	return short, w, nil
}
