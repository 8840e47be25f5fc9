package lab

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
)

// RunOptions say what to run.
type RunOptions struct {
	Strategies []string // names; empty: all that can run here
	Store      string   // empty: the default store of each strategy
	Config     load.Config

	// For the report.
	CommandLine []string
	Revision    string // of the lab, if the linker has set it
	Notes       []string
}

// Run is a run of the lab: strategies under workloads, and the report of them.
type Run struct {
	Runner  *load.Runner
	Builder *report.Builder
	Choices []load.Choice
	Dir     string // of the histories and the report

	lab *Lab
}

// NewRun chooses the strategies from the service's catalogue.
func (l *Lab) NewRun(ctx context.Context, o RunOptions) (*Run, error) {
	choices, leftOut, err := l.choose(ctx, o)
	if err != nil {
		return nil, err
	}
	config := o.Config
	config.Choices = choices
	runner, err := load.New(l.Target, config)
	if err != nil {
		return nil, err
	}
	builder := report.NewBuilder(l.environment(o, leftOut))
	Describe(builder, choices)
	builder.Expect(runner.Plan())
	return &Run{Runner: runner, Builder: builder, Choices: choices, Dir: config.Dir, lab: l}, nil
}

// choose returns what is run, and why strategies are left out.
func (l *Lab) choose(ctx context.Context, o RunOptions) (choices []load.Choice, leftOut []string, err error) {
	if own := l.Target.Own; own != nil {
		return []load.Choice{load.OwnService(own.Description)}, nil, nil
	}
	catalogue, err := l.Target.Strategies(ctx)
	if err != nil {
		return nil, nil, cmp.Or(ctx.Err(), err)
	}
	return load.Choose(catalogue, o.Strategies, o.Store)
}

// environment returns what the report of a run says about the lab.
func (l *Lab) environment(o RunOptions, leftOut []string) report.Environment {
	environment := l.Environment()
	environment.Revision = cmp.Or(o.Revision, environment.Revision)
	environment.Options = o.CommandLine
	environment.Seed = o.Config.Seed
	environment.Notes = append(environment.Notes, o.Notes...)
	for _, reason := range leftOut {
		environment.Notes = append(environment.Notes, "not run: "+reason)
	}
	return environment
}

// Environment returns what every report says about the lab.
func (l *Lab) Environment() report.Environment {
	environment := report.LocalEnvironment()
	environment.SharedHost = l.sharedHost
	environment.Servers = l.servers
	environment.Notes = slices.Concat(environment.Notes, l.notes, l.Warnings)
	return environment
}

// Measure runs everything, adds each cell to the report, and calls done with it. It stops when a server dies, and
// returns that as the error.
func (r *Run) Measure(ctx context.Context, done func(*history.History, report.Cell)) error {
	if err := WriteManifest(r.Dir, r.Builder.Environment(), r.Runner.Plan()); err != nil {
		return err
	}
	measuring, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	died := r.lab.Died(measuring)
	go func() {
		select {
		case death := <-died:
			cancel(death)
		case <-measuring.Done():
		}
	}()
	err := r.Runner.Run(measuring, func(m load.Measured) error {
		done(&m.History, r.Builder.Add(&m.History, m.Verdict))
		return nil
	})
	if death := r.lab.Check(); death != nil {
		return death // the cause of any other error
	}
	return err
}

// PlayFaults plays fault scenarios, adds what came of each to the report, writes its history to the directory, and
// calls done with it.
func PlayFaults(
	ctx context.Context, player *fault.Player, o fault.Options, builder *report.Builder, dir string,
	done func(report.Fault),
) error {
	o.Done = func(played report.Fault, h history.History) error {
		if len(h.Ops) > 0 {
			if err := keepScenario(dir, played, h); err != nil {
				return err
			}
		}
		builder.AddFault(played)
		done(played)
		return nil
	}
	return player.Run(ctx, o)
}

// keepScenario writes the history of a scenario.
func keepScenario(dir string, played report.Fault, h history.History) error {
	name := fmt.Sprintf("%s-%s-%d.jsonl", played.Scenario, played.Strategy, played.Repeat)
	path := filepath.Join(dir, "faults", strings.NewReplacer("/", "-", " ", "-").Replace(name))
	return load.WriteHistory(path, h)
}

// Describe adds what the catalogue says about strategies to a report.
func Describe(builder *report.Builder, choices []load.Choice) {
	for _, choice := range choices {
		builder.Describe(choice.Strategy.Name, choice.Strategy.Summary)
	}
}

// Finish writes the report of what was measured or played, even if that was interrupted or failed.
func Finish(ctx context.Context, builder *report.Builder, dir string, failure error) (*report.Report, error) {
	switch {
	case ctx.Err() != nil:
		builder.Problem("interrupted: the results are incomplete")
	case failure != nil:
		builder.Problem(WithoutLog(failure))
	}
	result := builder.Report()
	return result, WriteReport(dir, result)
}

// WithoutLog returns the first line of an error, without the log of the server that it comes from.
func WithoutLog(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(first, "; its log ends with:")
}
