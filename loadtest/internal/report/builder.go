package report

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// Builder collects judged runs. Of each history it keeps the figures only, so that its memory grows with the number of runs,
// and not with that of their requests. It is not safe for concurrent use.
type Builder struct {
	environment Environment
	rows        []*collected // in the order in which they were first met
	byKey       map[key]*collected
	plan        []history.Cell        // what was to be run
	ran         map[history.Cell]bool // what was added, by its key
	problems    []string              // that the caller knows of
}

// collected is a row with what its figures are made of.
type collected struct {
	run       history.Run // of the first round
	rounds    []Round
	latencies histogram // ns
	waited    histogram // µs
	held      histogram // µs
	attempts  int64
	replicas  map[string]int
}

// password is what stands between a user and an @: reports are passed around, passwords are not.
var password = regexp.MustCompile(`([^:=]*):.*@`)

// NewBuilder starts a report. Passwords in the environment's options are masked.
func NewBuilder(environment Environment) *Builder {
	options := make([]string, len(environment.Options))
	for i, option := range environment.Options {
		options[i] = password.ReplaceAllString(option, "$1:***@")
	}
	environment.Options = options
	return &Builder{environment: environment, byKey: map[key]*collected{}, ran: map[history.Cell]bool{}}
}

// Environment gives access to the facts about the machine, for those that are known only later.
func (b *Builder) Environment() *Environment { return &b.environment }

// Expect tells what was to be run (see history.Manifest). A report that lacks some of it says so, and does not claim success.
func (b *Builder) Expect(plan []history.Cell) { b.plan = slices.Clone(plan) }

// Problem adds a problem that the figures do not show, such as why the run could not go on. It goes before those that
// the report finds itself, and no report with one claims success.
func (b *Builder) Problem(text string) { b.problems = append(b.problems, text) }

// Add takes a run and its verdict into the report, and returns the figures of this round.
func (b *Builder) Add(h *history.History, v verify.Verdict) Round {
	run := h.Run
	b.ran[run.Cell.Key()] = true
	if run.Goods == 0 { // an older history
		run.Goods = len(run.Initial)
	}
	k := key{run.Strategy, run.Store, run.Replicas, run.Workload}
	c := b.byKey[k]
	if c == nil {
		c = &collected{run: run, replicas: map[string]int{}}
		b.byKey[k] = c
		b.rows = append(b.rows, c)
	}

	var latencies histogram
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, op := range h.Ops {
		if op.Again {
			continue // after the load
		}
		first, last = min(first, op.SentNS), max(last, op.ReceivedNS)
		if op.Kind != history.Deduct {
			continue
		}
		from := op.SentNS
		if op.IntendedNS > 0 {
			// A request that had to wait for its turn to be sent was waiting already (coordinated omission: Tene, 2013).
			from = op.IntendedNS
		}
		latencies.add(op.ReceivedNS - from)
		if op.Outcome == history.Sold {
			c.waited.add(op.WaitedUS)
			c.held.add(op.HeldUS)
			c.attempts += int64(op.Attempts)
			c.replicas[op.Replica]++
		}
	}
	round := Round{Round: run.Round, Verdict: v, Seed: run.Seed, RequestsPlanned: run.Planned, Bounded: run.Bounded}
	if h.End != nil {
		first, last = h.End.StartedNS, h.End.EndedNS
		round.Dropped = h.End.Dropped
		round.MySQLStatements = h.End.MySQLStatements
		round.RedisCommands = h.End.RedisCommands
		if run.Rate > 0 {
			round.SendLagMS = &Lag{Mean: round3(float64(h.End.MeanLagNS) / 1e6), Max: round3(float64(h.End.MaxLagNS) / 1e6)}
		}
	}
	if last > first {
		seconds := float64(last-first) / 1e9
		round.ElapsedS = round3(seconds)
		round.GoodputPerS = round3(float64(v.Good) / seconds)
		round.ThroughputPerS = round3(float64(v.Outcomes[history.Sold]+v.Outcomes[history.SoldOut]) / seconds)
	}
	round.LatencyMS = latency(latencies)
	c.latencies.merge(latencies)
	c.rounds = append(c.rounds, round)
	return round
}

// Report puts together what was added so far.
func (b *Builder) Report() *Report {
	r := &Report{Schema: Schema, Environment: b.environment, Problems: []string{}, Rows: []*Row{}}
	for _, c := range b.rows {
		r.Rows = append(r.Rows, c.row())
	}
	r.compareToBaseline()
	r.rank()
	r.excuse()
	r.Sweep = r.sweep()
	r.Problems = append(r.Problems, b.problems...)
	if missing := b.missing(); missing > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%d of %d planned runs are missing: the run ended early", missing, len(b.plan)))
	}
	r.conclude()
	return r
}

