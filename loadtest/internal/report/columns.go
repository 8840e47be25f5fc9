package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// column is a figure of a row, or another fact about it, with every place that shows it. In the JSON, they are the
// fields of Row.
type column struct {
	csv   string         // column in the CSV; empty: none
	value func(*Row) any // what the CSV holds

	markdown display
	terminal display

	round    func(Cell) float64 // of a single round, for those below
	unit     string             // in benchmark lines; empty: not there
	better   string             // higher or lower, where benchstat does not know it from the unit
	compared string             // heading in a comparison of two reports; empty: not there
	ofNoop   func(Cell) float64 // of noop's round, where a comparison divides by another figure than round
}

const (
	higher       = "higher"
	strategyHead = "strategy" // of the first column of every table
)

// display is how a table for people shows a column. Without a heading, it does not.
type display struct {
	head   string
	show   func(*Row) string // nil: as in the CSV
	style  func(*Row) style  // on a terminal; nil: plain
	left   bool              // aligned left on a terminal, as words are
	number bool              // aligned right in Markdown
}

func (c column) text(d display, row *Row) string {
	if d.show != nil {
		return d.show(row)
	}
	return fmt.Sprint(c.value(row))
}

// columns are all columns, in the order of the tables. The Markdown has the ten that people read, the CSV every figure.
var columns = []column{
	{
		csv: "strategy", value: func(r *Row) any { return r.Strategy },
		markdown: display{head: strategyHead, show: func(r *Row) string { return "`" + r.Strategy + "`" }},
		terminal: display{head: strategyHead, left: true},
	},
	{csv: "workload", value: func(r *Row) any { return r.Workload.Name }},
	{csv: "store", value: func(r *Row) any { return r.Store }},
	{
		csv: "replicas", value: func(r *Row) any { return r.Replicas },
		terminal: display{head: "repl"},
	},
	{csv: "users", value: func(r *Row) any { return r.Users }},
	{csv: "rate", value: func(r *Row) any { return r.Rate }},
	{csv: "hold_ms", value: func(r *Row) any { return r.HoldMS }},
	{csv: "goods", value: func(r *Row) any { return r.Goods }},
	{csv: "skew", value: func(r *Row) any { return r.Skew }},
	{csv: "counts", value: func(r *Row) any { return r.Counts }},
	{csv: "lines", value: func(r *Row) any { return r.Lines }},
	{csv: "restock", value: func(r *Row) any { return r.Restock }},
	{csv: "sweep", value: func(r *Row) any { return r.Sweep }},

	{
		csv: "verdict", value: func(r *Row) any { return r.Result },
		markdown: display{head: "verdict", show: (*Row).markdownVerdict},
		terminal: display{head: "verdict", show: (*Row).verdict, style: (*Row).verdictStyle, left: true},
	},

	{csv: "claim", value: func(r *Row) any { return r.Claim }},
	{csv: "exclusive", value: func(r *Row) any { return r.Exclusive }},
	{csv: "control", value: func(r *Row) any { return r.Control }},
	{csv: "baseline", value: func(r *Row) any { return r.Baseline }},
	{csv: "judged_only", value: func(r *Row) any { return r.JudgedOnly }},

	{
		csv: "claim_held", value: func(r *Row) any { return r.ClaimHeld },
		terminal: display{head: "held", show: (*Row).held, style: (*Row).heldStyle},
	},
	{csv: "untested", value: func(r *Row) any { return r.Untested }},
	{
		csv: "rounds", value: func(r *Row) any { return len(r.Rounds) },
		terminal: display{head: "n"},
	},
	{csv: "bounded", value: func(r *Row) any { return r.Bounded }},
	{csv: "stock", value: func(r *Row) any { return r.Stock }},
	{csv: "requests_planned", value: func(r *Row) any { return r.RequestsPlanned }},

	{
		csv: "goodput_per_s", value: func(r *Row) any { return r.GoodputPerS },
		markdown: display{head: "goodput/s", number: true, show: func(r *Row) string {
			return plusMinus(stats.Grouped(r.RatePerS()), r.spread())
		}},
		terminal: display{
			head: "goodput/s", show: func(r *Row) string { return stats.Grouped(r.RatePerS()) }, style: (*Row).rateStyle,
		},
		round: func(r Cell) float64 { return r.GoodputPerS },
		unit:  "goodput/s", better: higher, compared: "goodput/s", ofNoop: Cell.possible,
	},
	{
		csv: "goodput_low", value: func(r *Row) any { return end(r.GoodputInterval, lowEnd) },
		terminal: display{head: "±", show: (*Row).spread},
	},
	{csv: "goodput_high", value: func(r *Row) any { return end(r.GoodputInterval, highEnd) }},
	{
		csv: "throughput_per_s", value: func(r *Row) any { return r.ThroughputPerS },
		round: func(r Cell) float64 { return r.ThroughputPerS },
		unit:  "req/s", better: higher, compared: "throughput/s",
	},
	{
		csv: "share_of_noop", value: func(r *Row) any { return optional(r.ShareOfNoop) },
		markdown: display{head: "× noop", number: true, show: func(r *Row) string {
			return plusMinus(share(r.ShareOfNoop), spread(r.share(), r.ShareInterval))
		}},
		terminal: display{head: "×noop", show: func(r *Row) string { return share(r.ShareOfNoop) }},
	},
	{
		csv: "share_of_noop_low", value: func(r *Row) any { return end(r.ShareInterval, lowEnd) },
		terminal: display{head: "±", show: func(r *Row) string { return spread(r.share(), r.ShareInterval) }},
	},
	{csv: "share_of_noop_high", value: func(r *Row) any { return end(r.ShareInterval, highEnd) }},
	{
		csv: "slower_than_fastest_correct", value: func(r *Row) any {
			if r.Relative == nil {
				return ""
			}
			return r.Relative.SlowerThanFastestCorrect
		},
		terminal: display{head: "vs fastest", show: func(r *Row) string { return r.Relative.String() }},
	},
	{csv: "plus_minus", value: func(r *Row) any {
		if r.Relative == nil {
			return ""
		}
		return optional(r.Relative.PlusMinus)
	}},

	latencyColumn(func(l Latency) float64 { return l.Mean }, column{
		csv: "latency_ms_mean", unit: "mean-ms",
	}),
	latencyColumn(func(l Latency) float64 { return l.P50 }, column{
		csv: "latency_ms_p50", markdown: display{head: "median ms"}, terminal: display{head: "p50"},
		unit: "p50-ms", compared: "p50 ms",
	}),
	latencyColumn(func(l Latency) float64 { return l.P90 }, column{
		csv: "latency_ms_p90", terminal: display{head: "p90"},
	}),
	latencyColumn(func(l Latency) float64 { return l.P95 }, column{
		csv: "latency_ms_p95", terminal: display{head: "p95"},
	}),
	latencyColumn(func(l Latency) float64 { return l.P99 }, column{
		csv: "latency_ms_p99", markdown: display{head: "99 % ms"}, terminal: display{head: "p99"},
		unit: "p99-ms", compared: "p99 ms",
	}),
	latencyColumn(func(l Latency) float64 { return l.P999 }, column{csv: "latency_ms_p999"}),
	latencyColumn(func(l Latency) float64 { return l.Min }, column{csv: "latency_ms_min"}),
	latencyColumn(func(l Latency) float64 { return l.Max }, column{
		csv: "latency_ms_max", terminal: display{head: "max ms"}, unit: "max-ms",
	}),

	{csv: "requests_sent", value: func(r *Row) any { return r.RequestsSent }},
	{csv: "dropped", value: func(r *Row) any { return r.Dropped }},

	outcomeCount(history.Sold),
	outcomeCount(history.SoldOut),
	outcomeCount(history.BuyerLimit),
	outcomeCount(history.Busy),
	outcomeCount(history.Rejected),
	outcomeCount(history.Unknown),

	{csv: "initial", value: func(r *Row) any { return r.Initial }},
	{csv: "final", value: func(r *Row) any { return r.Final }},
	{csv: "sold", value: func(r *Row) any { return r.Sold }},
	{csv: "unknown_units", value: func(r *Row) any { return r.UnknownUnits }},
	{csv: "restocked", value: func(r *Row) any { return r.Restocked }},
	{csv: "covered", value: func(r *Row) any { return r.Covered }},
	{csv: "good", value: func(r *Row) any { return r.Good }},
	{csv: "lost_updates", value: func(r *Row) any { return r.LostUpdates }},
	{csv: "oversold", value: func(r *Row) any { return r.Oversold }},
	{csv: "leaked", value: func(r *Row) any { return r.Leaked }},
	{csv: "set_wrong", value: func(r *Row) any { return r.SetWrong }},
	{csv: "undersold", value: func(r *Row) any { return r.Undersold }},
	{csv: "turned_away", value: func(r *Row) any { return r.TurnedAway }},
	{csv: "contended", value: func(r *Row) any { return r.Contended }},
	{csv: "duplicates", value: func(r *Row) any { return r.Duplicates }},
	{csv: "ledger_gaps", value: func(r *Row) any { return r.LedgerGaps }},
	{csv: "beyond_limit", value: func(r *Row) any { return r.BeyondLimit }},
	{csv: "refused_within_limit", value: func(r *Row) any { return r.RefusedWithinLimit }},
	{csv: "partial_orders", value: func(r *Row) any { return r.PartialOrders }},
	{csv: "sent_again", value: func(r *Row) any { return r.SentAgain }},
	{csv: "again_in_stock", value: func(r *Row) any { return r.AgainInStock }},
	{csv: "again_elsewhere", value: func(r *Row) any { return r.AgainElsewhere }},
	{csv: "replays", value: func(r *Row) any { return r.Replays }},
	{csv: "unlike_first", value: func(r *Row) any { return r.DifferentAnswers }},
	{csv: "ghost_units", value: func(r *Row) any { return r.Reservations.GhostUnits }},
	{csv: "late_confirmations", value: func(r *Row) any { return r.Reservations.LateConfirmations }},
	{csv: "resold_median_ms", value: func(r *Row) any { return positive(r.Reservations.ResoldMedianMS) }},
	{csv: "resold_p95_ms", value: func(r *Row) any { return positive(r.Reservations.Resold95MS) }},
	{csv: "resold_max_ms", value: func(r *Row) any { return positive(r.Reservations.ResoldLongestMS) }},
	{csv: "overlaps", value: func(r *Row) any { return r.Overlaps }},
	{csv: "linearizable", value: func(r *Row) any { return r.linearizable() }},
	{csv: "demand_exceeded", value: func(r *Row) any { return r.DemandExceeded }},

	{csv: "send_lag_ms_mean", value: func(r *Row) any {
		if r.SendLagMS == nil {
			return ""
		}
		return r.SendLagMS.Mean
	}},
	{csv: "send_lag_ms_max", value: func(r *Row) any {
		if r.SendLagMS == nil {
			return ""
		}
		return r.SendLagMS.Max
	}},
	{csv: "attempts_per_sale", value: func(r *Row) any { return r.AttemptsPerSale }},
	{csv: "mysql_statements_per_request", value: func(r *Row) any { return r.MySQLStatementsPerRequest }},
	{csv: "redis_commands_per_request", value: func(r *Row) any { return r.RedisCommandsPerRequest }},
	{csv: "mysql_statements_per_sale", value: func(r *Row) any { return r.MySQLStatementsPerSale }},
	{csv: "redis_commands_per_sale", value: func(r *Row) any { return r.RedisCommandsPerSale }},
	{markdown: display{head: "commands/sale", number: true, show: (*Row).commandsPerSale}},
	{csv: "waited_us_mean", value: func(r *Row) any { return r.WaitedUS.Mean }},
	{csv: "waited_us_p99", value: func(r *Row) any { return r.WaitedUS.P99 }},
	{csv: "waited_us_max", value: func(r *Row) any { return r.WaitedUS.Max }},
	{csv: "held_us_mean", value: func(r *Row) any { return r.HeldUS.Mean }},
	{csv: "held_us_p99", value: func(r *Row) any { return r.HeldUS.P99 }},
	{csv: "held_us_max", value: func(r *Row) any { return r.HeldUS.Max }},
	{csv: "driver_cpu_us_per_request", value: func(r *Row) any { return positive(r.DriverCPUUSPerRequest) }},
	{csv: "replica_shares", value: func(r *Row) any { return r.shares() }},
	faultColumn("holder-dies", "holder dies", "loses units"),
	faultColumn(lateWrite, "late write", "loses a sale"),
	faultColumn("client-retries", "client sends again", "deducts twice"),
	{csv: "evidence", value: func(r *Row) any { return strings.Join(r.Evidence, "; ") }},
	{terminal: display{head: "found", show: (*Row).remark, style: (*Row).remarkStyle, left: true}},
}

