package plant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/sequence"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// Trial is what the judge made of a row.
type Trial struct {
	Row
	Verdict  verify.Result
	Workload string // or scenario, fault or test that the verdict is from
	Evidence string // its first line; empty if there is none
	Runs     int    // until the verdict
	Executed bool   // the change was
	Took     time.Duration
}

// Passed reports whether the judge found what it should.
func (t Trial) Passed() bool { return t.Judged() && t.Verdict == t.wanted() }

// Judged reports whether the verdict says anything about the change.
func (t Trial) Judged() bool { return t.Executed && t.Verdict != verify.Inconclusive }

// Trials is what rows are tried on.
type Trials struct {
	Program  *Program
	Topology *topology.Topology // with the service of the program
	Target   load.Target
	Config   load.Config // of each trial, except for its choices
}

// errDecided ends a trial early.
var errDecided = errors.New("the verdict is decided")

// passes is how often a bug is tried under all workloads. A full lab runs each measured workload at least this often.
const passes = 3

// restockUnits is how many units are put back at a time, in the runs with restocks.
const restockUnits = 5

// Try switches a row on and has the judge look for it.
func (l Trials) Try(ctx context.Context, r Row) (t Trial, err error) {
	t = Trial{Row: r, Verdict: verify.Correct}
	if err := l.Program.switchOn(r); err != nil {
		return t, err
	}
	began, try := time.Now(), l.load
	switch {
	case r.Test != "":
		try = l.Program.runTests
	case r.Scenario != "":
		try = l.play
	case r.Contract:
		try = l.playSequences
	case r.Fault != "":
		try = l.explore
	}
	if err = try(ctx, &t); errors.Is(err, errDecided) {
		err = nil
	}
	t.Took, t.Executed = time.Since(began), l.Program.executed()
	return t, err
}

// load runs the strategy under one workload after another, without and with restocks, if it claims to be correct then:
// until a bug is found, or once if it is an oddity. Each setting has a directory of its own.
func (l Trials) load(ctx context.Context, t *Trial) error {
	if err := l.Topology.RestartReplicas(ctx); err != nil {
		return err
	}
	choices, err := l.choices(ctx, t.Row)
	if err != nil {
		return err
	}
	var settings []load.Config
	for _, choice := range choices {
		for _, restock := range []int64{0, restockUnits} {
			if choice.Strategy.ClaimFor(l.Config.Replicas, restock > 0) == verify.ClaimCorrect {
				config := l.Config
				config.Choices, config.Restock = []load.Choice{choice}, restock
				settings = append(settings, config)
			}
		}
	}
	for pass := range passes {
		for _, config := range settings {
			config.Seed += uint64(pass)
			dir := fmt.Sprintf("%s-seed%d-restock%d", config.Choices[0].Strategy.Name, config.Seed, config.Restock)
			config.Dir = filepath.Join(config.Dir, t.Name, dir)
			if err := l.run(ctx, t, config); err != nil {
				return err
			}
		}
		if t.Oddity {
			break
		}
	}
	return nil
}

// choices returns the strategy of a row and the baseline.
func (l Trials) choices(ctx context.Context, r Row) ([]load.Choice, error) {
	catalogue, err := l.Target.Strategies(ctx)
	if err != nil {
		return nil, err
	}
	choices, _, err := load.Choose(catalogue, []string{r.Strategy}, r.Store)
	return choices, err
}

// run runs a setting, until the judge finds something.
func (l Trials) run(ctx context.Context, t *Trial, config load.Config) error {
	runner, err := load.New(l.Target, config)
	if err != nil {
		return err
	}
	err = runner.Run(ctx, func(run load.Measured) error {
		return t.add(run.Verdict.Result, run.History.Run.Workload.Name, run.Verdict.Evidence)
	})
	if err != nil && !errors.Is(err, errDecided) {
		return cmp.Or(l.Topology.Check(), err) // a server that died is the cause of any other error
	}
	return err
}

// add adds a verdict. The worst one counts.
func (t *Trial) add(found verify.Result, by string, evidence []string) error {
	t.Runs++
	if found == verify.Correct || found == verify.Inconclusive && t.Verdict == verify.Inconclusive {
		return nil
	}
	t.Verdict, t.Workload, t.Evidence = found, by, strings.Join(evidence[:min(len(evidence), 1)], "")
	if found == verify.Wrong {
		return errDecided
	}
	return nil
}

// sequences is how many are played for a row.
const sequences = 30

