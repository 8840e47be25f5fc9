// Package load runs every chosen strategy under every workload, round by round, and has each run judged.
//
// A run of one cell takes five steps: prepare (set the stock, fit the load into the budget), send (the load), drain
// (wait for a strategy that writes behind), record (read the final stock, write the history), and judge.
package load

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// Target is the service under test.
type Target struct {
	Service
	Fewer  map[int]string // URLs that reach only the first replicas, by their number, as far as there are any
	Oracle *oracle.Oracle // nil: the lab has no access to the stores, and reads the stock through the service
	// Own is a service of the user's, and each client uses one of its URLs; nil: the service is this repository's.
	Own *service.Running
	// CPU returns the CPU time that each part of the service and its servers has used so far; nil: it is not known.
	CPU func() map[string]time.Duration
}

func (t Target) usedCPU() map[string]time.Duration {
	if t.CPU == nil {
		return nil
	}
	return t.CPU()
}

// SetStock sets the stock of each item.
func (t Target) SetStock(ctx context.Context, units map[int64]int64) error {
	if t.Own != nil {
		return t.Own.SetStock(ctx, units)
	}
	return t.Service.SetStock(ctx, units)
}

// Config is what to run.
type Config struct {
	Choices  []Choice
	Replicas int // behind the target's URL
	Sweep    Sweep
	Rounds   int // of all rows; 0: as many of each as it needs for a narrow interval, within Budget, if Requests is set
	Seed     uint64

	Users    int
	Rate     float64       // requests per second of an open loop; 0: closed loop
	Requests int           // of each run; 0: until Duration
	Duration time.Duration // of each run; 0: until Requests
	Hold     time.Duration
	Timeout  time.Duration // of a request
	Compared []string      // strategies whose long latencies people compare; only for Rounds 0

	Restock            int64  // units put back every restockInterval; 0: none
	Stock              int64  // units of all items together; 0: the two standard workloads
	Workload           string // the only one of the standard workloads to run; empty: both
	Goods              int    // number of items
	Skew               string
	MinCount, MaxCount int64

	// Keys has requests carry an idempotency key if their strategy keeps it. A load with retries always has keys.
	Keys bool

	// Pairs has the users hold units and confirm, instead of deducting them. It is for strategies that take reservations,
	// in a closed loop without restocks.
	Pairs bool

	// Budget is the time for everything; 0: no limit. Strategies that are too slow for their share of it get fewer
	// requests and proportionally fewer units.
	Budget time.Duration
	WarmUp time.Duration // of each strategy
	// Warm is called between the warm-up and the first cell; nil: nothing is. Run stops at its error.
	Warm func(context.Context) error
	// Drained is called in each cell when all requests are answered and everything that was sold is written; nil: nothing
	// is.
	Drained func()
	// Patience is how long stores that differ are watched until their difference is taken as final; 0: 20 s.
	Patience time.Duration
	Dir      string // histories are written to its subdirectory "history"
	// Watch is called before the first request of each cell, and returns the Load.Watch of the cell; nil: nobody watches.
	Watch func(history.Run) func(*history.Op)
}

// restockInterval is short compared with the shortest run.
const restockInterval = 20 * time.Millisecond

// Measured is the run of one cell, judged.
type Measured struct {
	History history.History
	Verdict verify.Verdict
	Path    string // of the history's file
}

// Runner runs a Config against a Target.
type Runner struct {
	target   Target
	config   Config
	rows     []row // that are measured
	judged   []row // that run once, before the first round
	schedule schedule
	longest  time.Duration // time limit of a cell; 0: none but the budget
	patience patience
	drivers  map[int]*traffic.Driver // by number of replicas

	id       string // in the name of every request, so that a service with idempotency keys never saw it before
	began    time.Time
	rates    map[history.Subject]float64 // answered requests per second, as measured so far
	overhead time.Duration               // of a cell, in addition to its traffic
	number   int                         // of the current cell, from 1
	answered atomic.Int64                // requests of the current cell
	progress atomic.Pointer[Progress]
}

// New makes a Runner. began is the time from which the budget counts.
func New(target Target, config Config, began time.Time) (*Runner, error) {
	oneReplica := target.Fewer[1] != "" && config.Sweep.Axis != history.AxisReplicas
	measured := rows(config.Choices, workloads(config), config.settings(), oneReplica)
	r := &Runner{
		target:   target,
		config:   config,
		rows:     measured,
		patience: usualPatience,
		drivers:  map[int]*traffic.Driver{},
		id:       strings.ToLower(rand.Text()[:10]),
		began:    began,
		rates:    map[history.Subject]float64{},
		overhead: 150 * time.Millisecond,
	}
	if config.Patience > 0 {
		r.patience.limit = config.Patience
	}
	if config.Rounds > 0 {
		r.schedule = &fixedRounds{rows: measured, rounds: config.Rounds, seed: config.Seed}
	} else {
		r.schedule = newNeededRounds(measured, config.Seed)
		r.longest = longestCell
	}
	if config.standard() {
		r.judged = judgedRows(config.Choices, config.Replicas, oneReplica)
	}
	return r, r.openDrivers()
}

