// Package bench measures how close the strategies come to what the machine allows. A cell is one run of one subject.
// The cells of the strategies are interleaved with those of three references:
//
//   - raw is a loop of update's statement, on as many connections as there are users, straight to MySQL: what the
//     database allows. It runs in this process, like the users of the other cells, so that sending costs the same.
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

// The references that do not use the service.
const (
	Raw  = "raw"
	Bare = "bare"
)

// Options configures Run.
type Options struct {
	Target   scenario.Target
	BareURL  string // nginx in front of the bare handlers
	MySQLDSN string
	Replicas []int  // process ids, to measure their memory
	Parts    []Part // whose CPU time is measured, beside that of the load
	Users    int
	Time     time.Duration // of a cell
	Rounds   int
	Seed     uint64
	Dir      string // each cell's history is kept here until it is judged

	Progress func(done, cells int, subject string)
}

// MaxUsers is how many users the lab's own servers can serve: raw needs a connection to MySQL for each, in addition to
// those of two replicas (65 each: --mysql-conns, --mysql-lock-conns and one for readiness) and of the lab.
const MaxUsers = servers.MySQLConnections - 2*65 - forTheLab

// forTheLab is how many connections the lab needs at most to set and read stocks.
const forTheLab = 16

// Constants of a cell.
const (
	warmUp  = 200 * time.Millisecond
	ample   = 1_000_000_000 // units: more than any cell sells
	timeout = 20 * time.Second
)

// subject is what a cell measures.
type subject struct {
	name string
	// run measures one cell. It calls bench.warm after its warm-up.
	run func(ctx context.Context, number int) (cell, error)
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
	before map[string]time.Duration // CPU time of each part at the end of the last warm-up
	after  map[string]time.Duration // the same when the last cell was drained; nil: it has not been
	report *report.Builder          // kept so that its size counts in the heap
	judged int                      // requests judged so far; the references have no history
}

func newBench(o Options) *bench {
	b := &bench{
		Options: o,
		result: &Result{
			Rates: map[string][]float64{}, Parts: []string{Load}, CPU: map[string]map[string][]float64{},
			Users: o.Users, Time: o.Time, Seed: o.Seed, Rounds: o.Rounds,
		},
		report: report.NewBuilder(report.Environment{}),
	}
	for _, part := range o.Parts {
		b.result.Parts = append(b.result.Parts, part.Name)
	}
	return b
}