// missing counts the planned runs that were not added.
func (b *Builder) missing() int {
	missing := 0
	for _, cell := range b.plan {
		if !b.ran[cell.Key()] {
			missing++
		}
	}
	return missing
}

func (c *collected) row() *Row {
	rounds := slices.Clone(c.rounds)
	slices.SortStableFunc(rounds, func(a, b Round) int { return cmp.Compare(a.Round, b.Round) })
	verdicts := make([]verify.Verdict, len(rounds))
	for i, round := range rounds {
		verdicts[i] = round.Verdict
	}
	row := &Row{
		Strategy: c.run.Strategy, Store: c.run.Store, Replicas: c.run.Replicas, Workload: c.run.Workload, Sweep: c.run.Sweep,
		Claim: c.run.Promise, Exclusive: c.run.Exclusive, Control: c.run.Control,
		Baseline: c.run.Promise == verify.PromiseSellsNothing,
		Verdict:  verify.Merge(verdicts...),
		Rounds:   rounds,
	}
	row.ClaimHeld = verify.Held(c.run, row.Verdict)
	row.RequestsSent = row.Requests
	for _, outcome := range outcomes {
		row.Outcomes[outcome] += 0 // each is shown, also where there was none
	}
	for _, units := range c.run.Initial {
		row.Stock += units
	}

	var statements, commands int64
	var goodput, throughput []float64
	for _, round := range rounds {
		row.RequestsPlanned += round.RequestsPlanned
		row.Dropped += round.Dropped
		statements += round.MySQLStatements
		commands += round.RedisCommands
		goodput = append(goodput, round.GoodputPerS)
		throughput = append(throughput, round.ThroughputPerS)
		if row.Bounded == "" {
			row.Bounded = round.Bounded
		}
	}
	row.SendLagMS = lag(rounds)
	row.GoodputPerS = round3(median(goodput))
	row.ThroughputPerS = round3(median(throughput))
	if _, interval := geometric(goodput); interval != nil {
		row.GoodputInterval = &Interval{round3(interval.Low), round3(interval.High)}
	}

	row.LatencyMS = latency(c.latencies)
	row.WaitedUS, row.HeldUS = wait(c.waited), wait(c.held)
	row.ReplicaShares = map[string]float64{}
	if sales := row.Outcomes[history.Sold]; sales > 0 {
		perSale := func(n int64) float64 { return round3(float64(n) / float64(sales)) }
		row.AttemptsPerSale = perSale(c.attempts)
		row.MySQLStatementsPerSale = perSale(statements)
		row.RedisCommandsPerSale = perSale(commands)
		for replica, n := range c.replicas {
			row.ReplicaShares[replica] = perSale(int64(n))
		}
	}
	if answered := row.Outcomes[history.Sold] + row.Outcomes[history.SoldOut]; answered > 0 {
		row.MySQLStatementsPerRequest = round3(float64(statements) / float64(answered))
		row.RedisCommandsPerRequest = round3(float64(commands) / float64(answered))
	}
	return row
}

// compareToBaseline fills in the share of noop.
func (r *Report) compareToBaseline() {
	for _, row := range r.Rows {
		base := r.baseline(row)
		if base == nil || row.Restock > 0 {
			continue // nothing is put back for the baseline, and the slower a strategy, the more it is given to sell
		}
		if base == row {
			one := 1.0
			row.ShareOfNoop = &one
			continue
		}
		var shares []float64
		for own, other := range pairs(row, base) {
			// What the baseline confirmed, as far as there was stock for it, is what it would have sold.
			if would := float64(other.Covered); would > 0 && own.ElapsedS > 0 && other.ElapsedS > 0 {
				shares = append(shares, (float64(own.Good)/own.ElapsedS)/(would/other.ElapsedS))
			}
		}
		if len(shares) > 0 {
			share := round3(median(shares))
			row.ShareOfNoop = &share
		}
	}
}

// baseline finds the baseline of a row: under the same load, best on as many replicas.
func (r *Report) baseline(row *Row) *Row {
	var found *Row
	for _, other := range r.Rows {
		if other.Baseline && other.load() == row.load() && (found == nil || other.Replicas == row.Replicas) {
			found = other
		}
	}
	return found
}

