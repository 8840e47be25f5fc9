package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/servers"
	"stock/loadtest/internal/bench"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/topology"
)

type benchFlags struct {
	local    localFlags
	users    int
	time     time.Duration
	rounds   int
	seed     uint64
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
same JSON behind the same nginx. Every cell is judged. Targets are judged by ratios within a round:

` + bench.Wanted(benchUsers) + `
A target is "met" or "not met" by the whole 95 % interval, else "open". A target that is not met is a
measurement, and no failure. Exit status: 0 everything was measured; 1 the judge found a strategy wrong; 2 wrong usage,
or something is missing; 130 interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.defaults(cmd.Flags())
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
	flags.IntVar(&f.users, "users", benchUsers, "number of concurrent users")
	flags.DurationVar(&f.time, "time", 2*time.Second, "duration of each cell")
	flags.IntVar(&f.rounds, "rounds", 6, "number of rounds; a 95 % interval needs at least six")
	flags.Uint64Var(&f.seed, "seed", uint64(rand.Uint32()), "seed of the order of cells")
	flags.BoolVar(&f.quick, "quick", false, "a short trial: one round of cells of 300 ms; its figures are not reliable")
	flags.StringVar(&f.markdown, "markdown", "", "write the tables in Markdown to this file, - for stdout")
	f.local.register(flags)
}

// defaults sets the defaults of a short trial for flags that the user did not set.
func (f *benchFlags) defaults(flags *pflag.FlagSet) {
	if f.quick && !flags.Changed("time") {
		f.time = 300 * time.Millisecond
	}
	if f.quick && !flags.Changed("rounds") {
		f.rounds = 1
	}
}

// check validates the flags before any server is started.
func (f *benchFlags) check() error {
	switch {
	case f.users < 1 || f.users > bench.MostUsers:
		return fmt.Errorf("--users %d: a number from 1 to %d is needed: each user has a connection to MySQL, "+
			"which accepts %d in all, some of them for the replicas", f.users, bench.MostUsers, servers.MySQLConnections)
	case f.time <= 0:
		return fmt.Errorf("--time %v: it must be positive", f.time)
	case f.rounds < 1:
		return fmt.Errorf("--rounds %d: at least 1 is needed", f.rounds)
	}
	return nil
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
	screen.note("starting")
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := startBenchServers(ctx, f.local.stockBinary, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()

	o := bench.Options{
		Target: s.lab.target, BareURL: s.topology.BareURL, MySQLDSN: s.topology.MySQLDSN,
		Users: f.users, Time: f.time, Rounds: f.rounds, Seed: f.seed, Dir: dir,
		Progress: func(done, cells int, subject string) {
			screen.note(fmt.Sprintf("[%d/%d] %s", done+1, cells, subject))
		},
	}
	for _, replica := range s.topology.Replicas {
		o.Replicas = append(o.Replicas, replica.PID)
	}
	result, err := bench.Run(ctx, o)
	screen.clear()
	if died := s.topology.Check(); died != nil && ctx.Err() == nil {
		return died // the cause of any other error
	}
	if err != nil {
		return err
	}
	result.Conditions = conditions(s.topology.Environment)
	if err := result.WriteText(stdout); err != nil {
		return err
	}
	if err := writeTo(f.markdown, stdout, result.WriteMarkdown); err != nil {
		return err
	}
	if len(result.Wrong) > 0 {
		return errNotHeld
	}
	return nil
}

// benchServers are a topology with two replicas, and as many bare handlers behind its nginx.
type benchServers struct {
	topology *topology.Topology
	lab      *lab
	stops    []func(context.Context) error // in the order of the starts
}

func startBenchServers(ctx context.Context, stockBinary, logs string) (_ *benchServers, err error) {
	s := &benchServers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(ctx))
		}
	}()
	const replicas = 2
	var bare []string
	for range replicas {
		port, err := servers.FreePort()
		if err != nil {
			return nil, err
		}
		bare = append(bare, fmt.Sprintf("127.0.0.1:%d", port))
	}
	t, err := topology.Start(ctx, topology.Options{Replicas: replicas, StockBinary: stockBinary, Bare: bare})
	if err != nil {
		return nil, err
	}
	s.topology = t
	s.stops = append(s.stops, t.Stop)
	for i, address := range bare {
		if err := s.startBare(ctx, address, filepath.Join(logs, fmt.Sprintf("bare-%d.log", i))); err != nil {
			return nil, err
		}
	}
	s.lab, err = attach(ctx, attachFlags{
		target: t.URL, admin: t.Replicas[0].AdminURL, mysqlDSN: t.MySQLDSN, redis: t.Redis,
	})
	if err != nil {
		return nil, err
	}
	s.stops = append(s.stops, func(context.Context) error { return s.lab.close() })
	return s, nil
}

// startBare starts a bare handler in a process of its own, and waits until it answers.
func (s *benchServers) startBare(ctx context.Context, address, log string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	process, err := servers.Start(servers.Command{
		Name: "bare handler", Path: self, Args: []string{"bare", address}, Log: log,
	})
	if err != nil {
		return err
	}
	s.stops = append(s.stops, process.Stop)
	return process.Await(ctx, func(ctx context.Context) error { return answers(ctx, address) })
}

// stop stops the servers in the reverse order of their starts, even if ctx has ended.
func (s *benchServers) stop(ctx context.Context) error {
	var errs []error
	for _, stop := range slices.Backward(s.stops) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		errs = append(errs, stop(ctx))
		cancel()
	}
	return errors.Join(errs...)
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

// answers returns nil if an HTTP server answers at an address, with any status.
func answers(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// writeTo writes to the named file, to stdout if the name is "-", and nothing if it is empty.
func writeTo(name string, stdout io.Writer, write func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case "-":
		fmt.Fprintln(stdout)
		return write(stdout)
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
