package report

import (
	"fmt"
	"math"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// column is a figure of a row, or another fact about it, as tables show it.
type column struct {
	head   string
	show   func(*Row) string
	style  func(*Row) style // on a terminal; nil: plain
	number bool             // aligned right
}

// columns are the columns of a table, in their order. A table leaves out those in which no row has a text. The JSON
// has every figure.
var columns = []column{
	{head: strategyHead, show: func(r *Row) string { return r.Strategy }},
	{head: "verdict", show: (*Row).verdictAndClaim, style: (*Row).verdictStyle},
	{head: "goodput/s", number: true, show: func(r *Row) string {
		return plusMinus(stats.Grouped(r.RatePerS()), r.spread())
	}},
	{head: "× noop", number: true, show: func(r *Row) string {
		return plusMinus(share(r.ShareOfNoop), spread(r.share(), r.ShareInterval))
	}},
	{head: "requests", number: true, show: func(r *Row) string { return stats.Grouped(r.Requests) }},
	{head: "median ms", number: true, show: func(r *Row) string { return latencyText(r.LatencyMS.P50) }},
	{head: "99 % ms", number: true, show: func(r *Row) string { return latencyText(r.LatencyMS.P99) }},
	{head: "commands/sale", number: true, show: (*Row).commandsPerSale},
	cpuColumn("service"), cpuColumn("nginx"), cpuColumn("MySQL"), cpuColumn("Redis"),
	{head: "found", show: (*Row).remark},
}

const strategyHead = "strategy" // of the first column of every table

// cpuColumn shows the CPU time of a part per sale. It is empty if that is less than half a microsecond.
func cpuColumn(part string) column {
	return column{head: part + " µs", number: true, show: func(r *Row) string {
		if us := r.CPUUSPerSale[part]; us >= 0.5 {
			return digits(us)
		}
		return ""
	}}
}

// latencyText is empty for a latency that is not known.
func latencyText(ms float64) string {
	if ms == 0 {
		return ""
	}
	return digits(ms)
}

// measure is a figure of a single round, by which two reports are compared.
type measure struct {
	name    string
	round   func(Cell) float64
	ofNoop  func(Cell) float64 // of noop's round, if it is divided by another figure than round
	latency bool
}

// lacks reports whether a round has no such figure: a latency that is not known is 0.
func (m measure) lacks(round Cell) bool { return m.latency && m.round(round) == 0 }

var measures = []measure{
	{name: "goodput/s", round: func(r Cell) float64 { return r.GoodputPerS }, ofNoop: Cell.possible},
	{name: "throughput/s", round: func(r Cell) float64 { return r.ThroughputPerS }},
	{name: "p50 ms", round: func(r Cell) float64 { return r.LatencyMS.P50 }, latency: true},
	{name: "p99 ms", round: func(r Cell) float64 { return r.LatencyMS.P99 }, latency: true},
}

// verdictAndClaim is the verdict, and the claim if it did not hold.
func (r *Row) verdictAndClaim() string {
	text := r.verdict()
	switch {
	case r.Untested:
		text += " (claim not tested)"
	case !r.ClaimHeld:
		text += " ✗ (claims " + r.Claim + ")"
	}
	return text
}

// commandsPerSale is what the servers of the stores and of most locks did for a sale. Empty: nothing.
func (r *Row) commandsPerSale() string {
	const few = 0.05 // the servers also count what others send, such as pings
	var parts []string
	if r.MySQLStatementsPerSale > few {
		parts = append(parts, digits(r.MySQLStatementsPerSale)+" SQL")
	}
	if r.RedisCommandsPerSale > few {
		parts = append(parts, digits(r.RedisCommandsPerSale)+" Redis")
	}
	return strings.Join(parts, ", ")
}

// plusMinus appends half the width of the interval, if there is one.
func plusMinus(center, spread string) string {
	if spread == "" {
		return center
	}
	return center + " ±" + spread
}

// verdict is the verdict in a table. The baseline is not judged as long as its claim holds.
func (r *Row) verdict() string {
	if r.Baseline && r.ClaimHeld {
		return "baseline"
	}
	return strings.ToUpper(string(r.Result))
}

func (r *Row) verdictStyle() style {
	if r.Baseline && r.ClaimHeld {
		return faint
	}
	return resultStyle(r.Result)
}

func resultStyle(result verify.Result) style {
	switch result {
	case verify.Correct:
		return green
	case verify.Wrong:
		return red
	}
	return yellow
}

// RatePerS is the row's speed: the goodput, or the throughput of the baseline, which sells nothing.
func (r *Row) RatePerS() float64 {
	if r.Baseline {
		return r.ThroughputPerS
	}
	return r.GoodputPerS
}

// spread is half the width of the goodput's interval in percent of the goodput.
func (r *Row) spread() string {
	if r.Baseline {
		return ""
	}
	return spread(r.GoodputPerS, r.GoodputInterval)
}

// spread is empty without an interval, and if so few rounds were made that it is wider than the figure.
func spread(center float64, interval *stats.Interval) string {
	half := halfWidth(center, interval)
	if half > 1 {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 100*half)
}

// halfWidth is half the width of an interval as a part of its center, or infinite if there is no interval.
func halfWidth(center float64, interval *stats.Interval) float64 {
	if interval == nil || center == 0 {
		return math.Inf(1)
	}
	return (interval.High - interval.Low) / 2 / center
}

// remark is the damage that the judge found, or why the row is not ranked.
func (r *Row) remark() string {
	damage := r.Damage()
	switch {
	case damage != "":
		return damage
	case r.Baseline && r.ClaimHeld:
		return "sells nothing"
	case r.Result == verify.Correct && r.Restock > 0:
		return "unranked: restocked"
	case r.Result == verify.Correct && r.Control && r.Claim == verify.ClaimCorrect:
		return "unranked: control"
	case r.Result == verify.Correct && r.Claim != verify.ClaimCorrect:
		return "unranked: " + r.Claim
	}
	return r.LateLoss()
}

// LateLoss says that a late write loses an update, as a fault scenario has shown, or as the strategy claims
// if none was played. It is empty otherwise.
func (r *Row) LateLoss() string {
	switch Effect(r.Faults[lateWrite]) {
	case Unsafe:
		return LateLosesUpdate
	case "", Skipped, Inconclusive:
		if r.LateLosesUpdate {
			return LateLosesUpdate + " (" + ClaimedOnly + ")"
		}
	}
	return ""
}

// Damage lists what the judge found, and the requests that were neither sold nor sold out.
func (r *Row) Damage() string {
	var parts []string
	add := func(what string, n int64) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", what, stats.Grouped(n)))
		}
	}
	add("lost", r.LostUpdates)
	add("oversold", r.Oversold)
	add("leaked", r.Leaked)
	add("set wrong", r.SetWrong)
	add("undersold", r.Undersold)
	add("duplicates", r.Duplicates)
	add("ledger gaps", r.LedgerGaps)
	add("partial orders", r.PartialOrders)
	add("unlike first answers", r.DifferentAnswers)
	add("late confirmations", r.Reservations.LateConfirmations)
	add("reservations that ended twice", r.Reservations.EndedTwice)
	add("reservations that ended early", r.Reservations.EndedEarly)
	add("impossible states", r.Reservations.WrongStates)
	if len(parts) == 0 { // otherwise, overlaps are merely the cause of the above
		add("overlaps", r.Overlaps)
	}
	if len(parts) == 0 && r.Linearizable != nil && !*r.Linearizable {
		parts = append(parts, "not linearizable")
	}
	add("busy", int64(r.Outcomes[history.Busy]))
	add("rejected", int64(r.Outcomes[history.Rejected]))
	add("unknown", int64(r.Outcomes[history.Unknown]))
	return strings.Join(parts, ", ")
}
