package mutation

import (
	"context"
	"errors"

	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

// play plays the story of a mutant until the judge finds it.
func (l Lab) play(ctx context.Context, t *Trial) error {
	stories, err := fault.Find([]string{t.Story})
	if err != nil {
		return err
	}
	choices, err := l.choices(ctx, t.Strategy, t.Store)
	if err != nil {
		return err
	}
	replicas := &fault.Player{
		Topology: l.Topology, Oracle: l.Target.Oracle, ReplicaArgs: []string{"--mutant=" + t.Name},
	}
	err = replicas.Run(ctx, fault.Options{
		Scenarios: stories, Choices: choices, Repeat: passes,
		Done: func(played report.Fault, _ history.History) error { return t.addStory(played) },
	})
	if errors.Is(err, errDecided) {
		return nil
	}
	return err
}

// addStory adds what came of a story. Like add, it counts the worst.
func (t *Trial) addStory(played report.Fault) error {
	var run load.Measured
	run.History.Run.Workload.Name = played.Scenario
	run.Verdict.Evidence = played.Evidence
	switch {
	case played.Effect == report.Unsafe && !played.ClaimHeld:
		run.Verdict.Result = verify.Wrong
	case played.ClaimHeld:
		run.Verdict.Result = verify.Correct
	default:
		run.Verdict.Result = verify.Inconclusive
	}
	return t.add(run)
}
