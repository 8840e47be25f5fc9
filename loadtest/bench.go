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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/servers"
	"stock/loadtest/internal/bench"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
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
		Long: `bench measures the strategies that have a speed to reach, interleaved, together with two references: raw, a bare
loop of update's statement on as many connections as users, and bare, a handler that only decodes and encodes the
same JSON behind the same nginx. The judge looks at every cell. Targets are judged by ratios within a round:

` + bench.Wanted(benchUsers) + `
"met" and "not met" are said of the whole 95 % interval, "open" where it does not tell. A target that is not met is a
measurement, and no failure. Exit status: 0 everything was measured, whatever was met; 1 the judge found a strategy wrong;
2 wrong usage, or something is missing here; 130 interrupted.`,
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
	flags.IntVar(&f.users, "users", benchUsers, "users side by side")
	flags.DurationVar(&f.time, "time", 2*time.Second, "time of each cell")
	flags.IntVar(&f.rounds, "rounds", 6, "how often each cell is run; six are the least that have a 95 % interval")
	flags.Uint64Var(&f.seed, "seed", uint64(rand.Uint32()), "of the order of cells")
	flags.BoolVar(&f.quick, "quick", false, "a short trial: one round of cells of 300 ms; its figures mean little")
	flags.StringVar(&f.markdown, "markdown", "", "write the tables in Markdown to this file, - for stdout")
	f.local.register(flags)
}

// defaults are those of the short trial where it is asked for; what the user gives stays.
func (f *benchFlags) defaults(flags *pflag.FlagSet) {
	if f.quick && !flags.Changed("time") {
		f.time = 300 * time.Millisecond
	}
	if f.quick && !flags.Changed("rounds") {
		f.rounds = 1
	}
}

// check finds what cannot work before any server is started for it.
func (f *benchFlags) check() error {
	switch {
	case f.users < 1 || f.users > bench.MostUsers:
		return fmt.Errorf("--users %d: a number from 1 to %d is needed: each has a connection to MySQL, which takes %d and keeps "+
			"some for the replicas", f.users, bench.MostUsers, servers.MySQLConnections)
	case f.time <= 0:
		return fmt.Errorf("--time %v: more than that is needed", f.time)
	case f.rounds < 1:
		return fmt.Errorf("--rounds %d: at least 1 is needed", f.rounds)
	}
	return nil
}

// bareCommand is how bench starts the bare handler as a process of its own.
func bareCommand() *cobra.Command {
	return &cobra.Command{
		Use: "bare ADDRESS", Short: "Serve the handler that bench compares with", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return bench.ServeBare(cmd.Context(), args[0]) },
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

	const replicas = 2
	var bare []string
	for range replicas {
		port, err := servers.FreePort()
		if err != nil {
			return err
		}
		bare = append(bare, fmt.Sprintf("127.0.0.1:%d", port))
	}
	t, err := topology.Start(ctx, topology.Options{Replicas: replicas, StockBinary: f.local.stockBinary, Bare: bare})
	if err != nil {
		return err
	}
	stopAll := func(stop func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		err = errors.Join(err, stop(ctx))
	}
	defer func() { stopAll(t.Stop) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i, address := range bare {
		process, err := servers.Start(servers.Command{
			Name: "bare handler", Path: self, Args: []string{"bare", address}, Log: filepath.Join(dir, fmt.Sprintf("bare-%d.log", i)),
		})
		if err != nil {
			return err
		}
		defer stopAll(process.Stop)
		if err := process.Await(ctx, func(ctx context.Context) error { return answers(ctx, address) }); err != nil {
			return err
		}
	}
	lab, err := attach(ctx, attachFlags{target: t.URL, admin: t.Replicas[0].AdminURL, mysqlDSN: t.MySQLDSN, redis: t.Redis})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.close()) }()

	o := bench.Options{
		Target: lab.target, BareURL: t.BareURL, MySQLDSN: t.MySQLDSN, Users: f.users, Time: f.time, Rounds: f.rounds, Seed: f.seed, Dir: dir,
		Progress: func(done, cells int, doing string) { screen.note(fmt.Sprintf("[%d/%d] %s", done+1, cells, doing)) },
	}
	for _, replica := range t.Replicas {
		o.Replicas = append(o.Replicas, replica.PID)
	}
	result, err := bench.Run(ctx, o)
	screen.clear()
	if died := t.Check(); died != nil && ctx.Err() == nil {
		return died // the reason of whatever went wrong after it
	}
	if err != nil {
		return err
	}
	environment := report.LocalEnvironment()
	var durable []string
	for _, name := range []string{"innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog"} {
		durable = append(durable, name+"="+t.Environment.MySQLSettings[name])
	}
	result.Conditions = fmt.Sprintf("%s, %d cores for load and servers, %s (%s), %s (%s), %s, %s", environment.CPU, environment.Cores,
		t.Environment.MySQL, strings.Join(durable, ", "), t.Environment.Redis, t.Environment.RedisPersistence, t.Environment.Nginx, environment.Go)
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

// answers says whether somebody serves HTTP at an address, whatever it says.
func answers(ctx context.Context, address string) error {
	service := scenario.Service{URL: "http://" + address, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	_, err := service.Get(ctx, "/")
	if err != nil && strings.Contains(err.Error(), "404") {
		return nil
	}
	return err
}

// writeTo writes to the file of this name, to stdout for "-", and nothing where there is no name.
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
