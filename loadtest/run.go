package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

func runCommand(getenv func(string) string) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run strategies under load, judge each, and report",
		Long: `run starts private servers and replicas behind nginx, runs every strategy, judges what each did to the
stock, and compares them. Without flags it runs two workloads in less than five minutes. It gives every strategy at
least three rounds, and more to those whose speed is not yet known within 10 %:

  plenty      as many units as requested      (6 000 requests, 6 000 units)
  flash-sale  a sixth of the units requested  (6 000 requests, 1 000 units)

Before them it runs three small workloads once. They are judged and not measured, and only strategies that claim to
be correct run them:

  orders      up to five items per order, of strategies that take orders
  retries     requests are sent again while stock is left, to strategies that honour an Idempotency-Key
  tail        up to eight units per request of items with little stock

They are left out with --stock, --sweep, --rate, --restock and --duration, and if the lab cannot set the stock.

With --target it uses a service that is already running. It then needs --admin to set the stock, and --mysql-dsn
and --redis to read the stock directly instead of through the service.`,
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
			f.setDefaults(cmd.Flags())
			f.options = givenOptions(cmd.Flags())
			f.attach.redisPassword = getenv("LOADTEST_REDIS_PASSWORD")
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *runFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	mix, err := f.request.mix()
	if err != nil {
		return err
	}
	if _, err := traffic.NewMix(mix); err != nil {
		return err
	}
	var removeIfEmpty func()
	f.out, removeIfEmpty, err = createRunDir(f.out)
	if err != nil {
		return err
	}
	defer removeIfEmpty()
	screen := newScreen(stderr)
	defer screen.clear()

	screen.status("starting")
	lab, err := f.openLab(ctx)
	if err != nil {
		return cmp.Or(ctx.Err(), err) // an interrupted start can fail in many ways
	}
	defer func() {
		if closeErr := lab.close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
	}()

	runner, choices, leftOut, err := f.newRunner(ctx, lab, mix, began)
	if err != nil {
		return err
	}
	plan := runner.Plan()
	if err := f.announceDuration(len(plan), screen); err != nil {
		return err
	}
	builder := report.NewBuilder(f.environment(lab, leftOut))
	describe(builder, choices)
	builder.Expect(plan)
	if err := writeManifest(f.out, builder.Environment(), plan); err != nil {
		return err
	}
	failure := measure(ctx, lab, runner, builder, screen)
	if failure == nil && f.faults {
		options := fault.Options{
			Scenarios: fault.Basic, Choices: choices, Repeat: 1, Parallel: len(fault.Basic),
			Command: replayCommand(f.local.stockBinary),
		}
		failure = playFaults(ctx, lab.stage(false), options, builder, f.out, screen)
	}
	return f.report(ctx, stdout, builder, failure, began)
}

// openLab starts the servers, or connects to those of --target.
func (f *runFlags) openLab(ctx context.Context) (*lab, error) {
	if f.attach.target != "" {
		return attach(ctx, f.attach)
	}
	return startLab(ctx, topology.Options{
		Replicas: f.replicas, RedisReplica: f.copied, StockBinary: f.local.stockBinary,
	})
}

// newRunner chooses strategies from the service's catalogue. It also returns why it left out any of them.
func (f *runFlags) newRunner(ctx context.Context, lab *lab, mix traffic.MixConfig, began time.Time) (
	runner *scenario.Runner, choices []scenario.Choice, leftOut []string, err error,
) {
	catalogue, err := lab.target.Strategies(ctx)
	if err != nil {
		return nil, nil, nil, cmp.Or(ctx.Err(), err)
	}
	choices, leftOut, err = scenario.Choose(catalogue, f.strategies, f.request.store)
	if err != nil {
		return nil, nil, nil, err
	}
	runner, err = scenario.New(lab.target, scenario.Config{
		Choices:  choices,
		Replicas: f.replicas,
		Sweep:    f.sweep,
		Rounds:   f.rounds,
		Seed:     mix.Seed,
		Users:    f.users,
		Rate:     f.rate,
		Requests: f.requests,
		Duration: f.duration,
		Hold:     f.request.hold,
		Timeout:  f.timeout,
		Stock:    f.stock,
		Restock:  f.restock,
		Goods:    mix.Goods,
		Skew:     mix.Skew,
		MinCount: mix.MinCount,
		MaxCount: mix.MaxCount,
		Budget:   f.loadBudget(),
		WarmUp:   f.warmUp(),
		Dir:      f.out,
	}, began)
	return runner, choices, leftOut, err
}

