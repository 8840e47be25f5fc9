package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"

	"stock/internal/stats"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/verify"
)

// Builder collects judged runs. It keeps only the figures of each history, so that its memory grows with the number of
// runs and not with the number of requests. It is not safe for concurrent use.
type Builder struct {
	environment Environment
	rows        []*collected // in the order of their first runs
	bySubject   map[history.Subject]*collected
	plan        []history.Cell // the cells to run at least
	problems    []string       // added by the caller
	faults      []Fault
	explored    []trace.Result
	contract    []Contract
	summaries   map[string]string
}

// collected is what a row is computed from.
type collected struct {
	run       history.Run // of the first round
	rounds    []Cell
	latencies measurements // ns
	waited    measurements // µs
	held      measurements // µs
	attempts  int64
	replicas  map[string]int // sales by replica
	windows   []timeline.Window
}

// password matches the password of a DSN or URL: reports are shared, so passwords must not be in them.
var password = regexp.MustCompile(`([^:=]*):.*@`)

// NewBuilder starts a report. Passwords in the environment's options are masked.
func NewBuilder(environment Environment) *Builder {
	options := make([]string, len(environment.Options))
	for i, option := range environment.Options {
		options[i] = password.ReplaceAllString(option, "$1:***@")
	}
	environment.Options = options
	return &Builder{environment: environment, bySubject: map[history.Subject]*collected{}, summaries: map[string]string{}}
}

// Environment returns the report's environment.
func (b *Builder) Environment() Environment { return b.environment }

// Expect sets the cells to run (see history.Manifest). A report in which a row has fewer has a problem.
func (b *Builder) Expect(plan []history.Cell) { b.plan = slices.Clone(plan) }

// Describe says how a strategy works, in one sentence.
func (b *Builder) Describe(strategy, summary string) { b.summaries[strategy] = summary }

// Note adds something that readers of the report should know, and that is no problem.
func (b *Builder) Note(text string) {
	b.environment.Notes = append(slices.Clone(b.environment.Notes), text)
}

// Problem adds a problem that the figures do not show, such as why the run was aborted. It precedes the problems that
// the report finds.
func (b *Builder) Problem(text string) { b.problems = append(b.problems, text) }

// Add adds a run and its verdict, and returns the figures of this round.
func (b *Builder) Add(h *history.History, v verify.Verdict) Cell {
	run := h.Run
	if run.Goods == 0 { // an older history
		run.Goods = len(run.Initial)
	}
	c := b.bySubject[run.Key()]
	if c == nil {
		c = &collected{run: run, replicas: map[string]int{}}
		b.bySubject[run.Key()] = c
		b.rows = append(b.rows, c)
	}

	latencies := c.addOps(h.Ops)
	cell := newCell(h, v)
	cell.LatencyMS = latency(latencies, cell.ElapsedS)
	c.latencies = append(c.latencies, latencies...)
	c.rounds = append(c.rounds, cell)
	c.addWindows(h, v)
	return cell
}

// addWindows keeps the windows of the first round, or of the first one with a finding.
func (c *collected) addWindows(h *history.History, v verify.Verdict) {
	found := slices.ContainsFunc(c.windows, func(w timeline.Window) bool { return len(w.Findings) > 0 })
	if found || len(c.windows) > 0 && v.Result != verify.Wrong || h.Run.Claim == verify.ClaimSellsNothing {
		return
	}
	if windows := timeline.Around(h); c.windows == nil || len(windows) > 0 && len(windows[0].Findings) > 0 {
		c.windows = windows
	}
}

// addOps adds the deductions of a round, and returns their latencies.
func (c *collected) addOps(ops []history.Op) (latencies measurements) {
	for _, op := range ops {
		if op.Again || !op.Sells() {
			continue
		}
		latencies = append(latencies, latencyNS(op))
		if op.Outcome == history.Sold {
			c.waited = append(c.waited, op.WaitedUS)
			c.held = append(c.held, op.HeldUS)
			c.attempts += int64(op.Attempts)
			c.replicas[op.Replica]++
		}
	}
	return latencies
}

