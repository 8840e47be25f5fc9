package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/page"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/sequence"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

func runCommand(getenv func(string) string) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run strategies under load, judge each, and report",
		Long: `run starts private servers and replicas behind nginx, runs every strategy, judges what each did to the
stock, and compares them. Without flags it runs two workloads three times, in about six minutes:

  plenty      as many units as requested      (6 000 requests, 6 000 units)
  flash-sale  a sixth of the units requested  (6 000 requests, 1 000 units)

Of slow strategies, a run has fewer requests and units, unless --requests or --duration says how many.

Before them it runs small workloads once. They are judged and not measured. Strategies that claim to undersell run
"rest", and those that claim to be correct run the others:

  orders         up to five items per order, of strategies that take orders
  retries        requests are sent with a key, and again while stock is left, to strategies that keep an Idempotency-Key
  cancellations  sales are cancelled, wholly or in part, twice, or before they are answered
  reservations   units are held, and then confirmed, cancelled or left to expire
  tail           up to eight units per request of items with little stock
  rest           the same, with five times the demand

They are left out with --stock, --workload, --sweep, --rate, --restock and --duration.

Before all of them, it sends made-up sequences of requests, and compares the answers with docs/http-api.md.

With --mysql-dsn or --redis, it uses servers of yours in place of private ones, in a database and with a prefix of keys
of its own. It removes both at the end, also after Ctrl-C, and changes nothing else. On servers with TLS, and on a Redis
Cluster of yours, it plays no fault scenarios.

With --service it judges a service of yours, in any language, which a file describes: docs/your-service.md. It first
sells one unit, to see whether the description is right.

With --target it uses a service of this repository that is already running. It sets the stock through the listener of
--admin, and reads it from --mysql-dsn and --redis, or else through the service.

The passwords of MySQL and Redis are read from LOADTEST_MYSQL_PASSWORD (unless the DSN has one) and
LOADTEST_REDIS_PASSWORD, or from the files that these variables with _FILE at the end name.`,
		Example: `  loadtest run
  loadtest run --quick --strategies none,update
  loadtest run --strategies update,for-update --users 32 --goods 5
  loadtest run --rate 500 --duration 10s --strategies update
  loadtest run --strategies update,for-update,optimistic-version --sweep users=1,8,32,128 --rounds 5
  loadtest run --mysql-dsn 'lab@tcp(db:3306)/' --redis cache:6379
  loadtest run --service loadtest/examples/python/wrong.yaml
  loadtest run --target http://localhost:8000 --admin http://localhost:9001`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			if err := f.readService(cmd.Flags(), getenv); err != nil {
				return err
			}
			f.setDefaults(cmd.Flags())
			f.options = givenOptions(cmd.Flags())
			if err := f.attach.readAccount(getenv); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *runFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	var removeIfEmpty func()
	if f.Dir, removeIfEmpty, err = lab.CreateDir(f.Dir); err != nil {
		return err
	}
	defer removeIfEmpty()
	screen := newScreen(stderr)
	defer screen.clear()

	if f.faultsLeftOut != "" {
		screen.println("no fault scenario will be played: " + f.faultsLeftOut)
	}
	screen.status("starting")
	l, err := f.openLab(ctx)
	if err != nil {
		return startError(ctx, err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	warnOfServers(stderr, l)
	run, err := l.NewRun(ctx, f.runOptions())
	if err != nil {
		return err
	}
	f.announceDuration(len(run.Runner.Plan()), screen)
	failure := f.playSequences(ctx, l, run, screen)
	if failure == nil {
		failure = measure(ctx, run, screen)
	}
	if failure == nil && f.faults {
		options := fault.Options{
			Scenarios: fault.Basic, Choices: run.Choices, Repeat: 1, Parallel: parallel(l, f.Replicas, len(fault.Basic)),
			Command: replayCommand(f.local.stockBinary),
		}
		failure = playFaults(ctx, faultLab(l, false), options, run.Builder, f.Dir, screen,
			func(report.Fault) {})
	}
	if failure == nil && f.explore {
		failure = exploreQuickly(ctx, l, run, screen)
	}
	how := fmt.Sprintf("%v, seed %d", time.Since(began).Round(time.Second), f.Seed)
	return writeReport(ctx, stdout, run.Builder, f.Dir, failure, how)
}

// Sequences of requests for each strategy.
const (
	sequences      = 10
	quickSequences = 3
	ownSequences   = 4 // times as many, because there is only one service
)

// playSequences compares the answers to made-up sequences of requests with the model of the API.
func (f *runFlags) playSequences(ctx context.Context, l *lab.Lab, run *lab.Run, screen *screen) error {
	if !f.contract {
		return nil
	}
	screen.status("contract")
	defer screen.clear()
	options := sequence.Options{Each: sequences, Seed: f.Seed}
	if f.quick {
		options.Each = quickSequences
	}
	var found []report.Contract
	var err error
	if own := l.Target.Own; own != nil {
		options.Each *= ownSequences
		found = make([]report.Contract, 1)
		found[0], err = sequence.PlayOwn(ctx, own, f.Timeout, options)
	} else {
		if options.Catalogue, err = l.Target.Strategies(ctx); err != nil {
			return err
		}
		found, err = sequence.Play(ctx, l.Topology, f.stores(run.Choices), options)
	}
	if err != nil {
		return err
	}
	for _, c := range found {
		run.Builder.AddContract(c)
		if c.Wrong != "" {
			screen.logLine(fmt.Sprintf("contract: %s on %s: %s", c.Strategy, c.Store, c.Wrong))
		}
	}
	return nil
}

// stores returns the strategies on every store, unless one was named.
func (f *runFlags) stores(choices []load.Choice) (all []load.Choice) {
	if f.store != "" {
		return choices
	}
	for _, c := range choices {
		all = append(all, c.Strategy.OnEveryStore()...)
	}
	return all
}

// openLab starts the servers, or connects to those of --target.
func (f *runFlags) openLab(ctx context.Context) (*lab.Lab, error) {
	if f.service != nil {
		return lab.StartService(ctx, f.service, f.Replicas, f.attach.place())
	}
	if f.attach.target != "" {
		return lab.Attach(ctx, f.attach.place())
	}
	return lab.Start(ctx, f.clusters.options(topology.Options{
		Replicas: f.Replicas, RedisReplica: true, StockBinary: f.local.stockBinary, TiDB: f.local.tidb,
		User: f.attach.userServers(f.mostReplicas()),
	}))
}

// mostReplicas is how many replicas run at the same time: fewer have more connections to the user's MySQL.
func (f *runFlags) mostReplicas() int {
	if !f.faults {
		return f.Replicas
	}
	return f.Replicas + 2*len(fault.Basic)
}

// runOptions returns what the flags ask for.
func (f *runFlags) runOptions() lab.RunOptions {
	config := f.Config
	config.Compared = page.Compared
	return lab.RunOptions{
		Strategies: f.strategies, Store: f.store, Config: config,
		CommandLine: f.options, Revision: revision, Notes: f.notes(),
	}
}

// notes says what was left out, or where fault scenarios were played if Redis is a Cluster.
func (f *runFlags) notes() []string {
	switch {
	case f.service != nil && f.service.IdempotencyHeader != "" && !f.contract:
		return []string{"not judged: keys that are sent again with another request, because the load is not the standard one"}
	case f.faultsLeftOut != "":
		return []string{"no fault scenario was played: " + f.faultsLeftOut}
	case !f.clusters.redis || !f.faults:
		return nil
	}
	return []string{"the fault scenarios were played on one Redis beside the Cluster: cluster-failover is about a Cluster"}
}

// announceDuration says how long runs of a given duration take.
func (f *runFlags) announceDuration(runs int, screen *screen) {
	if f.Duration > 0 {
		takes := time.Duration(runs) * f.Duration
		screen.println(fmt.Sprintf("%d runs of %v take a little more than %v", runs, f.Duration, takes))
	}
}

// measure runs everything, and shows how far it is.
func measure(ctx context.Context, run *lab.Run, screen *screen) error {
	stop := screen.follow(run.Runner.Progress)
	err := run.Measure(ctx, func(h *history.History, round report.Cell) {
		progress := run.Runner.Progress()
		progress.Done++
		result := round.Word(h.Run)
		switch {
		case round.Result == verify.Wrong && h.Run.Claim != verify.ClaimCorrect:
			result += ", as claimed"
		case result == report.LateLosesUpdate:
			result = fmt.Sprintf("%s, but %s (%s)", report.CorrectUnderLoad, result, report.ClaimedOnly)
		}
		screen.logLine(fmt.Sprintf("%s: %s, %.0f requests/s", progress.Heading(), result, round.ThroughputPerS))
	})
	stop()
	screen.clear()
	return err
}

// writeReport writes the report of everything that was measured or played, even if that failed or was interrupted, and
// returns the error that the command ends with. how is what the command says about it.
func writeReport(
	ctx context.Context, stdout io.Writer, builder *report.Builder, dir string, failure error, how string,
) error {
	result, err := lab.Finish(ctx, builder, dir, failure)
	if err != nil {
		return errors.Join(failure, err)
	}
	if err := result.WriteText(stdout, report.Colour(stdout)); err != nil {
		return errors.Join(failure, err)
	}
	fmt.Fprintf(stdout, "\nreport: %s  (%s)\n", filepath.Join(dir, "report.md"), how)
	announcePage(stdout, dir)
	return cmp.Or(ctx.Err(), failure, conclusion(result))
}

// announcePage prints where the page of a run is.
func announcePage(stdout io.Writer, dir string) {
	fmt.Fprintf(stdout, "page for the browser: %s\n", filepath.Join(dir, lab.ReportPage))
}
