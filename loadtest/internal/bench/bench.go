// Package bench measures how near the strategies come to what the machine allows: all cells of a round interleaved, in one
// run, together with two references that know nothing of the service.
//
//   - raw is a bare loop of update's statement, on as many connections as there are users, straight to MySQL: what the
//     database allows. It runs in this process, as the users of the other cells do, so that the load costs as much.
//   - bare is a chi handler that decodes an order and encodes a receipt, and does nothing else, behind the same nginx: what
//     HTTP allows. It is two processes, as the replicas are: in this one it would share a scheduler and a garbage collector
//     with the load.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// The references.
const (
	Raw  = "raw"
	Bare = "bare"
)

// Options configures Run.
type Options struct {
	Target   scenario.Target
	BareURL  string // nginx in front of the bare handlers
	MySQLDSN string
	Replicas []int // process ids, to measure their memory
	Users    int
	Time     time.Duration // of a cell
	Rounds   int
	Seed     uint64
	Dir      string // histories are kept here for as long as they are judged

	Progress func(done, cells int, doing string)
}

// Constants of a cell.
const (
	warmUp  = 200 * time.Millisecond
	plenty  = 1_000_000_000 // units: more than any cell sells
	timeout = 20 * time.Second
)

// subject is what a cell measures.
type subject struct {
	name  string
	users int
	run   func(ctx context.Context, cell int) (rate float64, requests int, err error)
}

// Run measures the strategies that the service has.
func Run(ctx context.Context, o Options) (*Result, error) {
	catalogue, err := o.Target.Strategies(ctx)
	if err != nil {
		return nil, err
	}
	b := &bench{Options: o, result: &Result{Rates: map[string][]float64{}, Users: o.Users, Time: o.Time, Seed: o.Seed, Rounds: o.Rounds}}
	subjects, err := b.subjects(catalogue)
	if err != nil {
		return nil, err
	}
	for round := range o.Rounds {
		order := slices.Clone(subjects)
		random := rand.New(rand.NewPCG(o.Seed, uint64(round)))
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i, s := range order {
			cell := round*len(subjects) + i
			o.Progress(cell, o.Rounds*len(subjects), s.name)
			rate, requests, err := s.run(ctx, cell)
			if err != nil {
				return nil, cmp.Or(ctx.Err(), fmt.Errorf("%s, round %d: %w", s.name, round+1, err))
			}
			b.result.Rates[s.name] = append(b.result.Rates[s.name], rate)
			if round > 0 {
				b.result.Later += requests
			}
		}
		switch round {
		case 0:
			b.result.HeapAfterFirst = heap()
		case o.Rounds - 1:
			b.result.HeapAfterLast = heap()
		}
	}
	for _, pid := range o.Replicas {
		if peak, err := peakMemory(pid); err == nil {
			b.result.ReplicaPeak = max(b.result.ReplicaPeak, peak)
		}
	}
	return b.result, nil
}

type bench struct {
	Options
	result *Result
}

// optimistic is measured for how it bears contention.
const (
	optimistic                  = "optimistic-version"
	fewOptimists, manyOptimists = 8, 64
)

func at(strategy string, users int) string { return fmt.Sprintf("%s, %d users", strategy, users) }

// subjects lists what is measured: strategies that the catalogue lacks are left out, and said to be missing.
func (b *bench) subjects(catalogue []scenario.Strategy) ([]subject, error) {
	var all []subject
	find := func(name string) (scenario.Choice, bool) {
		if !slices.ContainsFunc(catalogue, func(s scenario.Strategy) bool { return s.Name == name }) {
			b.result.Notes = append(b.result.Notes, fmt.Sprintf("not measured: the service has no strategy %s", name))
			return scenario.Choice{}, false
		}
		choices, _, err := scenario.Choose(catalogue, []string{name}, "")
		if err != nil {
			b.result.Notes = append(b.result.Notes, fmt.Sprintf("not measured: %v", err))
			return scenario.Choice{}, false
		}
		i := slices.IndexFunc(choices, func(c scenario.Choice) bool { return c.Strategy.Name == name })
		return choices[i], true
	}
	for _, name := range []string{"noop", "update", "batch", "batch-ledger", "redis-script"} {
		if choice, ok := find(name); ok {
			all = append(all, b.strategy(name, choice, b.Users))
		}
	}
	if choice, ok := find(optimistic); ok {
		all = append(all, b.strategy(at(optimistic, fewOptimists), choice, fewOptimists), b.strategy(at(optimistic, manyOptimists), choice, manyOptimists))
	}
	bare, err := b.bare()
	if err != nil {
		return nil, err
	}
	all = append(all, subject{Raw, b.Users, b.raw}, bare)
	return all, nil
}

// strategy measures a strategy as the lab always does: its rate is of units rightly sold, and the judge has looked at them.
func (b *bench) strategy(name string, choice scenario.Choice, users int) subject {
	return subject{name, users, func(ctx context.Context, cell int) (rate float64, requests int, err error) {
		target := b.Target
		target.Alone = "" // what a strategy does on one replica is not asked here
		runner, err := scenario.New(target, scenario.Config{
			Choices: []scenario.Choice{choice}, Replicas: len(b.Replicas), Rounds: 1, Seed: b.Seed + uint64(cell), Users: users,
			Duration: b.Time, Timeout: timeout, Stock: plenty, Goods: 1, MinCount: 1, MaxCount: 1, WarmUp: warmUp,
			Dir: filepath.Join(b.Dir, fmt.Sprint(cell)),
		}, time.Now())
		if err != nil {
			return 0, 0, err
		}
		err = runner.Run(ctx, func(m scenario.Measured) error {
			round := report.NewBuilder(report.Environment{}).Add(&m.History, m.Verdict)
			if rate, requests = round.GoodputPerS, round.Requests; m.History.Run.Promise == verify.PromiseSellsNothing {
				rate = round.ThroughputPerS
			}
			found := fmt.Sprintf("%s was found %s: %s", name, m.Verdict.Result, strings.Join(m.Verdict.Evidence, "; "))
			switch m.Verdict.Result {
			case verify.Wrong:
				b.result.Wrong = append(b.result.Wrong, found)
			case verify.Inconclusive:
				b.result.Notes = append(b.result.Notes, found)
			}
			return nil
		})
		return rate, requests, err
	}}
}

// bare measures the bare handler with the same requests.
func (b *bench) bare() (subject, error) {
	clock, err := traffic.NewClock()
	if err != nil {
		return subject{}, err
	}
	return subject{Bare, b.Users, func(ctx context.Context, _ int) (rate float64, requests int, err error) {
		driver, err := traffic.NewDriver(b.BareURL, b.Users, clock)
		if err != nil {
			return 0, 0, err
		}
		defer driver.Close()
		mix, err := traffic.NewMix(traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
		if err != nil {
			return 0, 0, err
		}
		load := traffic.Load{Strategy: Bare, Store: "none", Mix: mix, Users: b.Users, Timeout: timeout, OrderPrefix: Bare}
		for _, load.Duration = range []time.Duration{warmUp, b.Time} {
			result, err := driver.Run(ctx, load)
			if err != nil {
				return 0, 0, err
			}
			for _, op := range result.Ops {
				if op.Status != 200 {
					return 0, 0, errors.Join(ctx.Err(), fmt.Errorf("a request was answered %d %s", op.Status, op.Error))
				}
			}
			requests = result.Sent
			rate = float64(requests) / time.Duration(result.EndedNS-result.StartedNS).Seconds()
		}
		return rate, requests, nil
	}}, nil
}

// heap is what this process keeps, bytes.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
