package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// cellRun is the run of one cell.
type cellRun struct {
	*Runner
	row    row
	mix    *traffic.Mix
	stock  stockReader // of the store that decides the verdict
	load   traffic.Load
	header history.Run // of the history
	path   string      // of the history's file

	result   traffic.Result
	took     time.Duration    // sending and draining
	agreed   bool             // drain ended because both stores had the same stock
	counters oracle.Counters  // what the servers did meanwhile
	cpu      map[string]int64 // ns that each part used meanwhile
}

// run runs the current row.
func (r *Runner) run(ctx context.Context, current row) (Measured, error) {
	r.number++
	run, err := r.prepare(ctx, current)
	if err != nil {
		return Measured{}, err
	}
	phase := fmt.Sprintf("round %d of %d: %s", current.Round, r.config.Rounds, current.Label())
	r.showProgress(Progress{Phase: phase, Done: r.number - 1, Requests: run.load.Requests})
	if r.config.Watch != nil {
		run.load.Watch = r.config.Watch(run.header)
	}

	before, err := r.target.Oracle.Counters(ctx)
	if err != nil {
		return Measured{}, err
	}
	if err := run.send(ctx); err != nil {
		return Measured{}, err
	}
	drainErr := run.drain(ctx)
	drainErr = errors.Join(drainErr, run.awaitLapse(ctx))
	after, countErr := r.target.Oracle.Counters(ctx)
	run.counters = after.Since(before)
	if run.load.Keys {
		r.drivers[current.Replicas].SendAgain(ctx, run.load, &run.result)
	}

	h, err := run.record(ctx, errors.Join(drainErr, countErr))
	if err != nil {
		return Measured{}, err
	}
	return Measured{History: h, Verdict: verify.Judge(&h), Path: run.path}, nil
}

// prepare sets the stock, and writes the beginning of the history: if the lab is killed from then on, a history without
// an end shows it.
func (r *Runner) prepare(ctx context.Context, current row) (*cellRun, error) {
	// All strategies get the same requests within a round.
	mix, err := r.newMix(current, r.config.Seed+uint64(current.Round))
	if err != nil {
		return nil, err
	}
	run := &cellRun{
		Runner: r,
		row:    current,
		mix:    mix,
		stock:  r.reader(current.durable()),
		load:   r.newLoad(current, mix, fmt.Sprintf("%s-%03d", r.id, r.number)),
	}
	if current.Restock > 0 && !current.strategy.Baseline() {
		run.load.Restock = &traffic.Restock{
			Admin: r.target.Admin, Store: current.Store, Units: current.Restock, Every: restockInterval,
		}
	}
	run.header = run.describe()
	if err := run.setStock(ctx); err != nil {
		return nil, err
	}
	if err := run.readInitial(ctx); err != nil {
		return nil, err
	}
	run.path = filepath.Join(r.config.Dir, "history", fileName(r.number, run.header))
	return run, WriteHistory(run.path, history.History{Run: run.header})
}

// describe returns what is known about the run before it begins.
func (c *cellRun) describe() history.Run {
	strategy, cell := c.row.strategy, c.row.Cell
	return history.Run{
		Cell:    cell,
		Seed:    c.config.Seed,
		Planned: c.load.Requests,
		Claim:   c.row.claim(),
		// A mutex is exclusive only where it is correct, which is on one replica. Restocking does not matter for this.
		Exclusive:       strategy.Claim.Exclusive && strategy.ClaimFor(cell.Replicas, false) == verify.ClaimCorrect,
		Fenced:          strategy.Fenced(),
		OmitsRemaining:  strategy.OmitsRemaining(),
		Own:             strategy.Own,
		LateLosesUpdate: strategy.Claim.LateWrite == "loses-updates" && cell.Replicas > 1,
		Control:         strategy.Control,
		Witness:         c.stock.witness,
		// With restocks, a flash sale may not sell out.
		Scarce: cell.Workload.Name == FlashSale && cell.Restock == 0 ||
			judgedOnly(cell.Workload.Name) && !c.load.Cancels,
		Keys:       c.load.Keys,
		Ledger:     c.target.Own == nil && c.load.Keys && c.row.Store == oracle.MySQL && c.target.Oracle.Sees(oracle.MySQL),
		JudgedOnly: judgedOnly(cell.Workload.Name),
		Retries:    c.load.Retries,
		Cancels:    c.load.Cancels,
		Reserves:   c.load.HoldFor > 0,
	}
}

