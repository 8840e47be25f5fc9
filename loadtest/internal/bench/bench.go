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
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"stock/internal/servers"
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
	Dir      string // each cell's history is kept here for as long as it is judged

	Progress func(done, cells int, doing string)
}

// MostUsers is how many users bench can have on the lab's own servers: raw needs a connection to MySQL for each, beside
// those of two replicas (48 each, see their --mysql-conns and --mysql-lock-conns) and of the lab itself.
const MostUsers = servers.MySQLConnections - 2*64

// Constants of a cell.
const (
	warmUp  = 200 * time.Millisecond
	plenty  = 1_000_000_000 // units: more than any cell sells
	timeout = 20 * time.Second
)

// subject is what a cell measures.
type subject struct {
	name string
	run  func(ctx context.Context, cell int) (rate float64, err error)
}

// Run measures the strategies that the service has.
func Run(ctx context.Context, o Options) (*Result, error) {
	catalogue, err := o.Target.Strategies(ctx)
	if err != nil {
		return nil, err
	}
	b := newBench(o)
	subjects, err := b.subjects(catalogue)
	if err != nil {
		return nil, err
	}
	if err := b.measure(ctx, subjects); err != nil {
		return nil, err
	}
	for _, pid := range o.Replicas {
		if peak, err := peakMemory(pid); err == nil {
			b.result.ReplicaPeak = max(b.result.ReplicaPeak, peak)
		}
	}
	return b.result, nil
}

// measure runs every subject in each round, in random order.
func (b *bench) measure(ctx context.Context, subjects []subject) error {
	first := 0 // requests that were judged in the first round
	for round := range b.Rounds {
		order := slices.Clone(subjects)
		random := rand.New(rand.NewPCG(b.Seed, uint64(round)))
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i, s := range order {
			cell := round*len(subjects) + i
			b.Progress(cell, b.Rounds*len(subjects), s.name)
			rate, err := s.run(ctx, cell)
			if err != nil {
				return cmp.Or(ctx.Err(), fmt.Errorf("%s, round %d: %w", s.name, round+1, err))
			}
			b.result.Rates[s.name] = append(b.result.Rates[s.name], rate)
		}
		if round == 0 {
			b.result.HeapAfterFirst, first = heap(), b.judged
		}
	}
	b.result.HeapAfterLast, b.result.Later = heap(), b.judged-first
	runtime.KeepAlive(b.report)
	return nil
}

type bench struct {
	Options
	result *Result
	report *report.Builder // as run has it: what it keeps of the cells is the lab's memory
	judged int             // requests that the judge has looked at: the references have no history for him
}

func newBench(o Options) *bench {
	return &bench{
		Options: o,
		result:  &Result{Rates: map[string][]float64{}, Users: o.Users, Time: o.Time, Seed: o.Seed, Rounds: o.Rounds},
		report:  report.NewBuilder(report.Environment{}),
	}
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
	all = append(all, subject{Raw, b.raw}, b.bare())
	return all, nil
}

// strategy measures a strategy as the lab always does: its rate is of units rightly sold, and the judge has looked at them.
func (b *bench) strategy(name string, choice scenario.Choice, users int) subject {
	return subject{name, func(ctx context.Context, cell int) (rate float64, err error) {
		target := b.Target
		target.Alone = "" // what a strategy does on one replica is not asked here
		dir := filepath.Join(b.Dir, fmt.Sprint(cell))
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		runner, err := scenario.New(target, scenario.Config{
			Choices: []scenario.Choice{choice}, Replicas: len(b.Replicas), Rounds: 1, Seed: b.Seed + uint64(cell), Users: users,
			Duration: b.Time, Timeout: timeout, Stock: plenty, Goods: 1, MinCount: 1, MaxCount: 1, WarmUp: warmUp,
			Dir: dir,
		}, time.Now())
		if err != nil {
			return 0, err
		}
		err = runner.Run(ctx, func(m scenario.Measured) error {
			round := b.report.Add(&m.History, m.Verdict)
			b.judged += round.Requests
			if rate = round.GoodputPerS; m.History.Run.Promise == verify.PromiseSellsNothing {
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
		return rate, err
	}}
}

// bare measures the bare handler with the same requests.
func (b *bench) bare() subject {
	return subject{Bare, func(ctx context.Context, _ int) (rate float64, err error) {
		driver, err := traffic.NewDriver(b.BareURL, b.Users)
		if err != nil {
			return 0, err
		}
		defer driver.Close()
		mix, err := traffic.NewMix(traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
		if err != nil {
			return 0, err
		}
		load := traffic.Load{Strategy: Bare, Store: "none", Mix: mix, Users: b.Users, Timeout: timeout, OrderPrefix: Bare}
		for _, load.Duration = range []time.Duration{warmUp, b.Time} {
			result, err := driver.Run(ctx, load)
			if err != nil {
				return 0, err
			}
			for _, op := range result.Ops {
				if op.Status != 200 {
					return 0, errors.Join(ctx.Err(), fmt.Errorf("a request was answered %d %s", op.Status, op.Error))
				}
			}
			rate = float64(result.Sent) / time.Duration(result.EndedNS-result.StartedNS).Seconds()
		}
		return rate, nil
	}}
}

// heap is what this process keeps, bytes.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