// workloads returns the names of the workloads to run.
func workloads(config Config) []string {
	switch {
	case config.Stock > 0:
		return []string{GivenStock}
	case config.Workload != "":
		return []string{config.Workload}
	}
	return []string{Plenty, FlashSale}
}

// standard reports whether the lab runs the two standard workloads, and nothing else is asked of them.
func (c Config) standard() bool {
	return c.Stock == 0 && c.Workload == "" && c.Sweep.Axis == "" && c.Rate == 0 &&
		c.Restock == 0 && c.Duration == 0
}

// openDrivers makes a driver for each number of replicas that the rows need.
func (r *Runner) openDrivers() error {
	addresses := maps.Clone(r.target.Fewer)
	if addresses == nil {
		addresses = map[int]string{}
	}
	addresses[r.config.Replicas] = r.target.URL
	users := map[int]int{} // by number of replicas
	for _, row := range r.all() {
		if addresses[row.Replicas] == "" && r.target.Own == nil {
			return fmt.Errorf("%s: the target has no URL that reaches exactly this number of replicas", row.Label())
		}
		users[row.Replicas] = max(users[row.Replicas], r.users(row))
	}
	for replicas, most := range users {
		bases := []string{addresses[replicas]}
		if r.target.Own != nil {
			bases = r.target.Own.URLs
		}
		driver, err := traffic.NewDriver(most, bases...)
		if err != nil {
			return err
		}
		r.drivers[replicas] = driver
	}
	return nil
}

// all returns the rows that are judged only and those that are measured.
func (r *Runner) all() []row { return slices.Concat(r.judged, r.rows) }

// Plan returns the runs that Run makes at least.
func (r *Runner) Plan() []history.Cell {
	var plan []history.Cell
	for _, row := range r.judged {
		row.Round = 1
		plan = append(plan, row.Cell)
	}
	return append(plan, r.schedule.plan()...)
}

// Run runs the cells and passes each to done as soon as it is judged. It stops at the first error, and soon after ctx
// ends. The history of the interrupted cell then has neither an end nor a verdict.
func (r *Runner) Run(ctx context.Context, done func(Measured) error) error {
	defer func() {
		for _, driver := range r.drivers {
			driver.Close()
		}
	}()
	if err := r.warmUp(ctx); err != nil {
		return err
	}
	if r.config.Warm != nil {
		if err := r.config.Warm(ctx); err != nil {
			return err
		}
	}
	if err := r.runRound(ctx, 1, shuffled(r.judged, r.config.Seed, 0), done); err != nil {
		return err
	}
	for round := 1; ; round++ {
		rows := r.schedule.next(round, r.budgetLeft())
		if len(rows) == 0 {
			return nil
		}
		if err := r.runRound(ctx, round, rows, done); err != nil {
			return err
		}
	}
}

// runRound runs each of the rows once.
func (r *Runner) runRound(ctx context.Context, round int, rows []row, done func(Measured) error) error {
	after := r.schedule.after()
	for i, row := range rows {
		began := time.Now()
		measured, err := r.run(ctx, round, row, slices.Concat(rows[i:], after))
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", row.Label(), round, err)
		}
		r.schedule.learn(row, newSample(measured, time.Since(began)))
		if err := done(measured); err != nil {
			return err
		}
	}
	return nil
}

// users returns the number of clients that send a row's requests. In an open loop, it is the most requests in flight.
func (r *Runner) users(row row) int {
	if row.Rate > 0 {
		return r.config.Users
	}
	return row.Users
}

func (r *Runner) newMix(row row, seed uint64) (*traffic.Mix, error) {
	if w := judgedWorkloadOf(row.Workload.Name); w != nil {
		config := w.mixFor(row.choice())
		config.Seed = seed
		return traffic.NewMix(config)
	}
	return traffic.NewMix(traffic.MixConfig{
		Seed:     seed,
		Goods:    row.Goods,
		Skew:     r.config.Skew,
		MinCount: r.config.MinCount,
		MaxCount: r.config.MaxCount,
	})
}

func (r *Runner) newLoad(row row, mix *traffic.Mix, prefix string) traffic.Load {
	load := traffic.Load{
		Strategy:      row.Strategy,
		Store:         row.Store,
		Hold:          row.hold(),
		Mix:           mix,
		Users:         r.users(row),
		Rate:          row.Rate,
		Requests:      r.config.Requests,
		Duration:      r.config.Duration,
		Timeout:       r.config.Timeout,
		Keys:          r.config.Keys && row.strategy.Idempotent,
		RequestPrefix: prefix,
		Answered:      &r.answered,
	}
	if r.target.Own != nil {
		load.Service = r.target.Own.Description
	}
	if r.config.Pairs {
		load.Reservations = &traffic.Reservations{TTL: pairTTL, Pairs: true}
	}
	if w := judgedWorkloadOf(row.Workload.Name); w != nil {
		load.Requests, load.Duration, load.Retries, load.Reservations = w.requests, judgedTime, w.retries, w.reservations
		load.Cancels = w.cancels
		load.Keys = (load.Keys || w.retries || w.cancels) && w.reservations == nil
	}
	return load
}