// faultColumn is the outcome of a fault scenario. The Markdown has the text unsafe where it is unsafe.
func faultColumn(scenario, head, unsafe string) column {
	return column{
		csv: strings.ReplaceAll(scenario, "-", "_"), value: func(r *Row) any { return r.Faults[scenario] },
		markdown: display{head: head, show: func(r *Row) string {
			return strings.Replace(r.Faults[scenario], string(Unsafe), "**"+unsafe+"**", 1)
		}},
	}
}

func outcomeCount(outcome history.Outcome) column {
	return column{csv: "outcome_" + string(outcome), value: func(r *Row) any { return r.Outcomes[outcome] }}
}

// latencyColumn completes a column that is read from a Latency.
func latencyColumn(of func(Latency) float64, c column) column {
	c.value = func(r *Row) any { return of(r.LatencyMS) }
	c.markdown.number = true
	c.markdown.show = func(r *Row) string { return digits(of(r.LatencyMS)) }
	c.terminal.show = c.markdown.show
	c.round = func(r Cell) float64 { return of(r.LatencyMS) }
	return c
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

func (r *Row) held() string {
	switch {
	case r.ClaimHeld:
		return "✓"
	case r.Untested:
		return "untested"
	}
	return "✗"
}

func (r *Row) heldStyle() style {
	if r.ClaimHeld {
		return green
	}
	return red
}

// RatePerS is the row's speed: the goodput, or the throughput of the baseline, which sells nothing.
func (r *Row) RatePerS() float64 {
	if r.Baseline {
		return r.ThroughputPerS
	}
	return r.GoodputPerS
}

func (r *Row) rateStyle() style {
	if r.Baseline {
		return faint
	}
	return plain
}

func lowEnd(i *stats.Interval) float64  { return i.Low }
func highEnd(i *stats.Interval) float64 { return i.High }

// end returns an end of the interval, or an empty string if there is no interval.
func end(interval *stats.Interval, of func(*stats.Interval) float64) any {
	if interval == nil {
		return ""
	}
	return of(interval)
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

func (r *Row) linearizable() string {
	if r.Linearizable == nil {
		return "undecided"
	}
	return strconv.FormatBool(*r.Linearizable)
}

// shares lists the share of the sales that each replica made.
func (r *Row) shares() string {
	var parts []string
	for _, replica := range slices.Sorted(maps.Keys(r.ReplicaShares)) {
		parts = append(parts, fmt.Sprintf("%s %.0f %%", cmp.Or(replica, "?"), 100*r.ReplicaShares[replica]))
	}
	return strings.Join(parts, ", ")
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
	case r.Result == verify.Correct && !r.Ranked():
		return "unranked: " + r.Claim
	}
	return r.LateLoss()
}

// LateLoss says that the strategy loses an update if a write comes late, as a fault scenario has shown, or as it claims
// if none was played. It is empty otherwise.
func (r *Row) LateLoss() string {
	const loses = "loses a late write"
	switch {
	case r.Faults[lateWrite] == string(Unsafe):
		return loses
	case r.Faults[lateWrite] == "" && r.LosesLateWrite:
		return loses + " (claimed, not played)"
	}
	return ""
}

func (r *Row) remarkStyle() style {
	if r.Damage() == "" {
		return faint
	}
	return plain
}

// Damage lists what the judge found, and the requests that were neither sold nor sold out.
func (r *Row) Damage() string {
	var parts []string
	add := func(what string, n int64) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", what, stats.Grouped(float64(n))))
		}
	}
	add("lost", r.LostUpdates)
	add("oversold", r.Oversold)
	add("leaked", r.Leaked)
	add("set wrong", r.SetWrong)
	add("undersold", r.Undersold)
	add("duplicates", r.Duplicates)
	add("ledger gaps", r.LedgerGaps)
	add("units beyond buyers' limits", r.BeyondLimit)
	add("refused within the limit", r.RefusedWithinLimit)
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

// optional returns the value, or an empty string if there is none.
func optional(v *float64) any {
	if v == nil {
		return ""
	}
	return *v
}

// positive returns the value, or an empty string for 0, which stands for no value.
func positive(v float64) any {
	if v == 0 {
		return ""
	}
	return v
}
