package mutation

import (
	"context"
	"errors"
	"slices"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/verify"
)

// explore executes the schedules in which the fault of a mutant strikes, until one refutes a claim.
func (l Lab) explore(ctx context.Context, t *Trial) (err error) {
	choices, err := l.choices(ctx, t.Strategy, t.Store)
	if err != nil {
		return err
	}
	is := func(c load.Choice) bool { return c.Strategy.Name == t.Strategy }
	x, err := explore.Start(ctx, l.Topology, explore.Options{
		Lanes: 1, Requests: 2, Args: []string{"--mutant=" + t.Name},
	})
	if err != nil {
		return err
	}
	defer x.Close()
	x.Faults, x.UntilRefuted = []string{t.Fault}, true
	found, err := x.Explore(ctx, choices[slices.IndexFunc(choices, is)], trace.Bounds{Preemptions: 2, Faults: 1})
	if err == nil {
		err = t.addExplored(found)
	}
	if errors.Is(err, errDecided) {
		return nil
	}
	return err
}

// addExplored adds what an exploration found. Damage without the fault says nothing about the mutant.
func (t *Trial) addExplored(found trace.Result) error {
	var run load.Measured
	run.History.Run.Workload.Name = t.Fault
	run.Verdict.Result = verify.Correct
	if !found.Judged() {
		run.Verdict.Result = verify.Inconclusive
	}
	for _, c := range found.Cells {
		if c.Fault == t.Fault && !c.Held {
			run.Verdict.Result, run.Verdict.Evidence = verify.Wrong, []string{c.Found()}
		}
	}
	return t.add(run)
}
