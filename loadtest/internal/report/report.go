// Package report turns judged runs into one comparison of strategies, and writes it for people and for other programs.
//
//	b := report.NewBuilder(environment)      // facts about the machine: LocalEnvironment, and the caller's own
//	b.Add(h, verify.Judge(h))                // every run, as it ends; the history is not kept
//	r := b.Report()                          // at any time, also after an interruption
//
//	r.WriteText(os.Stdout, colour)           // for the terminal
//	r.WriteMarkdown(w)                       // the wide table with every column
//	r.WriteCSV(w)                            // every figure, a line a row
//	r.WriteBenchmark(w)                      // Go benchmark lines, a line a round, for benchstat
//	r.WriteJSON(w); r, err = ReadJSON(rd)    // all of it
//	r.Err()                                  // nil where every claim held and no control came out clean
//
//	Compare(before, after).WriteText(w)      // as benchstat does
//
// # Units
//
// Counts (requests, units, outcomes, statements) are sums over the rounds of a row. Rates are medians over its rounds.
// Latencies are of the requests of all its rounds together. Figures of each round are in Rounds.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// Schema names the layout of the JSON. Fields may be added under the same name; none changes its meaning.
const Schema = "stock-lab/1"

// Report is one run of the lab.
type Report struct {
	Schema      string      `json:"schema"`
	Environment Environment `json:"environment"`
	ClaimsHeld  bool        `json:"claims_held"` // every strategy did what it promises, for better or worse
	// Inconclusive says that a control came out clean: a lab that misses the known bugs clears nobody.
	Inconclusive bool     `json:"inconclusive"`
	Problems     []string `json:"problems"` // each claim that did not hold, each control that came out clean
	Rows         []*Row   `json:"rows"`     // by workload; in it, ranked ones first, the fastest on top
	Sweep        *Sweep   `json:"sweep,omitempty"`
}

// Row is one strategy under one workload.
type Row struct {
	Strategy string `json:"strategy"`
	Store    string `json:"store"`
	Replicas int    `json:"replicas"`
	history.Workload
	Sweep     string `json:"sweep,omitempty"` // what varies: users, hold, goods or replicas
	Claim     string `json:"claim"`           // correct, loses-updates, oversells, sells-nothing
	Exclusive bool   `json:"exclusive"`       // also claims that critical sections never overlap
	Control   bool   `json:"control"`         // wrong on purpose
	Baseline  bool   `json:"baseline"`        // does nothing: what the way to a strategy costs
	ClaimHeld bool   `json:"claim_held"`
	Untested  bool   `json:"untested,omitempty"` // at this value of a sweep nothing could race, so the claim is not checked
	Bounded   string `json:"bounded,omitempty"`  // why fewer requests were sent than planned

	verify.Verdict // sums over the rounds

	Stock           int64 `json:"stock"` // units before each round (the first one's, should they differ)
	RequestsPlanned int   `json:"requests_planned"`
	RequestsSent    int   `json:"requests_sent"`
	Dropped         int   `json:"dropped"`               // open loop: not sent, no client was free
	SendLagMS       *Lag  `json:"send_lag_ms,omitempty"` // open loop only

	GoodputPerS     float64   `json:"goodput_per_s"`              // units rightly sold
	GoodputInterval *Interval `json:"goodput_interval,omitempty"` // 95 %; nil for a single round, or where a round had none
	ThroughputPerS  float64   `json:"throughput_per_s"`           // requests answered as sold or sold out
	// ShareOfNoop compares goodput to what the baseline would have sold with the same demand and stock: 1 is a service
	// whose bookkeeping costs nothing. Median over the rounds; nil without a baseline.
	ShareOfNoop *float64 `json:"share_of_noop"`
	// Relative is nil for rows that are not ranked: wrong ones, controls, the baseline, and those with restocks.
	Relative *Relative `json:"relative"`

	LatencyMS       Latency `json:"latency_ms"` // from the (intended) sending to the answer, whatever it was
	AttemptsPerSale float64 `json:"attempts_per_sale"`
	// All statements, by the servers' own count, over the requests that were answered as sold or sold out.
	MySQLStatementsPerRequest float64 `json:"mysql_statements_per_request"`
	RedisCommandsPerRequest   float64 `json:"redis_commands_per_request"`
	// The same statements over the sold requests alone: what a sale costs together with the refusals around it.
	MySQLStatementsPerSale float64            `json:"mysql_statements_per_sale"`
	RedisCommandsPerSale   float64            `json:"redis_commands_per_sale"`
	WaitedUS               Wait               `json:"waited_us"` // of sold requests, for the lock
	HeldUS                 Wait               `json:"held_us"`   // of sold requests, in the critical section
	ReplicaShares          map[string]float64 `json:"replica_shares"`

	Rounds []Round `json:"rounds"`
}

