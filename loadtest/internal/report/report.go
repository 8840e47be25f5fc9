// Package report compares strategies by their judged runs, and writes the comparison for people and for other
// programs.
//
//	b := report.NewBuilder(environment)      // facts about the machine: LocalEnvironment, and the caller's own
//	b.Add(h, verify.Judge(h))                // every run, as soon as it ends; the history is not kept
//	r := b.Report()                          // at any time, also after an interruption
//
//	r.WriteText(w, colour)                   // what people read, with the evidence: Markdown for a terminal and a file
//	r.WriteJSON(w); r, err = ReadJSON(rd)    // everything
//	r.Err()                                  // nil if every claim held and every control was caught
//
//	Compare(before, after).WriteText(w, colour)
//
// A new figure is a field of Row. Columns that people read are entries of columns (columns.go).
//
// # Units
//
// Counts (requests, units, outcomes, statements) are sums over the rounds of a row. Rates are trimmed geometric means
// of its rounds (see stats.Mean). Intervals are 95 % confidence intervals. Latencies are of the requests of all its
// rounds together. Row.Rounds has the figures of each round.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/verify"
)

// Schema identifies the layout of the JSON. New fields may be added to it, and none changes its meaning, with one
// exception: a row's rates and shares of noop are means, but medians in older reports. Compare does not read them: it
// computes its means from the rounds.
const Schema = "stock-lab/1"

// Report is one run of the lab.
type Report struct {
	Schema      string      `json:"schema"`
	Environment Environment `json:"environment"`
	ClaimsHeld  bool        `json:"claims_held"` // every strategy does what it claims, right or wrong
	// ClaimFailed is set if a strategy is not what it claims, right or wrong.
	ClaimFailed bool `json:"claim_failed"`
	// Inconclusive is set if something could not be judged: a run proves too little or is missing, or a control came out
	// clean, since a run that misses a known bug proves nothing.
	Inconclusive bool     `json:"inconclusive"`
	Problems     []string `json:"problems"` // each claim that did not hold, and whatever could not be judged
	Rows         []*Row   `json:"rows"`     // by workload; of each, the ranked rows come first, by speed
	Faults       []Fault  `json:"faults,omitempty"`
	// Explored is what came of every interleaving of a few requests, by strategy.
	Explored []trace.Result `json:"explored,omitempty"`
	Contract []Contract     `json:"contract,omitempty"`
	// Summaries says how each strategy works, in one sentence, by its name.
	Summaries map[string]string `json:"summaries,omitempty"`
}

// Row is one strategy under one workload.
type Row struct {
	history.Subject

	Claim     string `json:"claim"`     // correct, loses-updates, oversells, sells-nothing
	Exclusive bool   `json:"exclusive"` // also claims that critical sections never overlap
	Control   bool   `json:"control"`   // wrong on purpose
	// LateLosesUpdate is set if the strategy claims that a late write loses an update.
	LateLosesUpdate bool `json:"late_loses_update,omitempty"`
	Baseline        bool `json:"baseline"` // deducts nothing: the cost of a request without a store
	// JudgedOnly is set if the workload is too small to measure anything: the row's rates mean nothing.
	JudgedOnly bool `json:"judged_only,omitempty"`
	// Short is set if the load of the row or of its baseline was too short to compare speeds: it is judged, not ranked.
	Short     bool   `json:"short,omitempty"`
	Own       bool   `json:"own,omitempty"` // the strategy is a service of the user's, which claims nothing
	ClaimHeld bool   `json:"claim_held"`
	Untested  bool   `json:"untested,omitempty"` // too few requests raced at this value of a sweep to check the claim
	Bounded   string `json:"bounded,omitempty"`  // why fewer requests were sent than planned

	verify.Verdict // sums over the rounds

	Stock           int64 `json:"stock"` // units before the first round
	RequestsPlanned int   `json:"requests_planned"`
	RequestsSent    int   `json:"requests_sent"`
	Dropped         int   `json:"dropped"`               // open loop: not sent, because no client was free
	SendLagMS       *Lag  `json:"send_lag_ms,omitempty"` // open loop only

	GoodputPerS float64 `json:"goodput_per_s"` // units sold correctly
	// GoodputInterval is nil for a single round, or if a round has no goodput.
	GoodputInterval *stats.Interval `json:"goodput_interval,omitempty"`
	ThroughputPerS  float64         `json:"throughput_per_s"` // requests answered as sold or sold out
	// ShareOfNoop is the goodput divided by what the baseline would have sold in the same round with the same demand and
	// stock. It is nil without a baseline.
	ShareOfNoop   *float64        `json:"share_of_noop"`
	ShareInterval *stats.Interval `json:"share_interval,omitempty"` // nil as GoodputInterval is

	LatencyMS       Latency `json:"latency_ms"` // from the (intended) sending to the answer, whatever its outcome
	AttemptsPerSale float64 `json:"attempts_per_sale"`
	// All statements, as the servers count them. They include the cost of the refusals.
	MySQLStatementsPerSale float64 `json:"mysql_statements_per_sale"`
	RedisCommandsPerSale   float64 `json:"redis_commands_per_sale"`
	// CPUUSPerSale is the CPU time in µs of each part: service, nginx, MySQL, Redis. It includes that of the refusals. A
	// part is missing if its time is not known, and all are if the row is judged only.
	CPUUSPerSale map[string]float64 `json:"cpu_us_per_sale,omitempty"`
	// WaitedUS is the time of sold requests in the service before the critical section, or if none is on record, before
	// the reply of the store.
	WaitedUS Wait `json:"waited_us"`
	HeldUS   Wait `json:"held_us"` // in the critical section, of sold requests
	// DriverCPUUSPerRequest is what the load driver used of the CPU in µs. It is 0 if that is not known, or if the row is
	// judged only.
	DriverCPUUSPerRequest float64            `json:"driver_cpu_us_per_request"`
	ReplicaShares         map[string]float64 `json:"replica_shares"` // of the sales
	// Faults says what came of each fault scenario that was played, in words.
	Faults map[string]string `json:"faults,omitempty"`
	// Windows shows critical sections around the first findings, of the first round that has any, or else from the middle
	// of the first round.
	Windows []timeline.Window `json:"windows,omitempty"`

	Rounds []Cell `json:"rounds"`
}