// setStock decides how many requests are sent, and sets the stock of the workload.
func (c *cellRun) setStock(ctx context.Context) error {
	expected := c.bound()
	given := c.config.Stock
	if c.header.Planned > 0 && c.load.Requests > 0 {
		given = max(1, given*int64(c.load.Requests)/int64(c.header.Planned))
	}
	c.header.Set = unitsFor(c.row.Workload.Name, c.mix, expected, given)
	return c.target.SetStock(ctx, c.header.Set)
}

// readInitial reads the stock before the run, as the judge compares it with what was set.
func (c *cellRun) readInitial(ctx context.Context) (err error) {
	if c.header.Initial, err = c.stock.read(ctx, c.mix.Goods()); err != nil || !c.row.updates() {
		return err
	}
	c.header.InitialSeller, err = c.reader(c.row.Store).read(ctx, c.mix.Goods())
	return err
}

// send sends the load and collects the answers.
func (c *cellRun) send(ctx context.Context) (err error) {
	began, used := time.Now(), c.target.usedCPU()
	if c.result, err = c.drivers[c.row.Replicas].Run(ctx, c.load); err != nil {
		return err
	}
	c.took, c.cpu = time.Since(began), map[string]int64{}
	for part, total := range c.target.usedCPU() {
		if before, known := used[part]; known && total >= before { // otherwise a process was restarted
			c.cpu[part] = int64(total - before)
		}
	}
	return nil
}

// record writes the history. If the run failed with runErr, it writes the requests and answers without an end, and
// returns the error.
func (c *cellRun) record(ctx context.Context, runErr error) (history.History, error) {
	c.recordBound()
	h := history.History{Run: c.header, Ops: c.result.Ops}
	if runErr == nil {
		runErr = c.readEnd(ctx, &h)
	}
	return h, errors.Join(runErr, WriteHistory(c.path, h), checkNotAllRejected(c.result))
}

// readEnd completes a history with the final stock and the ledger.
func (c *cellRun) readEnd(ctx context.Context, h *history.History) (err error) {
	if h.End, err = c.end(ctx); err != nil {
		return err
	}
	if c.header.Ledger {
		h.Ledger, err = c.target.Oracle.Ledger(ctx, c.load.RequestPrefix)
		h.End.LedgerRead = err == nil
	}
	return err
}

// recordBound records how many requests were planned and why fewer were sent, as far as that is known only afterwards.
func (c *cellRun) recordBound() {
	result, header := c.result, &c.header
	switch {
	case header.Planned == 0: // by time
		header.Planned = result.Sent + result.Dropped
	case result.OutOfTime:
		header.Bounded = limited(result.Sent, header.Planned, c.load.Duration)
	}
}

// end reads what the run left in the stores.
func (c *cellRun) end(ctx context.Context) (*history.End, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	final, seller, err := c.finalStocks(ctx)
	if err != nil {
		return nil, err
	}
	return &history.End{
		StartedNS:       c.result.StartedNS,
		EndedNS:         c.result.EndedNS,
		Final:           final,
		Seller:          seller,
		Dropped:         c.result.Dropped,
		MeanLagNS:       int64(c.result.MeanLag),
		MaxLagNS:        int64(c.result.MaxLag),
		DriverCPUNS:     int64(c.result.CPU),
		MySQLStatements: c.counters.MySQLStatements,
		RedisCommands:   c.counters.RedisCommands,
		CPUNS:           c.cpu,
	}, nil
}

func fileName(number int, run history.Run) string {
	sweep := ""
	if run.Sweep != "" {
		sweep = "-" + run.Sweep + run.Value
	}
	return fmt.Sprintf("%03d-%s-%s-%dr%s-round%d.jsonl",
		number, run.Strategy, run.Workload.Name, run.Replicas, sweep, run.Round)
}

// WriteHistory writes a history to a file, and creates its directory.
func WriteHistory(path string, h history.History) error {
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