// Round is one run of a row, raw.
type Round struct {
	Round int `json:"round"` // from 1

	verify.Verdict

	Seed            uint64  `json:"seed"`
	ElapsedS        float64 `json:"elapsed_s"`
	GoodputPerS     float64 `json:"goodput_per_s"`
	ThroughputPerS  float64 `json:"throughput_per_s"`
	LatencyMS       Latency `json:"latency_ms"`
	RequestsPlanned int     `json:"requests_planned"`
	Dropped         int     `json:"dropped"`
	SendLagMS       *Lag    `json:"send_lag_ms,omitempty"`
	MySQLStatements int64   `json:"mysql_statements"`
	RedisCommands   int64   `json:"redis_commands"`
	Bounded         string  `json:"bounded,omitempty"`
}

// Latency is a distribution, in milliseconds. Percentiles are by nearest rank, and at most 0.05 % off (see histogram). The
// others are exact.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// Lag is how much later than intended an open loop sent its requests, in milliseconds. Latencies include it.
type Lag struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Wait is a distribution, in microseconds. Its percentile is as exact as those of Latency.
type Wait struct {
	Mean float64 `json:"mean"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Interval is a 95 % confidence interval: Student's t over the logarithms of the rounds' figures.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Relative compares a row to the fastest correct strategy with the same workload, load and number of replicas. Rounds are
// interleaved across strategies, so those of the same number are compared to each other.
type Relative struct {
	// SlowerThanFastestCorrect is how many times slower: the geometric mean over the rounds; 1 for the fastest itself.
	SlowerThanFastestCorrect float64 `json:"slower_than_fastest_correct"`
	// PlusMinus is half the width of its 95 % interval; nil where fewer than two rounds can be compared.
	PlusMinus *float64  `json:"plus_minus"`
	Interval  *Interval `json:"interval"`
	// Tied says that the interval includes 1: the rounds do not tell the two apart.
	Tied bool `json:"tied"`
}

// Ranked says whether the row takes part in the comparison of speed. Units are put back by the clock: the slower a strategy,
// the more it is given to sell, so that goodput with restocks compares nothing.
func (r *Row) Ranked() bool {
	return r.Result == verify.Correct && r.Claim == verify.PromiseCorrect && r.Restock == 0
}

// Label names the row in sentences.
func (r *Row) Label() string {
	parts := []string{r.Strategy, r.Workload.Name, fmt.Sprintf("%d replicas", r.Replicas)}
	if r.Replicas == 1 {
		parts[2] = "1 replica"
	}
	if r.Store != "" && r.Store != "none" {
		parts = append(parts, r.Store)
	}
	if r.Sweep != "" && r.Sweep != axisReplicas {
		parts = append(parts, place(r.Sweep, r.at()))
	}
	return strings.Join(parts, ", ")
}

// key identifies a row, also among those of two reports.
type key struct {
	strategy, store string
	replicas        int
	workload        history.Workload
}

func (r *Row) key() key { return key{r.Strategy, r.Store, r.Replicas, r.load()} }

// load is the workload as rows are grouped by it: a report that does not record the number of items has one.
func (r *Row) load() history.Workload {
	w := r.Workload
	w.Goods = w.Items()
	return w
}

// Err is nil where every claim held and no control came out clean. Otherwise it names the problems.
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

// outcomes are all outcomes, in the order in which they are shown.
var outcomes = []history.Outcome{history.Sold, history.SoldOut, history.Busy, history.Rejected, history.Unknown}