// Cell is one run of a row.
type Cell struct {
	Round int `json:"round"` // from 1

	verify.Verdict

	Seed            uint64           `json:"seed"`
	ElapsedS        float64          `json:"elapsed_s"`
	GoodputPerS     float64          `json:"goodput_per_s"`
	ThroughputPerS  float64          `json:"throughput_per_s"`
	LatencyMS       Latency          `json:"latency_ms"`
	RequestsPlanned int              `json:"requests_planned"`
	Dropped         int              `json:"dropped"`
	SendLagMS       *Lag             `json:"send_lag_ms,omitempty"`
	MySQLStatements int64            `json:"mysql_statements"`
	RedisCommands   int64            `json:"redis_commands"`
	DriverCPUNS     int64            `json:"driver_cpu_ns"`
	CPUNS           map[string]int64 `json:"cpu_ns,omitempty"` // of each part
	Bounded         string           `json:"bounded,omitempty"`
	// ShareOfNoop is nil without a baseline in the same round.
	ShareOfNoop *float64 `json:"share_of_noop,omitempty"`
}

// Latency is a distribution in milliseconds. Percentiles are nearest ranks, and 0 if they are not known (see known).
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50,omitempty"`
	P90  float64 `json:"p90,omitempty"`
	P95  float64 `json:"p95,omitempty"`
	P99  float64 `json:"p99,omitempty"`
	P999 float64 `json:"p999,omitempty"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// Lag is how much later than intended an open loop sent its requests, in milliseconds. Latencies include it.
type Lag struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Wait is a distribution in microseconds.
type Wait struct {
	Mean float64 `json:"mean"`
	P99  float64 `json:"p99,omitempty"`
	Max  float64 `json:"max"`
}

// Ranked reports whether the row takes part in the comparison of speed. Rows with restocks do not: units are put back
// at fixed intervals, so a slower strategy gets more units to sell. Nor do rows that are judged only or whose load was
// short, or controls, some of which are right until the stock is sold out.
func (r *Row) Ranked() bool {
	return r.Result == verify.Correct && r.Claim == verify.ClaimCorrect && !r.Control && r.Restock == 0 &&
		!r.JudgedOnly && !r.Short
}

// load is the workload as rows are grouped by it.
func (r *Row) load() history.Workload { return r.Key().Workload }

// Err returns the problems of the report as an error. It is nil if every claim held and every control was caught.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.Problems, "\n"))
}

// WriteJSON writes the whole report.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// ReadJSON reads what WriteJSON wrote. A report of another schema is an error.
func ReadJSON(in io.Reader) (*Report, error) {
	var r Report
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("read report: schema is %q, want %q", r.Schema, Schema)
	}
	return &r, nil
}

// RequestOutcomes lists all outcomes of a request.
var RequestOutcomes = []history.Outcome{
	history.Sold, history.SoldOut, history.Busy, history.Rejected, history.Unknown,
}
