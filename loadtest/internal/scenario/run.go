// Package scenario runs every chosen strategy under every workload, round by round, and has each run judged.
package scenario

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// Target is the service under test.
type Target struct {
	Service
	Alone  string         // URL by which replica 1 alone is reached; empty where there is none
	Oracle *oracle.Oracle // nil where the lab was not told where the stock is: then the service is its own witness
}

// Config is what to run.
type Config struct {
	Choices  []Choice
	Replicas int // behind the target's URL
	Sweep    Sweep
	Rounds   int
	Seed     uint64

	Users    int
	Rate     float64       // requests a second of an open loop; 0: closed loop
	Requests int           // of each run; 0: until Duration
	Duration time.Duration // of each run; 0: until Requests
	Hold     time.Duration
	Timeout  time.Duration // of a request

	Restock            int64 // units that are put back every restockEvery; 0: none
	Stock              int64 // units of all goods; 0: the two standard workloads
	Goods              int
	Skew               string
	MinCount, MaxCount int64

	// Budget is the time for everything. Strategies too slow for their share of it get fewer requests and, in
	// proportion, fewer units. 0: as long as it takes.
	Budget time.Duration
	WarmUp time.Duration // of each strategy
	Dir    string        // histories go to its subdirectory history
}

// Measured is one run of one cell, judged.
type Measured struct {
	History history.History
	Verdict verify.Verdict
	Path    string // of the history's file
}

// patience is how long the stock is watched after a run, until it is taken for final.
type patience struct {
	glance  time.Duration // unchanged for so long, where every outcome is known
	still   time.Duration // unchanged for so long, where one is not, or where the stock still moved
	service time.Duration // the service itself gives up so long after a request was sent
	limit   time.Duration // then nobody waits any longer; at least the timeout of a request
}

var usualPatience = patience{
	glance: 20 * time.Millisecond, still: time.Second, service: 15 * time.Second, limit: 20 * time.Second,
}

// restockEvery is short beside the shortest run.
const restockEvery = 20 * time.Millisecond

// generousRate is more requests a second than any service answers.
const generousRate = 100_000

// Progress is how far a Runner is.
type Progress struct {
	Phase    string // what is being done, for a reader
	Done     int    // cells
	Cells    int
	Answered int64         // requests of the cell under way
	Requests int           // that it will send; 0: unknown
	Left     time.Duration // estimated
	at       time.Time     // of the estimate
}

// Heading says where the run is: [ 3/72, 4:10 left] update, plenty, 2 replicas.
func (p Progress) Heading() string {
	left := p.Left.Round(time.Second)
	return fmt.Sprintf("[%*d/%d, %d:%02d left] %s", len(fmt.Sprint(p.Cells)), p.Done, p.Cells, int(left.Minutes()),
		int(left.Seconds())%60, p.Phase)
}

// String also counts the requests of the cell under way.
func (p Progress) String() string {
	if p.Requests == 0 {
		return fmt.Sprintf("%s  %s", p.Heading(), thousands(int(p.Answered)))
	}
	return fmt.Sprintf("%s  %s of %s", p.Heading(), thousands(int(p.Answered)), thousands(p.Requests))
}

// Runner runs a Config against a Target.
type Runner struct {
	target  Target
	config  Config
	cells   []Cell
	patient patience
	drivers map[int]*traffic.Driver // by replicas

	id       string // of this runner: what it calls its orders is new to the service, whatever the seed
	began    time.Time
	rates    map[key]float64 // answered requests a second, as last measured
	overhead time.Duration   // of a cell, beside its traffic
	number   int             // of the cell under way, from 1
	answered atomic.Int64
	progress atomic.Pointer[Progress]
}