// measure runs every subject in each round, in random order.
func (b *bench) measure(ctx context.Context, subjects []subject) error {
	judgedInFirst := 0
	for round := range b.Rounds {
		order := slices.Clone(subjects)
		random := rand.New(rand.NewPCG(b.Seed, uint64(round)))
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i, s := range order {
			number := round*len(subjects) + i
			b.Progress(number, b.Rounds*len(subjects), s.name)
			c, err := s.run(ctx, number)
			if err != nil {
				return cmp.Or(ctx.Err(), fmt.Errorf("%s, round %d: %w", s.name, round+1, err))
			}
			b.addCPU(s.name, c)
			b.result.Rates[s.name] = append(b.result.Rates[s.name], c.rate)
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

// The strategies whose rates are also measured with other numbers of users.
const (
	optimistic                  = "optimistic-version"
	fewOptimists, manyOptimists = 8, 64
	manyUsers                   = 256
)

// reserve is measured in pairs of two requests: one that holds a unit, and one that confirms.
const (
	reserve = "reserve"
	pairs   = "reserve, pairs"
)

// moreUsers are the strategies that are also measured with manyUsers.
var moreUsers = []string{noop, "batch", "escrow"}

func at(strategy string, users int) string { return fmt.Sprintf("%s, %d users", strategy, users) }

// keyed names the subject that measures a strategy with an idempotency key in each request.
func keyed(strategy string) string { return strategy + ", key" }

// keepers are the strategies that are measured without keys and with them.
var keepers = []struct {
	name  string
	least float64 // wanted: the rate with keys, as a share of that without
}{
	{"update", 0.6}, {"batch", 0.65}, {"escrow", 0.65}, {"redis-script", 0.85}, {"redis-stream", 0.85},
	{"lock-redis-queue", 0.9},
}

// strategies lists the strategies to measure. A note in the result names those that are not available.
func (b *bench) strategies(catalogue []scenario.Strategy) []subject {
	var all []subject
	add := func(name string, choice scenario.Choice, config scenario.Config) {
		config.Choices = []scenario.Choice{choice}
		all = append(all, subject{name: name, run: func(ctx context.Context, number int) (cell, error) {
			return b.strategy(ctx, number, name, config)
		}})
	}
	measure := func(name string) (choice scenario.Choice, ok bool) {
		if choice, ok = b.choose(catalogue, name); !ok {
			return choice, false
		}
		add(name, choice, scenario.Config{Users: b.Users})
		if slices.Contains(moreUsers, name) {
			add(at(name, manyUsers), choice, scenario.Config{Users: manyUsers})
		}
		return choice, true
	}
	measure(noop)
	for _, keeper := range keepers {
		if choice, ok := measure(keeper.name); ok {
			add(keyed(keeper.name), choice, scenario.Config{Users: b.Users, Keys: true})
		}
	}
	if choice, ok := b.choose(catalogue, reserve); ok {
		add(pairs, choice, scenario.Config{Users: b.Users, Pairs: true})
	}
	if choice, ok := b.choose(catalogue, optimistic); ok {
		for _, users := range []int{fewOptimists, manyOptimists} {
			add(at(optimistic, users), choice, scenario.Config{Users: users})
		}
	}
	return all
}

func (b *bench) choose(catalogue []scenario.Strategy, name string) (scenario.Choice, bool) {
	choices, _, err := scenario.Choose(catalogue, []string{name}, "")
	if err != nil {
		b.result.Notes = append(b.result.Notes, fmt.Sprintf("not measured: %v", err))
		return scenario.Choice{}, false
	}
	i := slices.IndexFunc(choices, func(c scenario.Choice) bool { return c.Strategy.Name == name })
	return choices[i], true
}

// strategy measures a strategy as the lab always does: its rate is its goodput, and every cell is judged.
func (b *bench) strategy(ctx context.Context, number int, name string, config scenario.Config) (c cell, err error) {
	config.Dir = filepath.Join(b.Dir, fmt.Sprint(number))
	defer func() { err = errors.Join(err, os.RemoveAll(config.Dir)) }()
	target := b.Target
	target.Fewer = nil // a single replica is not measured
	config.Replicas, config.Rounds, config.Seed = len(b.Replicas), 1, b.Seed+uint64(number)
	config.Duration, config.Timeout, config.WarmUp = b.Time, timeout, warmUp
	config.Stock, config.Goods, config.MinCount, config.MaxCount = ample, 1, 1, 1
	config.Warm = func(context.Context) error { b.warm(); return nil }
	config.Drained = func() { b.after = b.usage() } // reading what there is to judge is no part of the requests
	runner, err := scenario.New(target, config, time.Now())
	if err != nil {
		return cell{}, err
	}
	err = runner.Run(ctx, func(m scenario.Measured) error {
		c = b.record(name, m)
		return nil
	})
	return c, err
}

// record adds a judged cell to the result.
func (b *bench) record(name string, m scenario.Measured) cell {
	round := b.report.Add(&m.History, m.Verdict)
	b.judged += round.Requests
	found := fmt.Sprintf("%s was found %s: %s", name, m.Verdict.Result, strings.Join(m.Verdict.Evidence, "; "))
	switch m.Verdict.Result {
	case verify.Wrong:
		b.result.Wrong = append(b.result.Wrong, found)
	case verify.Inconclusive:
		b.result.Inconclusive = append(b.result.Inconclusive, found)
	}
	c := cell{rate: round.GoodputPerS, requests: round.Requests, load: time.Duration(round.DriverCPUNS)}
	if m.History.Run.Claim == verify.ClaimSellsNothing {
		c.rate = round.ThroughputPerS
	}
	return c
}
