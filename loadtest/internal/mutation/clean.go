package mutation

import (
	"context"
	"errors"
	"fmt"

	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/verify"
)

// Clean is what the judge made of correct strategies.
type Clean struct {
	Runs, Inconclusive int
	Alarms             []string // the strategy, the workload and the evidence of each run that was judged wrong
}

// Clean runs all strategies that claim to be correct, without a mutant, pass after pass until n runs are judged.
func (l Lab) Clean(ctx context.Context, n int, progress func(Clean)) (c Clean, err error) {
	if err := l.Topology.RestartReplicas(ctx); err != nil {
		return c, err
	}
	count := func(run scenario.Measured) error {
		c.Runs++
		switch run.Verdict.Result {
		case verify.Wrong:
			c.Alarms = append(c.Alarms, fmt.Sprintf("%s: %s", run.History.Run.Label(), first(run.Verdict.Evidence)))
		case verify.Inconclusive:
			c.Inconclusive++
		}
		progress(c)
		if c.Runs == n {
			return errDecided
		}
		return nil
	}
	for c.Runs < n {
		if err := l.run(ctx, nil, "", count); err != nil && !errors.Is(err, errDecided) {
			return c, err
		}
		l.Config.Seed++
	}
	return c, nil
}