// New checks the configuration. began is when the budget's time began to run.
func New(target Target, config Config, began time.Time) (*Runner, error) {
	switch {
	case config.Requests < 1 && config.Duration <= 0:
		return nil, errors.New("neither a number of requests nor a duration is given")
	case config.Rounds < 1:
		return nil, fmt.Errorf("%d rounds: at least 1 is needed", config.Rounds)
	case config.Users < 1:
		return nil, fmt.Errorf("%d users: at least 1 is needed", config.Users)
	case config.Stock < 0:
		return nil, fmt.Errorf("stock %d: it cannot be negative", config.Stock)
	}
	workloads := []string{Plenty, FlashSale}
	switch {
	case target.Admin == "":
		workloads = []string{FoundStock}
	case config.Stock > 0:
		workloads = []string{GivenStock}
	}
	r := &Runner{
		target:   target,
		config:   config,
		cells:    Cells(config.Choices, workloads, config.settings(), target.Alone != "" && config.Sweep.Axis != AxisReplicas),
		patient:  usualPatience,
		drivers:  map[int]*traffic.Driver{},
		id:       strings.ToLower(rand.Text()[:10]),
		began:    began,
		rates:    map[key]float64{},
		overhead: 150 * time.Millisecond,
	}
	addresses := map[int]string{config.Replicas: target.URL}
	if config.Replicas > 1 && target.Alone != "" {
		addresses[1] = target.Alone
	}
	users := 0
	for _, cell := range r.cells {
		if users = max(users, r.users(cell)); addresses[cell.Replicas] == "" {
			return nil, fmt.Errorf("%v: there is no way to so many replicas and no others", cell)
		}
	}
	for replicas, address := range addresses {
		driver, err := traffic.NewDriver(address, users)
		if err != nil {
			return nil, err
		}
		r.drivers[replicas] = driver
	}
	return r, nil
}

func (r *Runner) mix(goods int, seed uint64) (*traffic.Mix, error) {
	return traffic.NewMix(traffic.MixConfig{
		Seed: seed, Goods: goods, Skew: r.config.Skew, MinCount: r.config.MinCount, MaxCount: r.config.MaxCount,
	})
}

// Plan lists all that Run will do, in its order.
func (r *Runner) Plan() []history.Cell {
	var plan []history.Cell
	for round := 1; round <= r.config.Rounds; round++ {
		for _, cell := range Order(r.cells, r.config.Seed, round) {
			plan = append(plan, r.recorded(cell, round))
		}
	}
	return plan
}

// recorded is a cell as histories and manifests record it.
func (r *Runner) recorded(cell Cell, round int) history.Cell {
	return history.Cell{
		Strategy: cell.Strategy.Name, Store: cell.Store, Replicas: cell.Replicas, Workload: cell.Workload,
		Sweep: r.config.Sweep.Axis, Value: cell.Value, Round: round,
	}
}

// Progress may be asked for at any time.
func (r *Runner) Progress() Progress {
	p := r.progress.Load()
	if p == nil {
		return Progress{Phase: "starting", Cells: len(r.cells) * r.config.Rounds}
	}
	now := *p
	now.Answered = r.answered.Load()
	now.Left = max(now.Left-time.Since(now.at), 0)
	return now
}

// Run runs all cells and hands each to done as soon as it is judged. It stops at the first error, and within a moment when ctx
// ends. The history of the cell under way is then kept without an end, and without a verdict.
func (r *Runner) Run(ctx context.Context, done func(Measured) error) error {
	defer func() {
		for _, driver := range r.drivers {
			driver.Close()
		}
	}()
	if err := r.warmUp(ctx); err != nil {
		return err
	}
	for round := 1; round <= r.config.Rounds; round++ {
		cells := Order(r.cells, r.config.Seed, round)
		for i, cell := range cells {
			ahead := slices.Concat(cells[i:], slices.Repeat(r.cells, r.config.Rounds-round))
			measured, err := r.run(ctx, cell, round, r.limit(ahead), r.left(ahead))
			if err != nil {
				return fmt.Errorf("%v, round %d: %w", cell, round, err)
			}
			if err := done(measured); err != nil {
				return err
			}
		}
	}
	return nil
}

// wanted is how long a cell would take in full.
func (r *Runner) wanted(cell Cell) time.Duration {
	if r.config.Requests == 0 {
		return r.config.Duration
	}
	rate := r.rates[cell.key()]
	if r.config.Rate > 0 && (rate == 0 || rate > r.config.Rate) {
		rate = r.config.Rate
	}
	if rate == 0 {
		return r.config.Budget // nobody knows: let it have its whole share
	}
	return time.Duration(float64(r.config.Requests) / rate * float64(time.Second))
}

