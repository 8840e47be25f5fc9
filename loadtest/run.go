package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// The main job, and its smoke test.
const (
	mainRequests, quickRequests = 6000, 600
	mainRounds, quickRounds     = 3, 1
	mainBudget, quickBudget     = 4*time.Minute + 30*time.Second, 40 * time.Second
	mainWarmUp, quickWarmUp     = 400 * time.Millisecond, 150 * time.Millisecond
)

type runFlags struct {
	mix    mixFlags
	attach attachFlags
	local  localFlags

	strategies []string
	store      string
	users      int
	requests   int
	duration   time.Duration
	rate       float64
	rounds     int
	stock      int64
	hold       time.Duration
	replicas   int
	timeout    time.Duration
	budget     time.Duration
	out        string
	quick      bool
}

func runCommand(getenv func(string) string) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run strategies under load, judge each, and report",
		Long: `run starts private servers and replicas behind nginx, runs every strategy, judges what each did to the
stock, and compares them. Without flags it is the main job: two workloads, three rounds, under five minutes.

  plenty      as many units as are asked for      (6 000 requests on 6 000 units)
  flash-sale  a sixth of the units asked for      (6 000 requests on 1 000 units)

With --target it uses a service that runs already. It then needs --admin to set the stock, and --mysql-dsn and
--redis to read it with its own eyes.`,
		Example: `  loadtest run
  loadtest run --quick --strategies none,update
  loadtest run --strategies update,for-update --users 32 --goods 5 --skew zipf --counts 1-3
  loadtest run --rate 500 --duration 10s --strategies update
  loadtest run --target http://localhost:8000 --admin http://localhost:9001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.defaults(cmd.Flags())
			f.attach.redisPassword = getenv("LOADTEST_REDIS_PASSWORD")
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.strategies, "strategies", nil, "names, separated by commas (default: every one that can run here)")
	flags.IntVar(&f.users, "users", 100, "users side by side; with --rate, the most requests under way")
	flags.IntVar(&f.requests, "requests", mainRequests, "requests of each run")
	flags.DurationVar(&f.duration, "duration", 0, "time of each run, in place of --requests")
	flags.Float64Var(&f.rate, "rate", 0, "open loop: requests a second, whatever the service does")
	flags.IntVar(&f.rounds, "rounds", mainRounds, "how often everything is run")
	flags.Int64Var(&f.stock, "stock", 0, "units of all goods together, in place of the two workloads")
	f.mix.register(flags)
	flags.DurationVar(&f.hold, "hold", 0, "work inside the critical section, such as 2ms")
	flags.StringVar(&f.store, "store", "", "mysql or redis (default: each strategy's own)")
	flags.IntVar(&f.replicas, "replicas", 2, "replicas of the service: 1 or 2")
	flags.DurationVar(&f.timeout, "timeout", 20*time.Second, "time limit of a request; should exceed the service's own")
	flags.DurationVar(&f.budget, "budget", mainBudget, "time for everything: slow strategies get fewer requests; 0 for no limit")
	flags.BoolVar(&f.quick, "quick", false, "a smoke test: one round of 600 requests, in less than a minute")
	flags.StringVar(&f.out, "out", "", "directory for the report and the histories (default: out/ and the time)")
	f.local.register(flags)
	f.attach.register(flags)
	return cmd
}

// defaults are those of the smoke test where it is asked for; what the user gives stays.
func (f *runFlags) defaults(flags *pflag.FlagSet) {
	if f.quick {
		if !flags.Changed("requests") {
			f.requests = quickRequests
		}
		if !flags.Changed("rounds") {
			f.rounds = quickRounds
		}
		if !flags.Changed("budget") {
			f.budget = quickBudget
		}
	}
	if f.duration > 0 && !flags.Changed("requests") {
		f.requests = 0
	}
	if f.out == "" {
		f.out = filepath.Join("out", time.Now().Format("20060102-150405"))
	}
}

func (f *runFlags) check() error {
	switch {
	case f.requests > 0 && f.duration > 0:
		return errors.New("--requests and --duration exclude each other")
	case f.requests <= 0 && f.duration <= 0:
		return fmt.Errorf("--requests %d: at least 1 is needed", f.requests)
	case f.replicas != 1 && f.replicas != 2:
		return fmt.Errorf("--replicas %d: it is 1 or 2", f.replicas)
	case f.store != "" && f.store != "mysql" && f.store != "redis":
		return fmt.Errorf("--store %q: it is mysql or redis", f.store)
	case f.hold < 0 || f.hold > 10*time.Second || f.hold%time.Millisecond != 0:
		return fmt.Errorf("--hold %v: whole milliseconds up to 10s are needed", f.hold)
	}
	return nil
}

func (f *runFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	if err := f.check(); err != nil {
		return err
	}
	mix, err := f.mix.config()
	if err != nil {
		return err
	}
	if _, err := traffic.NewMix(mix); err != nil {
		return err
	}
	if err := emptyDir(f.out); err != nil {
		return err
	}
	screen := newScreen(stderr)
	defer screen.clear()

	open := f.startLab
	if f.attach.target != "" {
		open = f.attachLab
	}
	screen.note("starting")
	lab, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.close()) }()

	catalogue, err := lab.target.Strategies(ctx)
	if err != nil {
		return err
	}
	choices, leftOut, err := scenario.Choose(catalogue, f.strategies, f.store)
	if err != nil {
		return err
	}
	warmUp := mainWarmUp
	if f.quick {
		warmUp = quickWarmUp
	}
	runner, err := scenario.New(lab.target, scenario.Config{
		Choices: choices, Replicas: f.replicas, Rounds: f.rounds, Seed: f.mix.seed,
		Users: f.users, Rate: f.rate, Requests: f.requests, Duration: f.duration, Hold: f.hold, Timeout: f.timeout,
		Stock: f.stock, Goods: mix.Goods, Skew: mix.Skew, MinCount: mix.MinCount, MaxCount: mix.MaxCount,
		Budget: f.budget, WarmUp: warmUp, Dir: f.out,
	}, began)
	if err != nil {
		return err
	}

	environment := report.LocalEnvironment()
	environment.Options = os.Args[1:]
	environment.Seed = f.mix.seed
	environment.SharedHost = lab.sharedHost
	environment.Servers = lab.servers
	environment.Notes = lab.notes
	for _, reason := range leftOut {
		environment.Notes = append(environment.Notes, "not run: "+reason)
	}
	builder := report.NewBuilder(environment)
	stop := screen.follow(runner.Progress)
	runErr := runner.Run(ctx, func(m scenario.Measured) error {
		round := builder.Add(&m.History, m.Verdict)
		if m.MaxLag > 0 {
			notes := &builder.Environment().Notes
			*notes = append(*notes, fmt.Sprintf("%s, %s, round %d: requests were sent %v late on average, %v at most; %d were dropped",
				m.History.Run.Strategy, m.History.Run.Workload, round.Round, m.MeanLag.Round(time.Microsecond),
				m.MaxLag.Round(time.Microsecond), round.Dropped))
		}
		progress := runner.Progress()
		progress.Done++
		found := string(round.Result)
		if m.History.Run.Promise == verify.PromiseSellsNothing {
			found = "baseline"
		}
		screen.log(fmt.Sprintf("%s: %s, %.0f/s", progress.Heading(), found, round.ThroughputPerS))
		return nil
	})
	stop()
	screen.clear()
	// A server that died explains whatever went wrong.
	if err := lab.check(); err != nil && ctx.Err() == nil {
		return errors.Join(err, runErr)
	}
	if runErr != nil && ctx.Err() == nil {
		return runErr
	}
	result := builder.Report()
	if ctx.Err() != nil {
		progress := runner.Progress()
		result.ClaimsHeld = false
		result.Problems = append([]string{fmt.Sprintf("interrupted after %d of %d runs: nothing follows from what is missing",
			progress.Done, progress.Cells)}, result.Problems...)
	}
	if err := writeReport(f.out, result); err != nil {
		return err
	}
	if err := result.WriteText(stdout, report.Colour(stdout)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nreport: %s  (%v, seed %d)\n", filepath.Join(f.out, "report.md"), time.Since(began).Round(time.Second),
		f.mix.seed)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case result.Err() != nil:
		return errNotHeld
	}
	return nil
}

// emptyDir makes the directory of a run. One that holds histories already is refused: they are somebody's evidence, and would
// be judged together with the new ones.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	histories, err := filepath.Glob(filepath.Join(dir, "history", "*.jsonl"))
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if len(histories) > 0 {
		return fmt.Errorf("--out %s holds the histories of another run: choose another directory, or remove it", dir)
	}
	return nil
}

// writeReport writes a report in all forms.
func writeReport(dir string, r *report.Report) error {
	for name, write := range map[string]func(io.Writer) error{
		"report.json": r.WriteJSON, "report.md": r.WriteMarkdown, "report.csv": r.WriteCSV, "bench.txt": r.WriteBenchmark,
	} {
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if err := errors.Join(write(file), file.Close()); err != nil {
			return fmt.Errorf("write %s: %w", file.Name(), err)
		}
	}
	return nil
}

// readReport reads a report, by the name of its file or of its directory.
func readReport(path string) (*report.Report, error) {
	if !strings.HasSuffix(path, ".json") {
		path = filepath.Join(path, "report.json")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := report.ReadJSON(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