// rank sorts the rows, and compares the correct strategies with the fastest of them.
func (r *Report) rank() {
	// Rounds run in random order, so the order of arrival says nothing: the load with the most stock goes first.
	stock := map[history.Workload]int64{}
	for _, row := range r.Rows {
		stock[row.load()] = max(stock[row.load()], row.Stock)
	}
	class := func(row *Row) int {
		switch {
		case row.Baseline:
			return 4
		case row.Ranked():
			return 0
		case row.Result == verify.Correct:
			return 1
		case row.Result == verify.Inconclusive:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(r.Rows, func(a, b *Row) int {
		return cmp.Or(
			cmp.Compare(a.Users, b.Users), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.HoldMS, b.HoldMS),
			cmp.Compare(a.Items(), b.Items()),
			cmp.Compare(stock[b.load()], stock[a.load()]), cmp.Compare(a.Workload.Name, b.Workload.Name),
			cmp.Compare(class(a), class(b)),
			cmp.Compare(b.GoodputPerS, a.GoodputPerS),
			cmp.Compare(a.Strategy, b.Strategy), cmp.Compare(a.Store, b.Store), cmp.Compare(a.Replicas, b.Replicas))
	})

	type group struct {
		history.Workload
		replicas int
	}
	fastest := map[group]*Row{} // the first one met, now that they are sorted
	for _, row := range r.Rows {
		if !row.Ranked() {
			continue
		}
		g := group{row.load(), row.Replicas}
		if fastest[g] == nil {
			fastest[g] = row
		}
		row.Relative = relative(row, fastest[g])
	}
}

func relative(row, fastest *Row) *Relative {
	if row == fastest {
		return &Relative{SlowerThanFastestCorrect: 1}
	}
	var ratios []float64
	for own, other := range pairs(row, fastest) {
		if own.GoodputPerS > 0 && other.GoodputPerS > 0 {
			ratios = append(ratios, other.GoodputPerS/own.GoodputPerS)
		}
	}
	if len(ratios) == 0 {
		return nil
	}
	center, interval := geometric(ratios)
	rel := &Relative{SlowerThanFastestCorrect: round3(center)}
	if interval != nil {
		half := round3((interval.High - interval.Low) / 2)
		rel.PlusMinus = &half
		rel.Interval = &Interval{round3(interval.Low), round3(interval.High)}
		rel.Tied = interval.Low <= 1 && interval.High >= 1
	}
	return rel
}

// conclude says whether every claim held, and whether the run proves anything at all.
func (r *Report) conclude() {
	r.ClaimsHeld = len(r.Rows) > 0 && len(r.Problems) == 0 // those that are known before
	if len(r.Rows) == 0 {
		r.Problems = append(r.Problems, "nothing was run")
	}
	for _, row := range r.Rows {
		if row.ClaimHeld || row.Untested {
			continue
		}
		r.ClaimsHeld = false
		r.Problems = append(r.Problems, fmt.Sprintf("claim not held: %s: promised %s, found %s", row.Label(), row.Claim, row.found()))
	}

	for _, control := range r.controls() {
		if control.caught {
			continue
		}
		r.Inconclusive = true
		why := "a run that misses a known bug clears nobody"
		if !control.tempted {
			why = "demand never exceeded the stock, and without that it has nothing to do wrong"
		}
		r.Problems = append(r.Problems, fmt.Sprintf("inconclusive: control %s came out clean: %s", control.strategy, why))
	}
}

// control is what became of a strategy that is wrong on purpose, in all its rows together.
type control struct {
	strategy string
	tempted  bool // its load could bring out what it does wrong
	caught   bool
}

func (r *Report) controls() []control {
	var controls []control
	for _, row := range r.Rows {
		if !row.Control {
			continue
		}
		i := slices.IndexFunc(controls, func(c control) bool { return c.strategy == row.Strategy })
		if i < 0 {
			i = len(controls)
			controls = append(controls, control{strategy: row.Strategy})
		}
		controls[i].tempted = controls[i].tempted || row.tempted()
		controls[i].caught = controls[i].caught || row.Result == verify.Wrong
	}
	return controls
}

// success is the sentence for a report without problems.
func (r *Report) success() string {
	if len(r.controls()) == 0 {
		return "Every claim held; no control was run."
	}
	return "Every claim held, and every control was caught."
}

// tempted says whether the row's load could bring out what its strategy promises to do wrong: without a check of the
// stock, the arithmetic is right for as long as nobody asks for more than there is.
func (r *Row) tempted() bool { return r.Claim != verify.PromiseOversells || r.DemandExceeded }

// found words the verdict beside a promise.
func (r *Row) found() string {
	if r.Result == verify.Correct || len(r.Evidence) == 0 {
		return string(r.Result)
	}
	return fmt.Sprintf("%s (%s)", r.Result, r.Evidence[0])
}