// playSequences plays made-up sequences of requests.
func (l Trials) playSequences(ctx context.Context, t *Trial) error {
	if err := l.Topology.RestartReplicas(ctx); err != nil {
		return err
	}
	choices, err := l.choices(ctx, t.Row)
	if err != nil {
		return err
	}
	catalogue, err := l.Target.Strategies(ctx)
	if err != nil {
		return err
	}
	found, err := sequence.Play(ctx, l.Topology, choices, sequence.Options{
		Each: sequences, Seed: l.Config.Seed, Catalogue: catalogue,
	})
	for _, c := range found {
		verdict := verify.Correct
		if c.Wrong != "" {
			verdict = verify.Wrong
		}
		err = cmp.Or(err, t.add(verdict, "contract", []string{c.Wrong}))
	}
	return err
}

// play plays the scenario of a row until the judge finds the bug.
func (l Trials) play(ctx context.Context, t *Trial) error {
	scenarios, err := fault.Find([]string{t.Scenario})
	if err != nil {
		return err
	}
	choices, err := l.choices(ctx, t.Row)
	if err != nil {
		return err
	}
	player := &fault.Player{Topology: l.Topology, Oracle: l.Target.Oracle}
	return player.Run(ctx, fault.Options{
		Scenarios: scenarios, Choices: choices, Repeat: passes,
		Done: func(played report.Fault, _ history.History) error { return t.addPlayed(played) },
	})
}

// addPlayed adds what came of a scenario.
func (t *Trial) addPlayed(played report.Fault) error {
	found := verify.Inconclusive
	switch {
	case played.ClaimHeld:
		found = verify.Correct
	case played.Effect == report.Unsafe:
		found = verify.Wrong
	}
	return t.add(found, played.Scenario, played.Evidence)
}

// explore executes the schedules in which the fault of a row strikes, until one refutes a claim.
func (l Trials) explore(ctx context.Context, t *Trial) (err error) {
	choices, err := l.choices(ctx, t.Row)
	if err != nil {
		return err
	}
	is := func(c load.Choice) bool { return c.Strategy.Name == t.Strategy }
	x, err := explore.Start(ctx, l.Topology, explore.Options{Lanes: 1, Requests: 2})
	if err != nil {
		return err
	}
	defer x.Close()
	x.Faults, x.UntilRefuted = []string{t.Fault}, true
	found, err := x.Explore(ctx, choices[slices.IndexFunc(choices, is)], trace.Bounds{Preemptions: 2, Faults: 1})
	if err != nil {
		return err
	}
	return t.addExplored(found)
}

// addExplored adds what an exploration found. Damage without the fault says nothing about the row.
func (t *Trial) addExplored(found trace.Result) error {
	for _, c := range found.Cells {
		if c.Fault == t.Fault && !c.Held {
			return t.add(verify.Wrong, t.Fault, []string{c.Found()})
		}
	}
	if !found.Judged() {
		return t.add(verify.Inconclusive, t.Fault, nil)
	}
	return t.add(verify.Correct, t.Fault, nil)
}

// Line describes a trial in one line for the terminal.
func (t Trial) Line() string {
	mark := "FAIL"
	switch {
	case t.Passed():
		mark = "ok  "
	case !t.Judged():
		mark = "?   "
	}
	text := strings.ToUpper(string(t.Verdict))
	if t.Workload != "" {
		text += fmt.Sprintf(" by %s, run %d: %s", t.Workload, t.Runs, cmp.Or(t.Evidence, "no evidence"))
	}
	if !t.Executed {
		text += " (the change was never executed)"
	}
	return fmt.Sprintf("%s %4.1f s  %-12s %-36s %s", mark, t.Took.Seconds(), t.Family, t.Name, text)
}

// Summary says how many of the trials passed.
func Summary(trials []Trial) string {
	var bugs, found, oddities, cleared, unjudged int
	var took time.Duration
	for _, t := range trials {
		all, passed := &bugs, &found
		if t.Oddity {
			all, passed = &oddities, &cleared
		}
		*all++
		if t.Passed() {
			*passed++
		}
		if !t.Judged() {
			unjudged++
		}
		took += t.Took
	}
	text := fmt.Sprintf("%d of %d bugs were found WRONG, %d of %d oddities CORRECT", found, bugs, cleared, oddities)
	if unjudged > 0 {
		text += fmt.Sprintf(", %d not judged", unjudged)
	}
	return fmt.Sprintf("%s (%v)", text, took.Round(time.Second))
}