// limit is the time for the first of the cells that are still to be run; 0: none. It is found anew before each cell, from
// the rates as last measured, so that one that took longer than expected costs all that follow a little.
func (r *Runner) limit(ahead []Cell) time.Duration {
	if r.config.Budget == 0 {
		return 0
	}
	wanted := make([]time.Duration, len(ahead))
	for i, cell := range ahead {
		wanted[i] = r.wanted(cell)
	}
	budget := time.Until(r.began.Add(r.config.Budget)) - time.Duration(len(ahead))*r.overhead
	// Even a budget that is used up leaves each cell the time to show something.
	return max(Share(budget, wanted), 200*time.Millisecond)
}

// left estimates the time until the end of the run.
func (r *Runner) left(ahead []Cell) time.Duration {
	sum := time.Duration(0)
	for _, cell := range ahead {
		sum += r.wanted(cell) + r.overhead
	}
	if r.config.Budget > 0 {
		sum = min(sum, time.Until(r.began.Add(r.config.Budget)))
	}
	return max(sum, 0)
}

// warmUp runs every strategy for a moment with stock in abundance: connections open, caches fill, and its rate becomes
// known. Where the lab cannot set the stock it has none to spare for this.
func (r *Runner) warmUp(ctx context.Context) error {
	if r.target.Admin == "" {
		return nil
	}
	abundance := map[int64]int64{}
	for _, cell := range r.cells {
		for id := range cell.Goods {
			abundance[int64(id+1)] = 1_000_000_000
		}
	}
	if err := r.target.SetStock(ctx, abundance); err != nil {
		return err
	}
	measured := map[key]float64{}
	for i, cell := range r.cells {
		unnamed := cell // workloads of other names only differ in their stock, which is abundant here
		unnamed.Workload.Name = ""
		at := unnamed.key()
		if measured[at] == 0 {
			mix, err := r.mix(cell.Goods, r.config.Seed)
			if err != nil {
				return err
			}
			r.answered.Store(0)
			// Rates are not known yet: what the budget leaves is the best guess.
			left := max(time.Until(r.began.Add(r.config.Budget)), 0)
			r.progress.Store(&Progress{Phase: "warm-up: " + cell.Strategy.Name, Cells: len(r.cells) * r.config.Rounds, Left: left, at: time.Now()})
			load := r.load(cell, mix, fmt.Sprintf("%s-warm%d", r.id, i))
			load.Rate, load.Requests, load.Duration = 0, 0, r.moment()
			result, err := r.drivers[cell.Replicas].Run(ctx, load)
			if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := refused(result); err != nil {
				return fmt.Errorf("warm-up of %v: %w", cell, err)
			}
			measured[at] = rate(result)
		}
		r.rates[cell.key()] = measured[at]
	}
	return nil
}

// moment is the time to warm up with each setting: all settings of a sweep together take little longer than one would.
func (r *Runner) moment() time.Duration {
	return max(r.config.WarmUp/time.Duration(len(r.config.settings())), min(r.config.WarmUp, 100*time.Millisecond))
}

// refused says why, where the service would not have a single request: the lab asks for something that it cannot have.
func refused(result traffic.Result) error {
	for _, op := range result.Ops {
		if op.Outcome != history.Rejected {
			return nil
		}
	}
	if len(result.Ops) == 0 {
		return nil
	}
	return fmt.Errorf("the service refuses every request: %d %s", result.Ops[0].Status, result.Ops[0].Error)
}

// rate is answered requests a second.
func rate(result traffic.Result) float64 {
	return float64(result.Sent) / (float64(result.EndedNS-result.StartedNS) / float64(time.Second))
}

// users is the number of clients that send a cell's requests. In an open loop, it is the most requests under way.
func (r *Runner) users(cell Cell) int {
	if cell.Rate > 0 {
		return r.config.Users
	}
	return cell.Users
}

func (r *Runner) load(cell Cell, mix *traffic.Mix, prefix string) traffic.Load {
	return traffic.Load{
		Strategy: cell.Strategy.Name, Store: cell.Store, Hold: cell.hold(), Mix: mix,
		Users: r.users(cell), Rate: cell.Rate, Requests: r.config.Requests, Duration: r.config.Duration,
		Timeout: r.config.Timeout, Keys: cell.Strategy.Idempotent, OrderPrefix: prefix, Answered: &r.answered,
	}
}

