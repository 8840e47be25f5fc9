package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/lab"
)

// quickBounds are those of explore --quick.
var quickBounds = trace.Bounds{Preemptions: 2}

// quickTime is how long the exploration of all strategies may take after a load, with the start of its servers.
const quickTime = 50 * time.Second

// quickLanes is how many schedules are executed side by side after a load.
const quickLanes = 4

// exploreQuickly explores the strategies of a run, and adds what it finds to the report. When the time is over, it
// leaves out the rest, which the report says.
func exploreQuickly(ctx context.Context, l *lab.Lab, run *lab.Run, screen *screen) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU())) // the load is over
	defer screen.clear()
	screen.status("explore: starting")
	limited, cancel := context.WithTimeout(ctx, quickTime)
	defer cancel()
	x, err := explore.Start(limited, l.Topology, explore.Options{Lanes: quickLanes, Requests: 2})
	if err != nil {
		return startError(ctx, err)
	}
	defer x.Close()
	x.Workloads = explore.QuickNames()
	for i, choice := range run.Choices {
		if choice.Strategy.Baseline() || explore.Obstacle(choice.Strategy) != "" {
			continue
		}
		x.Watch = showProgress(screen, i, len(run.Choices))
		r, err := x.Explore(limited, choice, quickBounds)
		if limited.Err() == nil && err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if limited.Err() == nil || r.Tally.Schedules > 0 {
			run.Builder.AddExplored(r)
		}
		if limited.Err() != nil {
			run.Builder.Note(fmt.Sprintf("explored are %d of %d strategies, because there was no time for more",
				i, len(run.Choices)))
			return nil
		}
	}
	return nil
}
