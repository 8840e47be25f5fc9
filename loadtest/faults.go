package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/topology"
)

// sideBySide is how many scenarios are played at the same time, each on replicas of its own.
const sideBySide = 6

type faultsFlags struct {
	local      localFlags
	servers    serverFlags
	scenarios  []string
	strategies []string
	repeat     int
	step       bool
	verbose    bool
	list       bool
	out        string
}

func faultsCommand(getenv func(string) string) *cobra.Command {
	var f faultsFlags
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Play crashes, late writes and retries for every strategy",
		Long: `faults plays fault scenarios, each on two replicas of its own, for every strategy, and compares the outcome
with what the strategy claims. Each cell proves that its fault struck, and is judged as a load is.

With --mysql-dsn or --redis, it plays them on servers of yours, in a database and with a prefix of keys of its own, as
run does. Scenarios that must break such a server are left out. None can be played on a server with TLS, or on a Redis
Cluster of yours.

With --step, the replicas, the servers and the clients go on while you read. Requests that wait for the scenario time
out after an hour. Leases end as always, and so do requests in scenarios about time-outs. So the claims about how long
an item is blocked are not checked, and a scenario whose fault must strike within a lease may be inconclusive: --verbose
plays the same without waiting.

Exit status: 0 every claim held; 1 a claim failed; 2 wrong usage, or something is missing; 3 a fault did not strike as
it should; 130 interrupted.`,
		Example: `  loadtest faults --list
  loadtest faults --scenarios late-write --strategies lock-redis-lua,lock-redis-fenced --step
  loadtest faults --repeat 20`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if err := f.servers.readAccount(getenv); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *faultsFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringSliceVar(&f.scenarios, "scenarios", nil, "play only these scenarios, a comma-separated list")
	flags.StringSliceVar(&f.strategies, "strategies", nil, "play only these strategies, a comma-separated list")
	flags.IntVar(&f.repeat, "repeat", 1, "how often each scenario is played")
	flags.BoolVar(&f.step, "step", false, "play one cell after the other, and wait for Enter after each step")
	flags.BoolVar(&f.verbose, "verbose", false, "play one cell after the other, and print each step")
	flags.BoolVar(&f.list, "list", false, "list the scenarios, and play none")
	flags.StringVar(&f.out, "out", "", "directory for the report and the histories (default: out/ and the time)")
	f.local.register(flags)
	f.servers.register(flags)
}

