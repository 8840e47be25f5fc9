package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
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
	restock    int64
	hold       time.Duration
	replicas   int
	timeout    time.Duration
	budget     time.Duration
	sweep      string
	swept      scenario.Sweep
	out        string
	quick      bool

	options []string // those given, by flag or in the environment
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
  loadtest run --strategies update,for-update,optimistic-version --sweep users=1,8,32,128 --rounds 5
  loadtest run --target http://localhost:8000 --admin http://localhost:9001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			f.defaults(cmd.Flags())
			f.attach.redisPassword = getenv("LOADTEST_REDIS_PASSWORD")
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringSliceVar(&f.strategies, "strategies", nil, "names, separated by commas (default: every one that can run here)")
	flags.IntVar(&f.users, "users", 100, "users side by side; with --rate, the most requests under way")
	flags.IntVar(&f.requests, "requests", mainRequests, "requests of each run")
	flags.DurationVar(&f.duration, "duration", 0, "time of each run, in place of --requests")
	flags.Float64Var(&f.rate, "rate", 0, "open loop: requests a second, whatever the service does")
	flags.IntVar(&f.rounds, "rounds", mainRounds, "how often everything is run")
	flags.Int64Var(&f.stock, "stock", 0, "units of all goods together, in place of the two workloads")
	flags.Int64Var(&f.restock, "restock", 0, "units that are put back every 20 ms of a run, of each goods in turn; a lock without a fence loses some")
	f.mix.register(flags)
	flags.DurationVar(&f.hold, "hold", 0, "work inside the critical section, such as 2ms")
	flags.StringVar(&f.store, "store", "", "mysql, redis or slots (default: each strategy's own)")
	flags.IntVar(&f.replicas, "replicas", 2, "replicas of the service: 1 or 2")
	flags.StringVar(&f.sweep, "sweep", "", "vary one of users, hold, goods and replicas, such as users=1,8,32,128: how cost grows with it")
	flags.DurationVar(&f.timeout, "timeout", 20*time.Second, "time limit of a request; should exceed the service's own")
	flags.DurationVar(&f.budget, "budget", mainBudget, "time for everything: slow strategies get fewer requests; 0 for no limit")
	flags.BoolVar(&f.quick, "quick", false, "a smoke test: one round of 600 requests, in less than a minute")
	flags.StringVar(&f.out, "out", "", "directory for the report and the histories (default: out/ and the time)")
	f.local.register(flags)
	f.attach.register(flags)
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
	if f.duration > 0 {
		f.requests = 0
		// Runs of a given length are not cut short for a budget that nobody asked for.
		if !flags.Changed("budget") {
			f.budget = 0
		}
	}
	if f.out == "" {
		f.out = filepath.Join("out", time.Now().Format("20060102-150405"))
	}
	f.options = []string{"run"}
	flags.Visit(func(flag *pflag.Flag) {
		value := flag.Value.String()
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		f.options = append(f.options, "--"+flag.Name+"="+value)
	})
}

// check finds what cannot work before any server is started for it.
func (f *runFlags) check(flags *pflag.FlagSet) error {
	switch {
	case flags.Changed("requests") && flags.Changed("duration"):
		return errors.New("--requests and --duration exclude each other")
	case f.requests < 1:
		return fmt.Errorf("--requests %d: at least 1 is needed", f.requests)
	case f.duration < 0 || flags.Changed("duration") && f.duration == 0:
		return fmt.Errorf("--duration %v: more than that is needed", f.duration)
	case f.users < 1:
		return fmt.Errorf("--users %d: at least 1 is needed", f.users)
	case f.users > scenario.MostUsers:
		return fmt.Errorf("--users %d: one process plays %d at most", f.users, scenario.MostUsers)
	case !(f.rate >= 0 && f.rate <= mostRate):
		return fmt.Errorf("--rate %g: requests a second are needed, up to %d; 0 is a closed loop", f.rate, int(mostRate))
	case f.rounds < 1:
		return fmt.Errorf("--rounds %d: at least 1 is needed", f.rounds)
	case f.stock < 0 || flags.Changed("stock") && f.stock == 0:
		return fmt.Errorf("--stock %d: at least 1 is needed", f.stock)
	case f.restock < 0 || f.restock > mostUnits:
		return fmt.Errorf("--restock %d: units are needed, up to %d", f.restock, mostUnits)
	case f.replicas != 1 && f.replicas != 2:
		return fmt.Errorf("--replicas %d: it is 1 or 2", f.replicas)
	case f.store != "" && !slices.Contains([]string{oracle.MySQL, oracle.Redis, oracle.Slots}, f.store):
		return fmt.Errorf("--store %q: it is mysql, redis or slots", f.store)
	case f.hold < 0 || f.hold > 10*time.Second || f.hold%time.Millisecond != 0:
		return fmt.Errorf("--hold %v: whole milliseconds up to 10s are needed", f.hold)
	case f.timeout <= 0:
		return fmt.Errorf("--timeout %v: more than that is needed", f.timeout)
	case f.budget < 0:
		return fmt.Errorf("--budget %v: it cannot be negative; 0 is no limit", f.budget)
	}
	return cmp.Or(f.checkSweep(flags), f.checkTarget())
}