// run runs one cell within limit (0: none).
func (r *Runner) run(ctx context.Context, cell Cell, round int, limit, left time.Duration) (Measured, error) {
	r.number++
	began := time.Now()
	// Within a round, all strategies face the same orders.
	mix, err := r.mix(cell.Goods, r.config.Seed+uint64(round))
	if err != nil {
		return Measured{}, err
	}
	record := history.Run{
		Cell: r.recorded(cell, round), Seed: r.config.Seed, Planned: r.config.Requests,
		Promise: cell.Strategy.Promise(cell.Replicas, cell.Restock > 0), Control: cell.Strategy.Control,
		Untold: cell.Strategy.Untold(),
	}
	record.Scarce = cell.Workload.Name == FlashSale && cell.Restock == 0 // else it may last
	// A mutex is exclusive where it is correct: on one replica. It is so whatever is put back.
	record.Exclusive = cell.Strategy.Claim.Exclusive && cell.Strategy.Promise(cell.Replicas, false) == promiseCorrect
	load := r.load(cell, mix, fmt.Sprintf("%s-%03d", r.id, r.number))

	witness, name, store := r.witness(cell.durable())
	record.Witness = name
	record.Keys = load.Keys
	record.Ledger = load.Keys && store == oracle.MySQL && r.target.Oracle.Sees(oracle.MySQL)
	if cell.Restock > 0 && !cell.Strategy.Baseline() {
		load.Restock = &traffic.Restock{Admin: r.target.Admin, Store: cell.Store, Units: cell.Restock, Every: restockEvery}
	}
	rationed := ""
	if r.target.Admin == "" {
		found, err := witness.Stock(ctx, store, mix.Goods())
		if err != nil {
			return Measured{}, err
		}
		wanted := r.mostRequests()
		if load.Requests, err = r.ration(ctx, mix, found, wanted); err != nil {
			return Measured{}, err
		}
		if load.Requests < wanted {
			rationed = "this run's share of the stock found"
		}
		if rationed != "" && record.Planned > 0 {
			record.Bounded = fmt.Sprintf("%s of %s requests: %s", thousands(load.Requests), thousands(record.Planned), rationed)
		}
		if limit > 0 && load.Duration == 0 {
			load.Duration = limit + time.Second
		}
	} else {
		expected := r.bound(cell, &load, &record, limit)
		given := r.config.Stock
		if record.Planned > 0 && load.Requests > 0 {
			given = max(1, given*int64(load.Requests)/int64(record.Planned))
		}
		if err := r.target.SetStock(ctx, Units(cell.Workload.Name, mix, expected, given)); err != nil {
			return Measured{}, err
		}
	}
	if record.Initial, err = witness.Stock(ctx, store, mix.Goods()); err != nil {
		return Measured{}, err
	}

	path := filepath.Join(r.config.Dir, "history", fileName(r.number, record))
	// From now on a kill leaves its trace: a history without an end.
	if err := write(path, history.History{Run: record}); err != nil {
		return Measured{}, err
	}

	r.answered.Store(0)
	r.progress.Store(&Progress{
		Phase: fmt.Sprintf("round %d of %d: %v%s", round, r.config.Rounds, cell, record.At()),
		Done:  r.number - 1, Cells: len(r.cells) * r.config.Rounds, Requests: load.Requests, Left: left, at: time.Now(),
	})
	before, err := r.target.Oracle.Counters(ctx)
	if err != nil {
		return Measured{}, err
	}
	sending := time.Now()
	result, err := r.drivers[cell.Replicas].Run(ctx, load)
	if err != nil {
		return Measured{}, err
	}
	var drainErr error
	if cell.Strategy.WriteBehind {
		result.EndedNS, drainErr = r.drained(ctx, cell, mix.Goods())
	}
	sent := time.Since(sending)
	after, countErr := r.target.Oracle.Counters(ctx)
	if load.Keys {
		r.drivers[cell.Replicas].SendAgain(ctx, load, &result)
	}
	if result.Sent > 0 {
		r.rates[cell.key()] = rate(result)
	}
	switch byTime := record.Planned == 0; {
	case byTime:
		record.Planned = result.Sent + result.Dropped
		if rationed != "" && !result.OutOfTime {
			record.Bounded = fmt.Sprintf("%.1f of %.1f s: %s", sent.Seconds(), r.config.Duration.Seconds(), rationed)
		}
	case result.OutOfTime:
		record.Bounded = fmt.Sprintf("%s of %s requests: %.1f s limit", thousands(result.Sent), thousands(record.Planned),
			load.Duration.Seconds())
	}
	end, err := r.end(ctx, cell, witness, store, mix.Goods(), after.Since(before), result)
	if err = errors.Join(drainErr, countErr, err); err != nil {
		end = nil
	}
	m := Measured{History: history.History{Run: record, Ops: result.Ops, End: end}, Path: path}
	if record.Ledger && end != nil {
		var ledgerErr error
		m.History.Ledger, ledgerErr = r.target.Oracle.Ledger(ctx, load.OrderPrefix)
		end.LedgerRead = ledgerErr == nil
		err = errors.Join(err, ledgerErr)
	}
	if err := errors.Join(err, write(path, m.History), refused(result)); err != nil {
		return Measured{}, err
	}
	m.Verdict = verify.Judge(&m.History)
	r.overhead = (3*r.overhead + time.Since(began) - sent) / 4
	return m, nil
}