func (f *faultsFlags) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	scenarios, err := fault.Find(f.scenarios)
	if err != nil {
		return err
	}
	if f.list {
		return writeScenarios(stdout, scenarios)
	}
	began := time.Now()
	var removeIfEmpty func()
	if f.out, removeIfEmpty, err = lab.CreateDir(f.out); err != nil {
		return err
	}
	defer removeIfEmpty()
	screen := newScreen(stderr)
	defer screen.clear()
	screen.status("starting")
	l, err := lab.Start(ctx, topology.Options{
		Replicas:     1, // it tells the strategies; scenarios have replicas of their own
		RedisReplica: true, StockBinary: f.local.stockBinary,
		User: f.servers.userServers(1 + 2*sideBySide),
	})
	if err != nil {
		return startError(ctx, err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	warnOfServers(stderr, l)
	options, err := f.plan(ctx, l, scenarios)
	if err != nil {
		return err
	}
	if f.step || f.verbose {
		options.Step, options.Parallel = f.stepper(ctx, stdin, stdout), 1
	}
	builder := report.NewBuilder(l.Environment())
	lab.Describe(builder, options.Choices)
	failure := playFaults(ctx, faultLab(l, f.step), options, builder, f.out, screen, func(played report.Fault) {
		if f.step || f.verbose {
			fmt.Fprintf(stdout, "           => %s\n", compared(played))
			for _, found := range played.Evidence[min(1, len(played.Evidence)):] { // the first is part of Found
				fmt.Fprintf(stdout, "              %s\n", history.InWords(found))
			}
		}
	})
	return writeReport(ctx, stdout, builder, f.out, failure, time.Since(began).Round(time.Second).String())
}

// check returns what is wrong with the flags.
func (f *faultsFlags) check() error {
	if f.repeat < 1 || f.repeat > load.MaxRounds {
		return fmt.Errorf("--repeat %d: must be a number from 1 to %d", f.repeat, load.MaxRounds)
	}
	if err := f.servers.checkOwn("", false); err != nil {
		return err
	}
	if why := f.servers.noFaults(); why != "" {
		return fmt.Errorf("no scenario can be played on these servers: %s; leave --mysql-dsn or --redis out, so that the "+
			"lab starts that server", why)
	}
	return nil
}

// writeScenarios lists scenarios.
func writeScenarios(w io.Writer, scenarios []fault.Scenario) error {
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range scenarios {
		fmt.Fprintf(lines, "%s\t%s\n", s.Name, s.Title)
	}
	return lines.Flush()
}

// plan says what is played.
func (f *faultsFlags) plan(ctx context.Context, l *lab.Lab, scenarios []fault.Scenario) (fault.Options, error) {
	catalogue, err := l.Target.Strategies(ctx)
	if err != nil {
		return fault.Options{}, cmp.Or(ctx.Err(), err)
	}
	o := fault.Options{
		Scenarios: scenarios, Repeat: f.repeat,
		Parallel: parallel(l, 1, sideBySide),
		Command:  replayCommand(f.local.stockBinary),
	}
	if o.Choices, err = f.choose(catalogue); err != nil {
		return o, err
	}
	if faultLab(l, f.step).Cells(o) == 0 {
		return o, fmt.Errorf("no scenario that was chosen applies to %s", strings.Join(f.strategies, ", "))
	}
	return o, nil
}

// parallel returns how many scenarios, of two replicas each, can be played at the same time beside some replicas.
func parallel(l *lab.Lab, beside, wanted int) int {
	if most := l.Topology.MostReplicas; most > 0 {
		return max(1, min(wanted, (most-beside)/2))
	}
	return wanted
}

// replayCommand is the command that plays scenarios again, on the same binary of the service.
func replayCommand(stockBinary string) string {
	if stockBinary == "" {
		return fault.Command
	}
	return fault.Command + " --stock-binary " + stockBinary
}

// faultLab returns the lab as scenarios need it. If reading is set, requests have time for a person to read each step.
func faultLab(l *lab.Lab, reading bool) *fault.Player {
	return &fault.Player{Topology: l.Topology, Oracle: l.Target.Oracle, Reading: reading}
}

// choose returns the strategies that are named, or all if none is.
func (f *faultsFlags) choose(catalogue []load.Strategy) ([]load.Choice, error) {
	var choices []load.Choice
	for _, s := range catalogue {
		if f.strategies == nil || s.IsIn(f.strategies) {
			choices = append(choices, load.Choice{Strategy: s, Store: s.Stores[0]})
		}
	}
	return choices, load.CheckNames(f.strategies, catalogue)
}

// compared says what came of a scenario, and whether that is claimed.
func compared(f report.Fault) string {
	switch {
	case f.Claimed == "", f.Effect == report.Skipped:
		return f.Found()
	case f.ClaimHeld:
		return f.Found() + ", as claimed"
	}
	return f.Found() + ", but claimed: " + f.ClaimWords()
}

// playFaults plays the scenarios on replicas of their own beside those of the lab, shows progress, and calls tell with
// what came of each.
func playFaults(
	ctx context.Context, l *fault.Player, o fault.Options, builder *report.Builder, dir string, screen *screen,
	tell func(report.Fault),
) error {
	done, cells := 0, l.Cells(o)
	screen.status(fmt.Sprintf("faults: %s (%d cells)", o.Scenarios[0].Name, cells))
	err := lab.PlayFaults(ctx, l, o, builder, dir, func(played report.Fault) {
		done++
		screen.status(fmt.Sprintf("faults: %s (%d of %d)", played.Scenario, done, cells))
		tell(played)
	})
	screen.clear()
	return err
}

// stepper prints each step, and waits for Enter if --step is set. At the end of the input, or of ctx, the rest is
// played without waiting.
func (f *faultsFlags) stepper(
	ctx context.Context, stdin io.Reader, stdout io.Writer,
) func(*fault.Stage, report.FaultStep) {
	enter := make(chan struct{})
	if f.step {
		go readLines(ctx, stdin, enter)
	} else {
		close(enter)
	}
	var mu sync.Mutex
	playing := ""
	return func(stage *fault.Stage, step report.FaultStep) {
		mu.Lock()
		defer mu.Unlock()
		scenario, strategy := stage.Scenario, stage.Strategy.Name
		if now := scenario + " " + strategy; now != playing {
			fmt.Fprintf(stdout, "\n%s, %s\n", scenario, strategy)
			playing = now
		}
		fmt.Fprintf(stdout, "%7.2f s  %s\n", step.After.Seconds(), step.Text)
		select {
		case <-enter:
		case <-ctx.Done():
		}
	}
}

// readLines sends to enter for each line, and closes it at the end.
func readLines(ctx context.Context, r io.Reader, enter chan<- struct{}) {
	defer close(enter)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		select {
		case enter <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}