// checkSweep reads --sweep.
func (f *runFlags) checkSweep(flags *pflag.FlagSet) (err error) {
	if f.sweep == "" {
		return nil
	}
	if f.swept, err = scenario.ParseSweep(f.sweep); err != nil {
		return fmt.Errorf("--sweep %s: %w", f.sweep, err)
	}
	switch axis := f.swept.Axis; {
	case flags.Changed(axis):
		return fmt.Errorf("--%s and --sweep %s exclude each other", axis, axis)
	case axis == scenario.AxisUsers && f.rate > 0:
		return errors.New("--sweep users needs a closed loop: with --rate, nobody sends more for being more")
	case axis == scenario.AxisReplicas && f.attach.target != "" && f.attach.single == "":
		return errors.New("--sweep replicas needs --single: with --target, the lab does not know how to reach one replica alone")
	case axis == scenario.AxisReplicas:
		f.replicas = int(f.swept.Values[len(f.swept.Values)-1])
	}
	return nil
}

// mostRate is more than one process can send, requests a second.
const mostRate = 1_000_000

func (f *runFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	mix, err := f.mix.config()
	if err != nil {
		return err
	}
	if _, err := traffic.NewMix(mix); err != nil {
		return err
	}
	abandon, err := makeDir(f.out)
	if err != nil {
		return err
	}
	defer abandon()
	screen := newScreen(stderr)
	defer screen.clear()

	open := f.startLab
	if f.attach.target != "" {
		open = f.attachLab
	}
	screen.note("starting")
	lab, err := open(ctx)
	if err != nil {
		return cmp.Or(ctx.Err(), err) // an interrupted start fails in many ways
	}
	defer func() {
		if closeErr := lab.close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
	}()

	catalogue, err := lab.target.Strategies(ctx)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
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
		Choices: choices, Replicas: f.replicas, Sweep: f.swept, Rounds: f.rounds, Seed: f.mix.seed,
		Users: f.users, Rate: f.rate, Requests: f.requests, Duration: f.duration, Hold: f.hold, Timeout: f.timeout,
		Stock: f.stock, Restock: f.restock, Goods: mix.Goods, Skew: mix.Skew, MinCount: mix.MinCount, MaxCount: mix.MaxCount,
		Budget: f.budget, WarmUp: warmUp, Dir: f.out,
	}, began)
	if err != nil {
		return err
	}
	plan := runner.Plan()
	if f.duration > 0 {
		takes := time.Duration(len(plan)) * f.duration
		if f.budget > 0 && takes > f.budget {
			return fmt.Errorf("%d runs of --duration %v take %v, more than --budget %v: give a shorter --duration, fewer "+
				"--rounds or --strategies, or a larger --budget", len(plan), f.duration, takes, f.budget)
		}
		screen.say(fmt.Sprintf("%d runs of %v take a little more than %v", len(plan), f.duration, takes))
	}

	builder := report.NewBuilder(f.environment(lab, leftOut))
	builder.Expect(plan)
	if err := writeManifest(f.out, builder.Environment(), plan); err != nil {
		return err
	}
	measuring, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case death := <-lab.died:
			cancel(death) // whatever would be measured now is worth nothing
		case <-measuring.Done():
		}
	}()
	stop := screen.follow(runner.Progress)
	runErr := runner.Run(measuring, func(m scenario.Measured) error {
		round := builder.Add(&m.History, m.Verdict)
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

	interrupted, failure := ctx.Err() != nil, runErr
	if died := lab.check(); died != nil {
		// It is the reason of whatever went wrong after it.
		failure = died
	}
	switch {
	case interrupted:
		builder.Problem("interrupted: nothing follows from what is missing")
	case failure != nil:
		builder.Problem(headline(failure))
	}
	// What was measured stays, whatever went wrong after it.
	result := builder.Report()
	if err := writeReport(f.out, result); err != nil {
		return errors.Join(failure, err)
	}
	if err := result.WriteText(stdout, report.Colour(stdout)); err != nil {
		return errors.Join(failure, err)
	}
	fmt.Fprintf(stdout, "\nreport: %s  (%v, seed %d)\n", filepath.Join(f.out, "report.md"), time.Since(began).Round(time.Second),
		f.mix.seed)
	switch {
	case interrupted:
		return ctx.Err()
	case failure != nil:
		return failure
	case result.Err() != nil:
		return errNotHeld
	}
	return nil
}

// headline is an error without the log that follows it.
func headline(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(first, "; its log ends with:")
}

func (f *runFlags) environment(lab *lab, leftOut []string) report.Environment {
	environment := report.LocalEnvironment()
	environment.Revision = cmp.Or(environment.Revision, revision[:min(len(revision), 12)])
	environment.Options = f.options
	environment.Seed = f.mix.seed
	environment.SharedHost = lab.sharedHost
	environment.Servers = lab.servers
	environment.Notes = lab.notes
	if note := stale(lab.revision, environment.Revision); note != "" {
		environment.Notes = append(environment.Notes, note)
	}
	for _, reason := range leftOut {
		environment.Notes = append(environment.Notes, "not run: "+reason)
	}
	return environment
}

// writeManifest says on disk what is to be run: a run that is killed cannot say what it did not do.
func writeManifest(dir string, environment *report.Environment, plan []history.Cell) error {
	text, err := json.Marshal(environment)
	if err != nil {
		return err
	}
	return history.WriteManifest(filepath.Join(dir, history.ManifestName), history.Manifest{Environment: text, Cells: plan})
}

// makeDir makes the directory of a run; abandon removes it where nothing was written to it. One that holds another run already
// is refused: its histories are somebody's evidence, and would be judged together with the new ones.
func makeDir(dir string) (abandon func(), err error) {
	for _, trace := range []string{filepath.Join("history", "*.jsonl"), history.ManifestName} {
		found, err := filepath.Glob(filepath.Join(dir, trace))
		if err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		if len(found) > 0 {
			return nil, fmt.Errorf("--out %s holds the histories of another run: choose another directory, or remove it", dir)
		}
	}
	_, err = os.Stat(dir)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	return func() {
		if isNew {
			os.Remove(dir) // does nothing to one that holds anything
		}
	}, nil
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
