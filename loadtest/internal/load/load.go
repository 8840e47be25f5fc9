// Package load runs every chosen strategy under every workload, round by round, and has each run judged.
//
// A run of one cell takes five steps: prepare (set the stock), send (the load), drain
// (wait for a strategy that writes behind), record (read the final stock, write the history), and judge.
package load

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
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
	Rounds   int // of all rows
	Seed     uint64

	Users    int
	Rate     float64       // requests per second of an open loop; 0: closed loop
	Requests int           // of each run; 0: until Duration
	Brief    bool          // send fewer if the row is too slow to answer Requests in the time that it has; see cellTime
	Duration time.Duration // of each run; 0: until Requests
	Hold     time.Duration
	Timeout  time.Duration // of a request
	Compared []string      // strategies whose long latencies people compare

	Restock            int64  // units put back every restockInterval; 0: none
	Stock              int64  // units of all items together; 0: the two standard workloads
	Workload           string // the only one of the standard workloads to run; empty: both
	Goods              int    // number of items
	Skew               string
	MinCount, MaxCount int64

	// Keys has requests carry an idempotency key if their strategy keeps it. A load with retries always has keys.
	Keys bool

	WarmUp time.Duration // of each strategy
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
	plan     []row // in the order in which they run, with their rounds
	patience patience
	drivers  map[int]*traffic.Driver // by number of replicas

	id string // in the name of every request, so that a service with idempotency keys never saw it before

	rates    map[history.Subject]float64 // answered requests per second in the warm-up
	began    time.Time                   // of the first cell
	number   int                         // of the current cell, from 1
	answered atomic.Int64                // requests of the current cell
	progress atomic.Pointer[Progress]
}

// New makes a Runner.
func New(target Target, config Config) (*Runner, error) {
	oneReplica := target.Fewer[1] != "" && config.Sweep.Axis != history.AxisReplicas
	r := &Runner{
		target:   target,
		config:   config,
		rows:     rows(config.Choices, workloads(config), config.settings(), oneReplica),
		patience: usualPatience,
		drivers:  map[int]*traffic.Driver{},
		id:       strings.ToLower(rand.Text()[:10]),
		rates:    map[history.Subject]float64{},
	}
	if config.Patience > 0 {
		r.patience.limit = config.Patience
	}
	if config.Standard() {
		r.addRound(1, judgedRows(config.Choices, config.Replicas, oneReplica))
	}
	for round := range config.Rounds {
		r.addRound(round+1, r.rows)
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

// Standard reports whether the lab runs the two standard workloads, and nothing else is asked of them.
func (c Config) Standard() bool {
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
	for _, row := range r.plan {
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

// Plan returns the runs that Run makes.
func (r *Runner) Plan() (plan []history.Cell) {
	for _, row := range r.plan {
		plan = append(plan, row.Cell)
	}
	return plan
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
	r.began = time.Now()
	for _, row := range r.plan {
		measured, err := r.run(ctx, row)
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", row.Label(), row.Round, err)
		}
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
	if w := judgedWorkloadOf(row.Workload.Name); w != nil {
		load.Requests, load.Duration, load.Retries, load.HoldFor = w.requests, judgedTime, w.retries, w.holdFor
		load.Cancels = w.cancels
		load.Keys = (load.Keys || w.retries || w.cancels) && w.holdFor == 0
	}
	return load
}