// bound makes the load fit into limit (0: none) and says so in the record. It returns how many orders to expect.
func (r *Runner) bound(cell Cell, load *traffic.Load, record *history.Run, limit time.Duration) int {
	rate := max(r.rates[cell.key()], 1)
	if load.Rate > 0 {
		rate = min(rate, load.Rate)
	}
	switch {
	case load.Requests == 0 && cell.Workload.Name == FlashSale:
		// It must sell out, also where the service is slower than it was: its stock is a sixth of this.
		return int(math.Ceil(rate * load.Duration.Seconds()))
	case load.Requests == 0 && load.Rate > 0:
		return int(math.Ceil(load.Rate * load.Duration.Seconds()))
	case load.Requests == 0:
		// A closed loop is as fast as the service: half as much again as it did last time should be plenty.
		return int(1.5*rate*load.Duration.Seconds()) + load.Users
	case limit > 0:
		load.Requests, record.Bounded = Fit(load.Requests, rate, limit)
		// The rate may collapse: the run then ends by time, with more units than were asked for.
		predicted := time.Duration(float64(load.Requests) / rate * float64(time.Second))
		load.Duration = 2*predicted + time.Second
	}
	return load.Requests
}

// mostRequests is what a run may send: without a figure, more than fits into its duration.
func (r *Runner) mostRequests() int {
	if r.config.Requests > 0 {
		return r.config.Requests
	}
	rate := r.config.Rate
	if rate == 0 {
		rate = generousRate
	}
	return int(math.Ceil(rate * r.config.Duration.Seconds()))
}

// ration is how many of the wanted orders of a mix the next run may send so that those after it find stock, too.
func (r *Runner) ration(ctx context.Context, mix *traffic.Mix, found map[int64]int64, wanted int) (int, error) {
	runs := int64(len(r.cells)*r.config.Rounds - r.number + 1)
	share := make(map[int64]int64, len(found))
	for id, units := range found {
		share[id] = units / runs
	}
	n, err := Affordable(ctx, mix, wanted, share)
	if err != nil {
		return 0, err
	}
	if n < min(verify.MinAnswered, wanted) {
		return 0, fmt.Errorf("the stock found, %v (goods: units), is too little for %d runs: give --admin URL for the lab to set "+
			"it, set it yourself with PUT /admin/stock/{id} on an admin listener, or choose fewer --strategies and --rounds",
			found, runs)
	}
	return n, nil
}

// witness is who reads the stock of a store, and which store to read for the baseline, which has none of its own.
func (r *Runner) witness(store string) (w witness, name, read string) {
	o := r.target.Oracle
	if store != oracle.MySQL && store != oracle.Redis && store != oracle.Slots {
		store = oracle.MySQL
		for _, choice := range r.config.Choices {
			if !choice.Strategy.Baseline() {
				store = choice.Store
				break
			}
		}
	}
	if o.Sees(store) {
		return o, "oracle", store
	}
	return oracle.Service{URL: r.target.URL, Client: r.target.Client}, "service", store
}

