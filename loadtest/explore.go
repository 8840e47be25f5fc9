package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/page"
	"stock/loadtest/internal/topology"
)

func exploreCommand(getenv func(string) string) *cobra.Command {
	var f exploreFlags
	cmd := &cobra.Command{
		Use:   "explore [SCRIPT.star... | --service FILE | -- COMMAND [ARGUMENT...]]",
		Short: "Execute every interleaving of two requests, with at most one fault",
		Long: `explore sends two requests to two replicas, and executes every order in which their exchanges with MySQL,
PostgreSQL and Redis can happen, with at most one fault between any two. An exchange is a message to a store with its
reply. Proxies hold each one until its turn has come, so the service itself is not changed. explore compares what each
order, a schedule, has led to with what the strategy claims. For each kind of damage, it keeps the shortest schedule
and prints a token that replays it. docs/explore.md lists what the requests ask for and which faults strike.

With --service, it explores a service of yours, in any language, which a file describes: docs/your-service.md. With a
command after --, it explores one that is asked as this repository's: POST /stock/deduct with goods_id and count, whose
stock is the column stock of the table good_stock. The service is WRONG if the stock does not agree with its answers.
What a late write or a retry does is only reported, unless it promises to sell once for each key.

With files that end in .star, it explores scripts: sessions of SQL and of commands of Redis that you write yourself.
Examples are in loadtest/scripts.

Exit status: 0 every claim held; 1 a claim was refuted, or your service is wrong; 2 wrong usage, or something is
missing; 3 nothing was refuted, but not every schedule could be executed and judged; 130 interrupted.`,
		Example: `  loadtest explore --strategies none,update
  loadtest explore --strategies lock-redis-lua --traces
  loadtest explore --strategies lock-redis-lua --replay enough:A.B.A
  loadtest explore --strategies update --statements
  loadtest explore --strategies update --requests 3 --random --duration 1m
  loadtest explore --service loadtest/examples/python/wrong.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags(), args, cmd.ArgsLenAtDash(), getenv); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *exploreFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	runtime.GOMAXPROCS(runtime.NumCPU()) // the proxies are part of what is explored
	if f.scripts != nil {
		return f.runScripts(ctx, stdout, stderr)
	}
	screen := newScreen(stderr)
	defer screen.clear()
	screen.starting()
	l, err := f.startLab(ctx)
	if err != nil {
		return startError(ctx, err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	choices, err := f.choose(ctx, l)
	if err != nil {
		return err
	}
	x, err := explore.Start(ctx, l.Topology, f.options())
	if err != nil {
		return startError(ctx, err)
	}
	defer x.Close()
	x.Workloads, x.UntilRefuted, x.Races, x.Seed = f.workloads, f.refuted, f.races, f.bounds.Seed
	if f.replay != "" {
		screen.clear()
		o, err := x.Replay(ctx, choices[0], f.replay)
		if err != nil {
			return err
		}
		return writeReplay(stdout, o)
	}
	if f.statements {
		screen.clear()
		return writeStatements(ctx, stdout, x, choices)
	}
	return f.report(x, len(choices), screen, stdout, func(i int) (trace.Result, error) {
		return x.Explore(ctx, choices[i], f.bounds)
	})
}

// startLab starts what the lanes of strategies share. Those of the user's service have all that they need.
func (f *exploreFlags) startLab(ctx context.Context) (*lab.Lab, error) {
	if f.service == nil {
		return lab.Start(ctx, topology.Options{
			Replicas: 1, Relaxed: true, StockBinary: f.local.stockBinary,
		})
	}
	t, err := topology.New()
	return &lab.Lab{Topology: t}, err
}

// writeStatements writes what strategies send.
func writeStatements(ctx context.Context, stdout io.Writer, x *explore.Explorer, choices []load.Choice) error {
	for _, choice := range choices {
		r, outcomes, err := x.OneByOne(ctx, choice)
		if err != nil {
			return err
		}
		for _, o := range outcomes {
			fmt.Fprintln(stdout, r.Terminals(trace.Cell{}, trace.Schedule{Execution: o}))
		}
	}
	return nil
}

func writeReplay(stdout io.Writer, o trace.Execution) error {
	o = o.Readable()
	fmt.Fprintln(stdout, o.Kind, o.Evidence)
	return trace.Write(stdout, o.Steps)
}

func (f *exploreFlags) options() explore.Options {
	o := explore.Options{Lanes: f.lanes, Requests: f.requests}
	if f.replay != "" || f.statements {
		o.Lanes = 1
	}
	if f.service != nil {
		o.Subject, o.Pause = explore.Service{Description: f.service}, f.service.Pause
	}
	return o
}

// choose returns the strategies that are explored: those that deduct something, and can be used here.
func (f *exploreFlags) choose(ctx context.Context, l *lab.Lab) (choices []load.Choice, err error) {
	if f.service != nil {
		return []load.Choice{load.OwnService(f.service)}, nil
	}
	catalogue, err := l.Target.Strategies(ctx)
	if err != nil {
		return nil, cmp.Or(ctx.Err(), err)
	}
	if err := load.CheckNames(f.strategies, catalogue); err != nil {
		return nil, err
	}
	for _, s := range catalogue {
		if f.strategies == nil && (s.Baseline() || explore.Obstacle(s) != "") {
			continue
		}
		if why := explore.Obstacle(s); why != "" && s.IsIn(f.strategies) {
			return nil, fmt.Errorf("%s cannot be explored: %s", s.Name, why)
		}
		if f.strategies == nil || s.IsIn(f.strategies) {
			on := f.stores(s)
			if len(on) == 0 && s.IsIn(f.strategies) {
				return nil, fmt.Errorf("%s does not work on the store %q, or cannot use it here", s.Name, f.store)
			}
			choices = append(choices, on...)
		}
	}
	return choices, nil
}

// stores returns a strategy on every store or on the one that is named; in a quick search, on its default store.
func (f *exploreFlags) stores(s load.Strategy) []load.Choice {
	choices := s.OnEveryStore()
	if f.store != "" {
		return slices.DeleteFunc(choices, func(c load.Choice) bool { return c.Store != f.store })
	}
	if f.quick || f.replay != "" {
		return choices[:min(1, len(choices))]
	}
	return choices
}

// showProgress shows how far the i-th of some explorations is.
func showProgress(screen *screen, i, of int) func(trace.Result) {
	return func(r trace.Result) {
		screen.status(fmt.Sprintf("explore: %s (%d of %d), %d schedules", r.Strategy, i+1, of, r.Tally.Schedules))
	}
}

var errNoSchedule = errors.New("no schedule was executed: no strategy takes what --workloads or --race asks for, " +
	"such as keys or orders, with so many --requests, or --duration is too short")

// report explores one subject after the other, and writes what was found.
func (f *exploreFlags) report(
	x *explore.Explorer, subjects int, screen *screen, stdout io.Writer, explored func(i int) (trace.Result, error),
) error {
	began := time.Now()
	var results []trace.Result
	var failure error
	for i := range subjects {
		x.Watch = showProgress(screen, i, subjects)
		r, err := explored(i)
		screen.clear()
		if failure = err; len(r.Cells) > 0 || r.Tally.Diverged > 0 {
			results = append(results, r)
			if err := r.Write(stdout, f.traces || f.terminals || !r.Held(), f.terminals); err != nil {
				return err
			}
		}
		if failure != nil {
			break
		}
	}
	if len(results) == 0 {
		return cmp.Or(failure, errNoSchedule)
	}
	schedules := 0
	for _, r := range results {
		schedules += r.Tally.Schedules
	}
	fmt.Fprintf(stdout, "\n%d explored, %d schedules, %v\n", len(results), schedules, time.Since(began).Round(time.Second))
	if err := f.write(results); err != nil {
		return errors.Join(failure, err)
	}
	switch {
	case failure != nil:
		return failure
	case slices.ContainsFunc(results, func(r trace.Result) bool { return !r.Held() }):
		return errNotHeld
	case slices.ContainsFunc(results, func(r trace.Result) bool { return !r.Judged() }):
		return errInconclusive
	}
	return nil
}

// write writes explore.json and explore.html if there is a directory for it.
func (f *exploreFlags) write(results []trace.Result) error {
	if f.out == "" {
		return nil
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(f.out, "explore.json"), append(text, '\n'), 0o644),
		lab.WriteFile(filepath.Join(f.out, "explore.html"), func(w io.Writer) error {
			return page.WriteExplored(w, results)
		}),
	)
}
