// Package bench measures how close the strategies come to what the machine allows. Their cells are interleaved with
// those of two references that do not use the service, and of one that does not use the lab's load:
//
//   - raw is a loop of update's statement, on as many connections as there are users, straight to MySQL: what the
//     database allows. It runs in this process, like the users of the other cells, so that the load costs as much.
//   - bare is a handler that only decodes a deduction and encodes a receipt, behind the same nginx: what HTTP allows.
//     It runs in as many processes as there are replicas: in this process, it would share the scheduler and the garbage
//     collector with the load.
//   - wrk is a load driver in C. It sends some of the strategies the same deduction through the same nginx, which shows
//     how much of the machine the lab's own load takes.
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
	Dir      string // each cell's history is kept here until it is judged

	Progress func(done, cells int, subject string)
}

// MaxUsers is how many users the lab's own servers can serve: raw needs a connection to MySQL for each, in addition to
// those of two replicas (64 each, see their --mysql-conns and --mysql-lock-conns) and of the lab.
const MaxUsers = servers.MySQLConnections - 2*64

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

// Run measures the strategies of the service and the references.
func Run(ctx context.Context, o Options) (*Result, error) {
	catalogue, err := o.Target.Strategies(ctx)
	if err != nil {
		return nil, err
	}
	b := newBench(o)
	subjects := append(b.addWrk(b.strategies(catalogue)), subject{name: Raw, run: b.raw}, subject{name: Bare, run: b.bare})
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

type bench struct {
	Options
	result *Result
	report *report.Builder // kept to measure the lab's memory with it
	judged int             // requests judged so far; the references have no history
}

func newBench(o Options) *bench {
	return &bench{
		Options: o,
		result:  &Result{Rates: map[string][]float64{}, Users: o.Users, Time: o.Time, Seed: o.Seed, Rounds: o.Rounds},
		report:  report.NewBuilder(report.Environment{}),
	}
}

// measure runs every subject in each round, in random order.
func (b *bench) measure(ctx context.Context, subjects []subject) error {
	judgedInFirst := 0
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
			b.result.HeapAfterFirst, judgedInFirst = heap(), b.judged
		}
	}
	b.result.HeapAfterLast, b.result.JudgedLater = heap(), b.judged-judgedInFirst
	runtime.KeepAlive(b.report)
	return nil
}

// noop is the strategy that the others are compared with: it deducts nothing.
const noop = "noop"

// The strategy whose rate under contention is measured, and by how many users.
const (
	optimistic                  = "optimistic-version"
	fewOptimists, manyOptimists = 8, 64
)

func at(strategy string, users int) string { return fmt.Sprintf("%s, %d users", strategy, users) }

// strategies lists the strategies to measure. A note in the result names those that are not available.
func (b *bench) strategies(catalogue []scenario.Strategy) []subject {
	var all []subject
	for _, name := range []string{noop, "update", "batch", "escrow", "batch-ledger", "redis-script"} {
		if choice, ok := b.choose(catalogue, name); ok {
			all = append(all, b.strategy(name, choice, b.Users))
		}
	}
	if choice, ok := b.choose(catalogue, optimistic); ok {
		for _, users := range []int{fewOptimists, manyOptimists} {
			all = append(all, b.strategy(at(optimistic, users), choice, users))
		}
	}
	return all
}

func (b *bench) choose(catalogue []scenario.Strategy, name string) (scenario.Choice, bool) {
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

// strategy measures a strategy as the lab always does: its rate is its goodput, and every cell is judged.
func (b *bench) strategy(name string, choice scenario.Choice, users int) subject {
	return subject{name: name, run: func(ctx context.Context, cell int) (rate float64, err error) {
		dir := filepath.Join(b.Dir, fmt.Sprint(cell))
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		target := b.Target
		target.Single = "" // a single replica is not measured
		runner, err := scenario.New(target, scenario.Config{
			Choices: []scenario.Choice{choice}, Replicas: len(b.Replicas), Rounds: 1, Seed: b.Seed + uint64(cell),
			Users: users, Duration: b.Time, Timeout: timeout, WarmUp: warmUp,
			Stock: plenty, Goods: 1, MinCount: 1, MaxCount: 1,
			Dir: dir,
		}, time.Now())
		if err != nil {
			return 0, err
		}
		err = runner.Run(ctx, func(m scenario.Measured) error {
			rate = b.record(name, m)
			return nil
		})
		return rate, err
	}}
}

// record adds a judged cell to the result, and returns its rate.
func (b *bench) record(name string, m scenario.Measured) (rate float64) {
	round := b.report.Add(&m.History, m.Verdict)
	b.judged += round.Requests
	if name == noop {
		b.result.LabCPU = append(b.result.LabCPU, perRequest(time.Duration(round.DriverCPUNS), round.Requests))
	}
	found := fmt.Sprintf("%s was found %s: %s", name, m.Verdict.Result, strings.Join(m.Verdict.Evidence, "; "))
	switch m.Verdict.Result {
	case verify.Wrong:
		b.result.Wrong = append(b.result.Wrong, found)
	case verify.Inconclusive:
		b.result.Inconclusive = append(b.result.Inconclusive, found)
	}
	if m.History.Run.Claim == verify.ClaimSellsNothing {
		return round.ThroughputPerS
	}
	return round.GoodputPerS
}
