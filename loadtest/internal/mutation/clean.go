package mutation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/verify"
)

// Clean is what the judge made of correct strategies.
type Clean struct {
	Runs       int
	Strategies map[string]bool // that were run
	// The strategy, the workload and the evidence of each run that was judged wrong, and of each that was inconclusive.
	Alarms, Inconclusive []string
}

// Convincing reports whether few enough runs were inconclusive: one, or 5 %.
func (c Clean) Convincing() bool { return len(c.Inconclusive) <= max(1, c.Runs/20) }

// Clean runs the strategies that claim to be correct, without a mutant, until n runs are judged. In random order, it
// chooses a strategy, with or without restocks, and runs it under all workloads.
func (l Lab) Clean(ctx context.Context, n int, progress func(Clean)) (c Clean, err error) {
	c.Strategies = map[string]bool{}
	if err := l.Topology.RestartReplicas(ctx); err != nil {
		return c, err
	}
	count := func(run scenario.Measured) error {
		c.add(run)
		progress(c)
		if c.Runs == n {
			return errDecided
		}
		return nil
	}
	for c.Runs < n {
		settings, err := l.settings(ctx, nil, "")
		if err != nil {
			return c, err
		}
		for _, i := range rand.New(rand.NewPCG(l.Config.Seed, 0)).Perm(len(settings)) {
			err := l.run(ctx, settings[i], count)
			if errors.Is(err, errDecided) {
				return c, nil
			}
			if err != nil {
				return c, err
			}
		}
		l.Config.Seed++
	}
	return c, nil
}

func (c *Clean) add(run scenario.Measured) {
	c.Runs++
	c.Strategies[run.History.Run.Strategy] = true
	line := fmt.Sprintf("%s: %s", run.History.Run.Label(), first(run.Verdict.Evidence))
	switch run.Verdict.Result {
	case verify.Wrong:
		c.Alarms = append(c.Alarms, line)
	case verify.Inconclusive:
		c.Inconclusive = append(c.Inconclusive, line)
	}
}
