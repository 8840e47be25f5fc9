package main

import (
	"cmp"
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

	"stock/internal/servers"
	"stock/loadtest/internal/bench"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

type benchFlags struct {
	bench.Options

	local    localFlags
	quick    bool
	markdown string
}

const benchUsers = 100

func benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare the fastest strategies with what the machine allows",
		Long: `bench measures the strategies that have a target, interleaved with two references: raw, a loop of update's
statement on as many connections as users, straight to MySQL, and bare, a handler that only decodes and encodes the
same JSON behind the same nginx. If wrk is installed, it measures some of the strategies as well. Every cell of a
strategy is judged, except for those by wrk. Targets are judged by ratios within a round:

` + bench.Wanted(benchUsers) + `
A target is "met" or "not met" by the whole 95 % interval, else "undecided". A target that is not met is a
measurement, and no failure. Exit status: 0 everything was measured; 1 the judge found a strategy wrong; 2 wrong usage,
or something is missing; 3 nothing was found wrong, but a cell could not be judged; 130 interrupted.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.defaults(cmd.Flags())
			f.Seed = cmp.Or(f.Seed, newSeed())
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *benchFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.IntVar(&f.Users, "users", benchUsers, "number of concurrent users")
	flags.DurationVar(&f.Time, "time", 2*time.Second, "duration of each cell")
	flags.IntVar(&f.Rounds, "rounds", 6, "number of rounds; a 95 % interval needs at least six")
	flags.Uint64Var(&f.Seed, "seed", 0, "seed of the order of cells (default: a random one, which is printed)")
	flags.BoolVar(&f.quick, "quick", false, "a short trial: one round of cells of 300 ms; its figures are not reliable")
	flags.StringVar(&f.markdown, "markdown", "", "write the tables in Markdown to this file")
	f.local.register(flags)
}

// defaults sets the defaults of a short trial for flags that the user did not set.
func (f *benchFlags) defaults(flags *pflag.FlagSet) {
	if f.quick && !flags.Changed("time") {
		f.Time = 300 * time.Millisecond
	}
	if f.quick && !flags.Changed("rounds") {
		f.Rounds = 1
	}
}

// check validates the flags before any server is started.
func (f *benchFlags) check() error {
	switch {
	case f.Users < 1 || f.Users > bench.MaxUsers:
		return fmt.Errorf("--users %d: a number from 1 to %d is needed: each user has a connection to MySQL, "+
			"which accepts %d in all, some of them for the replicas", f.Users, bench.MaxUsers, servers.MySQLConnections)
	case f.Time <= 0:
		return fmt.Errorf("--time %v: it must be positive", f.Time)
	case f.Rounds < 1 || f.Rounds > scenario.MaxRounds:
		return fmt.Errorf("--rounds %d: must be a number from 1 to %d", f.Rounds, scenario.MaxRounds)
	}
	return checkWritable("--markdown", f.markdown)
}

// bareCommand runs the bare handler, which bench starts as a process of its own.
func bareCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "bare ADDRESS",
		Short:  "Serve the handler that bench compares with",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(cmd *cobra.Command, args []string) error { return bench.ServeBare(cmd.Context(), args[0]) },
	}
}

func (f *benchFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	screen := newScreen(stderr)
	defer screen.clear()
	screen.status("starting")
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const replicas = 2
	bare, err := freeAddresses(replicas)
	if err != nil {
		return err
	}
	l, err := lab.Start(ctx, topology.Options{Replicas: replicas, StockBinary: f.local.stockBinary, Bare: bare})
	if err != nil {
		return cmp.Or(ctx.Err(), err) // an interrupted start can fail in many ways
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	pids, stopBare, err := startBare(ctx, bare, dir)
	defer func() { err = errors.Join(err, stopBare()) }()
	if err != nil {
		return err
	}

	f.Target, f.BareURL, f.MySQLDSN, f.Dir = l.Target, l.Topology.BareURL, l.Topology.MySQLDSN, dir
	f.Progress = func(done, cells int, subject string) {
		screen.status(fmt.Sprintf("[%d/%d] %s", done+1, cells, subject))
	}
	for _, replica := range l.Topology.Replicas {
		f.Replicas = append(f.Replicas, replica.PID)
	}
	f.Parts = partsOf(l.Topology, append(pids, f.Replicas...))
	result, err := bench.Run(ctx, f.Options)
	screen.clear()
	if death := l.Check(); death != nil && ctx.Err() == nil {
		return death // the cause of any other error
	}
	if err != nil {
		return err
	}
	result.Conditions = conditions(l.Topology.Environment)
	return f.report(stdout, result)
}

// report writes what was measured, and returns the error that the command ends with.
func (f *benchFlags) report(stdout io.Writer, result *bench.Result) error {
	if err := result.WriteText(stdout); err != nil {
		return err
	}
	if f.markdown != "" {
		if err := lab.WriteFile(f.markdown, result.WriteMarkdown); err != nil {
			return err
		}
	}
	switch {
	case len(result.Wrong) > 0:
		return errNotHeld
	case len(result.Inconclusive) > 0:
		return errInconclusive
	}
	return nil
}

// freeAddresses returns loopback addresses that nothing listens on.
func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		port, err := servers.FreePort()
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return addresses, nil
}

// partsOf lists the parts of the lab whose CPU time is measured. The service is the replicas, and the bare handlers in
// their place.
func partsOf(t *topology.Topology, service []int) []bench.Part {
	return []bench.Part{
		{Name: "nginx", PIDs: []int{t.Nginx.PID}},
		{Name: "service", PIDs: service},
		{Name: "MySQL", PIDs: []int{t.Servers.MySQL.PID}},
		{Name: "Redis", PIDs: []int{t.Servers.Redis.PID}},
	}
}

// startBare starts a bare handler at each address, in a process of its own, and waits until all answer. stop also stops
// those that were started before an error.
func startBare(ctx context.Context, addresses []string, logs string) (pids []int, stop func() error, err error) {
	var processes []*servers.Process
	stop = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lab.StopTime)
		defer cancel()
		var errs []error
		for _, process := range processes {
			errs = append(errs, process.Stop(ctx))
		}
		return errors.Join(errs...)
	}
	self, err := os.Executable()
	if err != nil {
		return pids, stop, err
	}
	for i, address := range addresses {
		process, err := servers.Start(servers.Command{
			Name: "bare handler", Path: self, Args: []string{"bare", address},
			Log: filepath.Join(logs, fmt.Sprintf("bare-%d.log", i)),
		})
		if err != nil {
			return pids, stop, err
		}
		processes = append(processes, process)
		pids = append(pids, process.PID)
		probe := func(ctx context.Context) error { return servers.ProbeHTTP(ctx, "http://"+address) }
		if err := process.Await(ctx, probe); err != nil {
			return pids, stop, err
		}
	}
	return pids, stop, nil
}

// conditions describes the machine, the versions and the durability of a bench.
func conditions(e topology.Environment) string {
	machine := report.LocalEnvironment()
	var durable []string
	for _, name := range []string{"innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog"} {
		durable = append(durable, name+"="+e.MySQLSettings[name])
	}
	return fmt.Sprintf("%s, %d cores for load and servers, %s (%s), %s (%s), %s, %s", machine.CPU, machine.Cores,
		e.MySQL, strings.Join(durable, ", "), e.Redis, e.RedisPersistence, e.Nginx, machine.Go)
}

// checkWritable makes sure, before a long run, that the file of a flag can be written after it. It creates the
// file and its directory if there are none.
func checkWritable(flag, name string) error {
	if name == "" {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		var file *os.File
		if file, err = os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", flag, name, err)
	}
	return nil
}
