package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/plant"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
)

type plantFlags struct {
	only     []string
	users    int
	requests int
	seed     uint64
	list     bool
	out      string
}

func plantCommand() *cobra.Command {
	var f plantFlags
	cmd := &cobra.Command{
		Use:   "plant",
		Short: "Plant bugs into the service, to test the judge",
		Long: `plant tests the judge. It plants one bug after another into the service, runs the strategy that has the bug
under one workload after another, and expects that the judge finds it WRONG. If only a fault shows the bug, it plays a
fault scenario or explores schedules instead. Bugs of the explorer must make its tests fail. It also plants oddities,
such as slow answers, which the judge must find CORRECT.

This needs Go, and the source of stock in the current directory.

Exit status: 0 the judge was right each time; 1 it was not; 2 wrong usage, or something is missing; 3 it was not wrong,
but something could not be judged: a change was never executed, or a fault did not strike; 130 interrupted.`,
		Example: `  loadtest plant
  loadtest plant --list
  loadtest plant --only update-loses-a-sale,slow`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *plantFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringSliceVar(&f.only, "only", nil, "names of the bugs and oddities to plant (default: all)")
	flags.BoolVar(&f.list, "list", false, "say what each of them does, and plant none")
	flags.IntVar(&f.users, "users", 24, "number of concurrent users")
	flags.IntVar(&f.requests, "requests", 1200, "requests of a run, except under the workloads that have their own number")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the requests")
	flags.StringVar(&f.out, "out", "", "keep the histories below this directory (default: keep none)")
}

func (f *plantFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	screen := newScreen(stderr)
	defer screen.clear()
	chosen, err := plant.Choose(f.only)
	if err != nil {
		return fmt.Errorf("%w: --list lists all", err)
	}
	if f.list {
		return writeRows(stdout, chosen)
	}
	dir, err := os.MkdirTemp("", "plant")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	screen.status("building")
	program, err := plant.Build(ctx, dir)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	screen.status("starting")
	l, err := lab.Start(ctx, topology.Options{RedisReplica: true, StockBinary: program.Stock()})
	if err != nil {
		return cmp.Or(ctx.Err(), err) // an interrupted start can fail in many ways
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	trials := plant.Trials{Program: program, Topology: l.Topology, Target: l.Target, Config: f.config(cmp.Or(f.out, dir))}
	return f.tryAll(ctx, trials, chosen, stdout, screen)
}

// writeRows lists rows with what they do.
func writeRows(w io.Writer, rows []plant.Row) error {
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		kind := "bug"
		if r.Oddity {
			kind = "oddity"
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\n", r.Name, r.Family, kind, r.Planted)
	}
	return lines.Flush()
}

func (f *plantFlags) config(dir string) load.Config {
	return load.Config{
		Replicas: 2,
		Rounds:   1,
		Seed:     f.seed,
		Users:    f.users,
		Requests: f.requests,
		Timeout:  10 * time.Second,
		Keys:     true,
		Goods:    4,
		Skew:     traffic.Zipf,
		MinCount: 1,
		MaxCount: 3,
		WarmUp:   30 * time.Millisecond,
		Patience: 7 * time.Second, // redis-stream finds a restock after which nobody buys within 5 s
		Dir:      dir,
	}
}

func (f *plantFlags) tryAll(
	ctx context.Context, l plant.Trials, chosen []plant.Row, stdout io.Writer, screen *screen,
) (failed error) {
	var trials []plant.Trial
	for i, row := range chosen {
		screen.status(fmt.Sprintf("[%d/%d] %s", i+1, len(chosen), row.Name))
		trial, err := l.Try(ctx, row)
		if err != nil {
			return fmt.Errorf("%s: %w", row.Name, err)
		}
		screen.clear()
		fmt.Fprintln(stdout, trial.Line())
		switch {
		case trial.Passed():
		case trial.Judged():
			failed = errNotHeld
		default:
			failed = cmp.Or(failed, errInconclusive)
		}
		trials = append(trials, trial)
	}
	fmt.Fprintf(stdout, "\n%s, seed %d\n", plant.Summary(trials), f.seed)
	return failed
}