// describe adds what the catalogue says about the strategies.
func describe(builder *report.Builder, choices []scenario.Choice) {
	for _, choice := range choices {
		builder.Describe(choice.Strategy.Name, choice.Strategy.Summary)
	}
}

// announceDuration says how long runs of a given duration take. It returns an error if that exceeds the budget.
func (f *runFlags) announceDuration(runs int, screen *screen) error {
	if f.duration == 0 {
		return nil
	}
	takes := time.Duration(runs) * f.duration
	if f.budget > 0 && takes > f.budget {
		return fmt.Errorf("%d runs of --duration %v take %v, more than --budget %v: reduce --duration, --rounds or "+
			"--strategies, or increase --budget", runs, f.duration, takes, f.budget)
	}
	screen.println(fmt.Sprintf("%d runs of %v take a little more than %v", runs, f.duration, takes))
	return nil
}

// environment returns what the report says about the lab.
func (f *runFlags) environment(lab *lab, leftOut []string) report.Environment {
	environment := report.LocalEnvironment()
	environment.Revision = cmp.Or(shortRevision(revision), environment.Revision)
	environment.Options = f.options
	environment.Seed = f.request.seed
	environment.SharedHost = lab.sharedHost
	environment.Servers = lab.servers
	environment.Notes = lab.notes
	if note := revisionNote(lab.revision, environment.Revision); note != "" {
		environment.Notes = append(environment.Notes, note)
	}
	for _, reason := range leftOut {
		environment.Notes = append(environment.Notes, "not run: "+reason)
	}
	return environment
}

// measure runs everything and adds each run to the report. It stops when a server dies, and returns that as the error.
func measure(
	ctx context.Context, lab *lab, runner *scenario.Runner, builder *report.Builder, screen *screen,
) error {
	measuring, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	died := lab.died()
	go func() {
		select {
		case death := <-died:
			cancel(death)
		case <-measuring.Done():
		}
	}()
	stop := screen.follow(runner.Progress)
	err := runner.Run(measuring, func(m scenario.Measured) error {
		round := builder.Add(&m.History, m.Verdict)
		progress := runner.Progress()
		progress.Done++
		result := string(round.Result)
		if m.History.Run.Claim == verify.ClaimSellsNothing {
			result = "baseline"
		}
		screen.logLine(fmt.Sprintf("%s: %s, %.0f requests/s", progress.Heading(), result, round.ThroughputPerS))
		return nil
	})
	stop()
	screen.clear()
	if death := lab.check(); death != nil {
		return death // the cause of any other error
	}
	return err
}

// report writes the report of everything that was measured, even if the run failed or was interrupted, and returns the
// error that the command ends with.
func (f *runFlags) report(
	ctx context.Context, stdout io.Writer, builder *report.Builder, failure error, began time.Time,
) error {
	interrupted := ctx.Err()
	switch {
	case interrupted != nil:
		builder.Problem("interrupted: the results are incomplete")
	case failure != nil:
		builder.Problem(withoutLog(failure))
	}
	result := builder.Report()
	if err := writeReport(f.out, result); err != nil {
		return errors.Join(failure, err)
	}
	if err := result.WriteText(stdout, report.Colour(stdout)); err != nil {
		return errors.Join(failure, err)
	}
	path, took := filepath.Join(f.out, "report.md"), time.Since(began).Round(time.Second)
	fmt.Fprintf(stdout, "\nreport: %s  (%v, seed %d)\n", path, took, f.request.seed)
	announcePage(stdout, f.out)
	switch {
	case interrupted != nil:
		return interrupted
	case failure != nil:
		return failure
	}
	return conclusion(result)
}

// withoutLog returns the first line of an error, without the log of the server that it comes from.
func withoutLog(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(first, "; its log ends with:")
}
