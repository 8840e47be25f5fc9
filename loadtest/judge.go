package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/mutation"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
)

type judgeFlags struct {
	stockBinary string
	mutants     []string
	users       int
	requests    int
	seed        uint64
	list        bool
	out         string
}

func judgeCommand() *cobra.Command {
	var f judgeFlags
	cmd := &cobra.Command{
		Use:   "judge",
		Short: "Test the judge with planted bugs",
		Long: `judge tests the judge. It plants one bug after another into the service, runs the strategy that has the bug
under one workload after another, and expects that the judge finds it WRONG. If only a fault shows the bug, it plays a
fault scenario instead. It also plants oddities, such as slow answers, which the judge must find CORRECT.

Bugs of the explorer are changes of its source: a test that must fail runs with each. This needs Go, and the source of
stock in the current directory.

Exit status: 0 the judge was right each time; 1 it was not, or a mutant never came into effect; 2 wrong usage, or
something is missing; 130 interrupted.`,
		Example: `  loadtest judge
  loadtest judge --list
  loadtest judge --mutants update-loses-a-sale,slow`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *judgeFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringSliceVar(&f.mutants, "mutants", nil, "names of the mutants to plant (default: all)")
	flags.BoolVar(&f.list, "list", false, "say what each mutant does, and plant none")
	flags.IntVar(&f.users, "users", 24, "number of concurrent users")
	flags.IntVar(&f.requests, "requests", 1200, "requests of a run, except under the workloads that have their own number")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the requests")
	flags.StringVar(&f.out, "out", "", "keep the histories below this directory (default: keep none)")
	flags.StringVar(&f.stockBinary, "stock-binary", "",
		"path of a service that was built with -tags mutants (default: stock-mutants beside this program)")
}

func (f *judgeFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	screen := newScreen(stderr)
	defer screen.clear()
	binary, err := f.findBinary()
	if err != nil {
		return err
	}
	all, err := mutation.List(ctx, binary)
	if err != nil {
		return err
	}
	chosen, err := mutation.Choose(append(all, mutation.ExplorerMutants()...), f.mutants)
	if err != nil {
		return fmt.Errorf("%w: --list lists all", err)
	}
	if f.list {
		return writeMutants(stdout, chosen)
	}
	dir, remove, err := f.dir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	screen.status("starting")
	l, err := lab.Start(ctx, topology.Options{RedisReplica: true, StockBinary: binary})
	if err != nil {
		return cmp.Or(ctx.Err(), err) // an interrupted start can fail in many ways
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	trials := mutation.Lab{Topology: l.Topology, Target: l.Target, Config: f.config(dir)}
	return f.judgeMutants(ctx, trials, chosen, stdout, screen)
}

// writeMutants lists mutants with what they do.
func writeMutants(w io.Writer, mutants []mutation.Mutant) error {
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range mutants {
		kind := "bug"
		if m.Oddity {
			kind = "oddity"
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\n", m.Name, m.Family, kind, m.Planted)
	}
	return lines.Flush()
}

// findBinary returns the service that can plant mutants.
func (f *judgeFlags) findBinary() (string, error) {
	if f.stockBinary != "" {
		return f.stockBinary, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), "stock-mutants")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("there is no %s: run \"make judge\", which builds it, or give --stock-binary", path)
	}
	return path, nil
}

// dir returns a directory for the histories, and what removes it if they are not to be kept.
func (f *judgeFlags) dir() (path string, remove func() error, err error) {
	if f.out != "" {
		return f.out, func() error { return nil }, os.MkdirAll(f.out, 0o755)
	}
	path, err = os.MkdirTemp("", "judge")
	return path, func() error { return os.RemoveAll(path) }, err
}

func (f *judgeFlags) config(dir string) load.Config {
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

func (f *judgeFlags) judgeMutants(
	ctx context.Context, lab mutation.Lab, chosen []mutation.Mutant, stdout io.Writer, screen *screen,
) error {
	var trials []mutation.Trial
	failed := 0
	for i, mutant := range chosen {
		screen.status(fmt.Sprintf("[%d/%d] %s", i+1, len(chosen), mutant.Name))
		trial, err := lab.Try(ctx, mutant)
		if err != nil {
			return fmt.Errorf("mutant %s: %w", mutant.Name, err)
		}
		screen.clear()
		fmt.Fprintln(stdout, trial.Line())
		if !trial.Passed() {
			failed++
		}
		trials = append(trials, trial)
	}
	fmt.Fprintf(stdout, "\n%s, seed %d\n", mutation.Summary(trials), f.seed)
	if failed > 0 {
		return errNotHeld
	}
	return nil
}