// latencyNS is how long a request took. One that was sent late had been waiting since it was to be sent (coordinated
// omission: Tene, 2013).
func latencyNS(op history.Op) int64 {
	if op.IntendedNS > 0 {
		return op.ReceivedNS - op.IntendedNS
	}
	return op.ReceivedNS - op.SentNS
}

// newCell computes the figures of a run, except for its latencies.
func newCell(h *history.History, v verify.Verdict) Cell {
	cell := Cell{
		Round: h.Run.Round, Verdict: v, Seed: h.Run.Seed, RequestsPlanned: h.Run.Planned, Bounded: h.Run.Bounded,
	}
	if h.End != nil {
		cell.Dropped = h.End.Dropped
		cell.DriverCPUNS, cell.CPUNS = h.End.DriverCPUNS, h.End.CPUNS
		cell.MySQLStatements = h.End.MySQLStatements
		cell.RedisCommands = h.End.RedisCommands
		if h.Run.Rate > 0 {
			cell.SendLagMS = &Lag{
				Mean: rounded(float64(h.End.MeanLagNS) / 1e6),
				Max:  rounded(float64(h.End.MaxLagNS) / 1e6),
			}
		}
	}
	if started, ended := span(h); ended > started {
		seconds := float64(ended-started) / 1e9
		cell.ElapsedS = rounded(seconds)
		cell.GoodputPerS = rounded(float64(v.Good) / seconds)
		cell.ThroughputPerS = rounded(float64(v.Outcomes[history.Sold]+v.Outcomes[history.SoldOut]) / seconds)
	}
	return cell
}

// span returns when the load of a run started and ended. An interrupted run recorded only its requests.
func span(h *history.History) (startedNS, endedNS int64) {
	if h.End != nil {
		return h.End.StartedNS, h.End.EndedNS
	}
	startedNS, endedNS = math.MaxInt64, math.MinInt64
	for _, op := range h.Ops {
		if !op.Again { // what is sent again is not part of the load
			startedNS, endedNS = min(startedNS, op.SentNS), max(endedNS, op.ReceivedNS)
		}
	}
	return startedNS, endedNS
}

// Report builds the report of the runs added so far.
func (b *Builder) Report() *Report {
	r := &Report{Schema: Schema, Environment: b.environment, Problems: []string{}, Rows: []*Row{}}
	for _, c := range b.rows {
		r.Rows = append(r.Rows, c.row())
	}
	r.compareToBaseline()
	r.sort()
	r.markUntested()
	r.Faults = slices.Clone(b.faults)
	r.Explored, r.Contract = slices.Clone(b.explored), slices.Clone(b.contract)
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return a.Place - b.Place })
	if len(b.summaries) > 0 {
		r.Summaries = maps.Clone(b.summaries)
	}
	for _, row := range r.Rows {
		row.Faults = r.faultsOf(row)
	}
	r.Problems = append(r.Problems, b.problems...)
	if missing := b.missing(); missing > 0 {
		r.Inconclusive = true
		r.Problems = append(r.Problems,
			fmt.Sprintf("%d of %d planned runs are missing: the run ended early", missing, len(b.plan)))
	}
	r.conclude()
	return r
}

// missing counts the planned runs that were not added. The number of a round does not matter: in a run of an earlier
// commit, a row was not in every round.
func (b *Builder) missing() int {
	left := map[history.Cell]int{}
	for _, c := range b.rows {
		for range c.rounds {
			left[inPlan(c.run.Cell)]++
		}
	}
	missing := 0
	for _, cell := range b.plan {
		if row := inPlan(cell); left[row] > 0 {
			left[row]--
		} else {
			missing++
		}
	}
	return missing
}

// inPlan returns what identifies the row of a cell within a plan.
func inPlan(cell history.Cell) history.Cell {
	cell = cell.InPlan()
	cell.Round = 0
	return cell
}