// witness reads the stock.
type witness interface {
	Stock(ctx context.Context, store string, goods []int64) (map[int64]int64, error)
}

// drained waits until every sale of a strategy that writes behind is in MySQL: then both stores have the same. What is sold
// before that is not durable, so that the time belongs to the run. It returns when a store was last seen to move: also where
// they come to rest without agreeing, which is for the judge to say.
func (r *Runner) drained(ctx context.Context, cell Cell, goods []int64) (endedNS int64, err error) {
	seller, _, sold := r.witness(cell.Store)
	keeper, _, durable := r.witness(cell.durable())
	var last [2]map[int64]int64
	for {
		ahead, err := seller.Stock(ctx, sold, goods)
		if err != nil {
			return 0, err
		}
		behind, err := keeper.Stock(ctx, durable, goods)
		if err != nil {
			return 0, err
		}
		now := monotonic.Now()
		if !maps.Equal(ahead, last[0]) || !maps.Equal(behind, last[1]) {
			last, endedNS = [...]map[int64]int64{ahead, behind}, now
		}
		if maps.Equal(ahead, behind) || now-endedNS > int64(r.patient.limit) {
			return endedNS, nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// end reads what the run left behind.
func (r *Runner) end(ctx context.Context, cell Cell, w witness, store string, goods []int64, did oracle.Counters, result traffic.Result) (*history.End, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	final, err := r.final(ctx, w, store, goods, result.Ops)
	if err != nil {
		return nil, err
	}
	end := &history.End{
		StartedNS: result.StartedNS, EndedNS: result.EndedNS, Final: final, Dropped: result.Dropped,
		MeanLagNS: int64(result.MeanLag), MaxLagNS: int64(result.MaxLag),
		MySQLStatements: did.MySQLStatements, RedisCommands: did.RedisCommands,
	}
	if cell.Strategy.WriteBehind && final != nil {
		seller, _, sold := r.witness(cell.Store)
		if end.Seller, err = seller.Stock(ctx, sold, goods); err != nil {
			return nil, err
		}
	}
	return end, nil
}

// final reads the stock once it does not move any more; nil where it never came to rest. What nobody has an answer to may still
// be under way in the service.
func (r *Runner) final(ctx context.Context, w witness, store string, goods []int64, ops []history.Op) (map[int64]int64, error) {
	quiet, underWay := r.patient.glance, int64(0)
	for _, op := range ops {
		if op.Outcome != history.Unknown {
			continue
		}
		quiet = r.patient.still
		if op.Error == traffic.TimedOut || op.Status == http.StatusGatewayTimeout {
			underWay = max(underWay, op.SentNS+int64(r.patient.service))
		}
	}
	last, err := w.Stock(ctx, store, goods)
	if err != nil {
		return nil, err
	}
	since := monotonic.Now()
	deadline := since + int64(max(r.patient.limit, r.config.Timeout))
	for {
		select {
		case <-time.After(min(quiet, 100*time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		stock, err := w.Stock(ctx, store, goods)
		if err != nil {
			return nil, err
		}
		now := monotonic.Now()
		if !maps.Equal(stock, last) {
			last, since, quiet = stock, now, r.patient.still
		}
		switch {
		case now-since >= int64(quiet) && now >= underWay:
			return last, nil
		case now >= deadline:
			return nil, nil
		}
	}
}

func fileName(number int, run history.Run) string {
	swept := ""
	if run.Sweep != "" {
		swept = "-" + run.Sweep + run.Value
	}
	return fmt.Sprintf("%03d-%s-%s-%dr%s-round%d.jsonl", number, run.Strategy, run.Workload.Name, run.Replicas, swept, run.Round)
}

// write keeps a history on disk: without an end where the run was interrupted.
func write(path string, h history.History) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	w, err := history.Create(path, h.Run)
	if err != nil {
		return err
	}
	for _, op := range h.Ops {
		w.Op(op)
	}
	for _, entry := range h.Ledger {
		w.Entry(entry)
	}
	if h.End == nil {
		return w.Abandon()
	}
	return w.Close(*h.End)
}
