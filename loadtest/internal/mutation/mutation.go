// Package mutation tests the judge: it has the lab run services with a planted mutant, and compares the verdict with
// what it should be.
package mutation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"stock/internal/servers"
	"stock/internal/suggest"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// Mutant is a bug or an oddity that the service can plant, as `stock mutants` lists it.
type Mutant struct {
	Name     string `json:"name"`
	Family   string `json:"family"`
	Strategy string `json:"strategy"`
	Store    string `json:"store"`  // empty: the strategy's default
	Oddity   bool   `json:"oddity"` // the strategy keeps its claims
	Planted  string `json:"planted"`
	Story    string `json:"story"` // the fault scenario that shows the bug; empty: a load or a fault does
	Fault    string `json:"fault"` // of the explorer, which shows the bug; empty: a load or a scenario does

	rewrite *rewrite // of the explorer's source; nil: it is a mutant of the service
}

// wanted is the verdict that the judge should reach.
func (m Mutant) wanted() verify.Result {
	if m.Oddity {
		return verify.Correct
	}
	return verify.Wrong
}

// List asks a service that was built with the tag mutants for its mutants.
func List(ctx context.Context, stock string) (mutants []Mutant, err error) {
	output, err := servers.Run(ctx, servers.Command{Name: "stock mutants", Path: stock, Args: []string{"mutants"}})
	if err == nil {
		err = json.Unmarshal(output, &mutants)
	}
	if err != nil {
		return nil, fmt.Errorf("%s lists no mutants: it must be built with -tags mutants: %w", stock, err)
	}
	return mutants, nil
}

// Choose returns the mutants with the given names, or all if there are none.
func Choose(all []Mutant, names []string) ([]Mutant, error) {
	if len(names) == 0 {
		return all, nil
	}
	chosen := make([]Mutant, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
		if i < 0 {
			var known []string
			for _, m := range all {
				known = append(known, m.Name)
			}
			return nil, fmt.Errorf("no mutant is named %q%s", name, suggest.DidYouMean(name, known))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Trial is what the judge made of a mutant.
type Trial struct {
	Mutant
	Verdict  verify.Result
	Workload string // that the verdict is from
	Evidence string // its first line; empty if there is none
	Runs     int    // until the verdict
	Strikes  int64  // how often the change of the mutant was applied in these runs
	Took     time.Duration
}

// Passed reports whether the judge found what it should. Nobody counts the strikes on the replicas of a story or of the
// explorer, which may kill them: the strategy is safe there without the mutant. Nor does a change of the explorer
// strike.
func (t Trial) Passed() bool { return t.Verdict == t.wanted() && (t.Strikes > 0 || !t.counted()) }

func (t Trial) counted() bool { return t.Story == "" && t.Fault == "" && t.rewrite == nil }

// Lab is what trials run on.
type Lab struct {
	Topology *topology.Topology
	Target   load.Target
	Config   load.Config // of each trial, except for its choices
}

// errDecided ends a trial early.
var errDecided = errors.New("the verdict is decided")

// passes is how often a bug is tried under all workloads. A full lab runs each measured workload at least this often.
const passes = 3

// Try plants a mutant and runs its strategy under one workload after another. A bug is tried until it is found; an
// oddity once under every workload.
func (l Lab) Try(ctx context.Context, m Mutant) (t Trial, err error) {
	began := time.Now()
	defer func() { t.Took = time.Since(began) }()
	t = Trial{Mutant: m, Verdict: verify.Correct}
	if m.rewrite != nil {
		return t, m.rewrite.try(ctx, &t, filepath.Join(l.Config.Dir, m.Name))
	}
	if m.Story != "" {
		return t, l.play(ctx, &t)
	}
	if m.Fault != "" {
		return t, l.explore(ctx, &t)
	}
	if err := l.Topology.RestartReplicas(ctx, "--mutant="+m.Name); err != nil {
		return t, err
	}
	l.Config.Dir = filepath.Join(l.Config.Dir, m.Name)
	for range passes {
		settings, err := l.settings(ctx, m.Strategy, m.Store)
		if err != nil {
			return t, err
		}
		for _, config := range settings {
			if err := l.try(ctx, &t, config); err != nil || t.Verdict == verify.Wrong {
				return t, err
			}
		}
		if m.Oddity {
			break
		}
		l.Config.Seed++
	}
	return t, nil
}

// try runs a setting, and adds to a trial what was found and how often the mutant struck meanwhile. That it struck
// during the warm-up proves nothing.
func (l Lab) try(ctx context.Context, t *Trial, config load.Config) error {
	var before int64
	config.Warm = func(ctx context.Context) (err error) {
		before, err = l.strikes(ctx)
		return err
	}
	if err := l.run(ctx, config, t.add); err != nil && !errors.Is(err, errDecided) {
		return err
	}
	after, err := l.strikes(ctx)
	t.Strikes += after - before
	return err
}

// add adds the verdict on a run. The worst one counts.
func (t *Trial) add(run load.Measured) error {
	t.Runs++
	found := run.Verdict.Result
	if found == verify.Correct || found == verify.Inconclusive && t.Verdict == verify.Inconclusive {
		return nil
	}
	t.Verdict, t.Workload, t.Evidence = found, run.History.Run.Workload.Name, first(run.Verdict.Evidence)
	if found == verify.Wrong {
		return errDecided
	}
	return nil
}

// choices returns a strategy and the baseline.
func (l Lab) choices(ctx context.Context, strategy, store string) ([]load.Choice, error) {
	catalogue, err := l.Target.Strategies(ctx)
	if err != nil {
		return nil, err
	}
	choices, _, err := load.Choose(catalogue, []string{strategy}, store)
	return choices, err
}

// settings returns what to run: each strategy that claims to be correct, without and with restocks. Each setting has a
// directory of its own.
func (l Lab) settings(ctx context.Context, strategy, store string) (settings []load.Config, err error) {
	choices, err := l.choices(ctx, strategy, store)
	if err != nil {
		return nil, err
	}
	for _, choice := range choices {
		for _, restock := range []int64{0, restockUnits} {
			if choice.Strategy.ClaimFor(l.Config.Replicas, restock > 0) == verify.ClaimCorrect {
				config := l.Config
				config.Choices, config.Restock = []load.Choice{choice}, restock
				dir := fmt.Sprintf("%s-seed%d-restock%d", choice.Strategy.Name, config.Seed, restock)
				config.Dir = filepath.Join(config.Dir, dir)
				settings = append(settings, config)
			}
		}
	}
	return settings, nil
}

// run runs a setting. It passes each run to done, and stops at its first error.
func (l Lab) run(ctx context.Context, config load.Config, done func(load.Measured) error) error {
	runner, err := load.New(l.Target, config)
	if err == nil {
		err = runner.Run(ctx, done)
	}
	if err != nil {
		return cmp.Or(l.Topology.Check(), err) // a server that died is the cause of any other error
	}
	return nil
}

// restockUnits is how many units are put back at a time, in the runs with restocks.
const restockUnits = 5

func first(evidence []string) string {
	if len(evidence) == 0 {
		return ""
	}
	return evidence[0]
}