func (c *collected) row() *Row {
	rounds := slices.Clone(c.rounds)
	slices.SortStableFunc(rounds, func(a, b Cell) int { return cmp.Compare(a.Round, b.Round) })
	var verdicts []verify.Verdict
	for _, round := range rounds {
		verdicts = append(verdicts, round.Verdict)
	}
	row := &Row{
		Subject: c.run.Subject,
		Claim:   c.run.Claim, Exclusive: c.run.Exclusive, Control: c.run.Control,
		LateLosesUpdate: c.run.LateLosesUpdate,
		Baseline:        c.run.Claim == verify.ClaimSellsNothing,
		JudgedOnly:      c.run.JudgedOnly,
		Own:             c.run.Own,
		Verdict:         verify.Merge(verdicts...),
		Windows:         c.windows,
		Rounds:          rounds,
	}
	row.ClaimHeld = verify.Held(c.run, row.Verdict)
	row.RequestsSent = row.Requests
	for _, outcome := range RequestOutcomes {
		row.Outcomes[outcome] += 0 // every outcome has an entry
	}
	for _, units := range c.run.Initial {
		row.Stock += units
	}
	row.addRates()
	row.addCosts(c)
	row.addDriverCPU()
	row.addCPU()
	seconds := row.seconds() / float64(len(rounds))
	row.LatencyMS = latency(c.latencies, seconds)
	row.WaitedUS, row.HeldUS = wait(c.waited, seconds), wait(c.held, seconds)
	return row
}

// addRates summarizes the rounds' requests and speed.
func (r *Row) addRates() {
	var goodput, throughput []float64
	for _, round := range r.Rounds {
		r.RequestsPlanned += round.RequestsPlanned
		r.Dropped += round.Dropped
		goodput = append(goodput, round.GoodputPerS)
		throughput = append(throughput, round.ThroughputPerS)
		r.Bounded = cmp.Or(r.Bounded, round.Bounded)
	}
	r.SendLagMS = lag(r.Rounds)
	mean, interval := stats.Mean(goodput)
	r.GoodputPerS, r.GoodputInterval = rounded(mean), roundedEnds(interval)
	mean, _ = stats.Mean(throughput)
	r.ThroughputPerS = rounded(mean)
}

// addDriverCPU divides what the load driver used of the CPU by the requests that it sent meanwhile. Of a row that is
// judged only, some requests are sent several times, and there are too few.
func (r *Row) addDriverCPU() {
	if r.JudgedOnly {
		return
	}
	var used int64
	requests := 0
	for _, round := range r.Rounds {
		if round.DriverCPUNS > 0 { // otherwise the round was interrupted
			used += round.DriverCPUNS
			requests += round.Requests
		}
	}
	if requests > 0 {
		r.DriverCPUUSPerRequest = rounded(float64(used) / 1e3 / float64(requests))
	}
}

// addCPU divides the CPU time of each part by the sales that were made meanwhile.
func (r *Row) addCPU() {
	if r.JudgedOnly {
		return
	}
	used, sales := map[string]int64{}, map[string]int64{}
	for _, round := range r.Rounds {
		for part, ns := range round.CPUNS {
			used[part] += ns
			sales[part] += int64(round.Outcomes[history.Sold])
		}
	}
	for part, ns := range used {
		if sales[part] > 0 {
			if r.CPUUSPerSale == nil {
				r.CPUUSPerSale = map[string]float64{}
			}
			r.CPUUSPerSale[part] = rounded(float64(ns) / 1e3 / float64(sales[part]))
		}
	}
}

// addCosts divides what the servers counted by the sales.
func (r *Row) addCosts(c *collected) {
	var statements, commands int64
	for _, round := range r.Rounds {
		statements += round.MySQLStatements
		commands += round.RedisCommands
	}
	r.ReplicaShares = map[string]float64{}
	if sales := r.Outcomes[history.Sold]; sales > 0 {
		perSale := func(n int64) float64 { return rounded(float64(n) / float64(sales)) }
		r.AttemptsPerSale = perSale(c.attempts)
		r.MySQLStatementsPerSale = perSale(statements)
		r.RedisCommandsPerSale = perSale(commands)
		for replica, n := range c.replicas {
			r.ReplicaShares[replica] = perSale(int64(n))
		}
	}
}
