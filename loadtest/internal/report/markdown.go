package report

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// column is a column of the wide table.
type column struct {
	name string
	text func(*Row) string
}

// columns are those of the Markdown table.
var columns = []column{
	{"strategy", func(r *Row) string { return "`" + r.Strategy + "`" }},
	{"store", func(r *Row) string { return r.Store }},
	{"replicas", func(r *Row) string { return strconv.Itoa(r.Replicas) }},
	{"verdict", func(r *Row) string {
		return r.verdict()
	}},
	{"claim", func(r *Row) string { return r.Claim }},
	{"held", func(r *Row) string {
		switch {
		case r.ClaimHeld:
			return "✓"
		case r.Untested:
			return "untested"
		}
		return "✗"
	}},
	{"goodput/s", func(r *Row) string { return grouped(r.GoodputPerS) }},
	{"95 %", func(r *Row) string {
		if r.GoodputInterval == nil {
			return ""
		}
		return grouped(r.GoodputInterval.Low) + " – " + grouped(r.GoodputInterval.High)
	}},
	{"throughput/s", func(r *Row) string { return grouped(r.ThroughputPerS) }},
	{"share of noop", func(r *Row) string { return share(r.ShareOfNoop) }},
	{"vs fastest correct", func(r *Row) string { return r.Relative.String() }},
	{"average ms", func(r *Row) string { return figure(r.LatencyMS.Mean) }},
	{"median", func(r *Row) string { return figure(r.LatencyMS.P50) }},
	{"90 %", func(r *Row) string { return figure(r.LatencyMS.P90) }},
	{"95 %", func(r *Row) string { return figure(r.LatencyMS.P95) }},
	{"99 %", func(r *Row) string { return figure(r.LatencyMS.P99) }},
	{"99.9 %", func(r *Row) string { return figure(r.LatencyMS.P999) }},
	{"min", func(r *Row) string { return figure(r.LatencyMS.Min) }},
	{"max", func(r *Row) string { return figure(r.LatencyMS.Max) }},
	{"requests", func(r *Row) string { return strconv.Itoa(r.RequestsSent) }},
	{"sold", outcome(history.Sold)},
	{"sold out", outcome(history.SoldOut)},
	{"busy", outcome(history.Busy)},
	{"rejected", outcome(history.Rejected)},
	{"unknown", outcome(history.Unknown)},
	{"initial", func(r *Row) string { return count(r.Initial) }},
	{"final", func(r *Row) string { return count(r.Final) }},
	{"units sold", func(r *Row) string { return count(r.Sold) }},
	{"lost", func(r *Row) string { return count(r.LostUpdates) }},
	{"oversold", func(r *Row) string { return count(r.Oversold) }},
	{"leaked", func(r *Row) string { return count(r.Leaked) }},
	{"undersold", func(r *Row) string { return count(r.Undersold) }},
	{"duplicates", func(r *Row) string { return count(r.Duplicates) }},
	{"ledger gaps", func(r *Row) string { return count(r.LedgerGaps) }},
	{"replays", func(r *Row) string { return count(r.Replays) }},
	{"unlike first", func(r *Row) string { return count(r.Unlike) }},
	{"overlaps", func(r *Row) string { return count(r.Overlaps) }},
	{"linearizable", func(r *Row) string { return r.linearizable() }},
	{"attempts/sale", func(r *Row) string { return figure(r.AttemptsPerSale) }},
	{"SQL/request", func(r *Row) string { return figure(r.MySQLStatementsPerRequest) }},
	{"Redis/request", func(r *Row) string { return figure(r.RedisCommandsPerRequest) }},
	{"lock wait µs", func(r *Row) string { return figure(r.WaitedUS.Mean) }},
	{"99 %", func(r *Row) string { return figure(r.WaitedUS.P99) }},
	{"longest", func(r *Row) string { return figure(r.WaitedUS.Max) }},
	{"replicas' shares", func(r *Row) string { return r.shares() }},
}

func outcome(o history.Outcome) func(*Row) string {
	return func(r *Row) string { return strconv.Itoa(r.Outcomes[o]) }
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

func (r *Row) linearizable() string {
	if r.Linearizable == nil {
		return "undecided"
	}
	return strconv.FormatBool(*r.Linearizable)
}

// shares lists what part of the sales each replica made.
func (r *Row) shares() string {
	var parts []string
	for _, replica := range slices.Sorted(maps.Keys(r.ReplicaShares)) {
		parts = append(parts, fmt.Sprintf("%s %.0f %%", cmp.Or(replica, "?"), 100*r.ReplicaShares[replica]))
	}
	return strings.Join(parts, ", ")
}

// WriteMarkdown writes the wide tables, the evidence and the environment.
func (r *Report) WriteMarkdown(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, "# Which strategy keeps the books\n\n")
	if len(r.Problems) == 0 {
		fmt.Fprintf(out, "%s\n", r.success())
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(out, "- **%s**\n", escape(problem))
	}
	if r.Sweep != nil {
		r.Sweep.writeMarkdown(out)
	}
	for _, rows := range r.groups() {
		fmt.Fprintf(out, "\n## %s\n\n|", title(rows))
		for _, c := range columns {
			fmt.Fprintf(out, " %s |", c.name)
		}
		fmt.Fprintf(out, "\n|%s\n", strings.Repeat(" --- |", len(columns)))
		for _, row := range rows {
			out.WriteString("|")
			for _, c := range columns {
				fmt.Fprintf(out, " %s |", escape(c.text(row)))
			}
			out.WriteString("\n")
		}
	}
	fmt.Fprint(out, "\nCounts are sums over the rounds, rates are medians over them, latencies are of all requests together, in ms.\n")

	var evidence strings.Builder
	for _, row := range r.Rows {
		if row.Bounded != "" {
			fmt.Fprintf(&evidence, "- %s: bounded, %s\n", row.Label(), escape(row.Bounded))
		}
		if late := row.late(); late != "" {
			fmt.Fprintf(&evidence, "- %s: %s\n", row.Label(), late)
		}
		for _, e := range row.told() {
			fmt.Fprintf(&evidence, "- %s: %s\n", row.Label(), escape(e))
		}
	}
	if evidence.Len() > 0 {
		fmt.Fprintf(out, "\n## Evidence\n\n%s", evidence.String())
	}
	fmt.Fprint(out, "\n## Environment\n\n")
	for _, line := range r.Environment.lines() {
		fmt.Fprintf(out, "- %s\n", escape(line))
	}
	return out.Flush()
}

// escape keeps text from ending a table's cell.
func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// WriteCSV writes every figure of every row, under the names of the JSON.
func (r *Report) WriteCSV(w io.Writer) error {
	type field struct {
		name  string
		value any
	}
	fields := func(row *Row) []field {
		all := []field{
			{"strategy", row.Strategy}, {"workload", row.Workload.Name}, {"store", row.Store}, {"replicas", row.Replicas},
			{"users", row.Users}, {"rate", row.Rate}, {"hold_ms", row.HoldMS}, {"goods", row.Goods},
			{"skew", row.Skew}, {"counts", row.Counts}, {"restock", row.Restock}, {"sweep", row.Sweep}, {"claim", row.Claim},
			{"exclusive", row.Exclusive}, {"control", row.Control}, {"baseline", row.Baseline},
			{"verdict", row.Result}, {"claim_held", row.ClaimHeld}, {"untested", row.Untested}, {"rounds", len(row.Rounds)}, {"bounded", row.Bounded},
			{"stock", row.Stock}, {"requests_planned", row.RequestsPlanned}, {"requests_sent", row.RequestsSent}, {"dropped", row.Dropped},
			{"initial", row.Initial}, {"final", row.Final}, {"sold", row.Sold}, {"unknown_units", row.UnknownUnits},
			{"restocked", row.Restocked}, {"covered", row.Covered}, {"good", row.Good},
			{"lost_updates", row.LostUpdates}, {"oversold", row.Oversold}, {"leaked", row.Leaked}, {"undersold", row.Undersold},
			{"turned_away", row.TurnedAway}, {"contended", row.Contended},
			{"duplicates", row.Duplicates},
			{"ledger_gaps", row.LedgerGaps}, {"replays", row.Replays}, {"unlike_first", row.Unlike}, {"overlaps", row.Overlaps}, {"linearizable", row.linearizable()},
			{"demand_exceeded", row.DemandExceeded},
		}
		for _, o := range outcomes {
			all = append(all, field{"outcome_" + string(o), row.Outcomes[o]})
		}
		interval := Interval{}
		if row.GoodputInterval != nil {
			interval = *row.GoodputInterval
		}
		all = append(all, field{"goodput_per_s", row.GoodputPerS}, field{"goodput_low", positive(interval.Low)},
			field{"goodput_high", positive(interval.High)}, field{"throughput_per_s", row.ThroughputPerS})
		var slower, plusMinus, shareOfNoop, meanLag, maxLag any = "", "", "", "", ""
		if row.SendLagMS != nil {
			meanLag, maxLag = row.SendLagMS.Mean, row.SendLagMS.Max
		}
		if row.ShareOfNoop != nil {
			shareOfNoop = *row.ShareOfNoop
		}
		if row.Relative != nil {
			slower = row.Relative.SlowerThanFastestCorrect
			if row.Relative.PlusMinus != nil {
				plusMinus = *row.Relative.PlusMinus
			}
		}
		l := row.LatencyMS
		return append(all, field{"share_of_noop", shareOfNoop}, field{"slower_than_fastest_correct", slower}, field{"plus_minus", plusMinus},
			field{"latency_ms_mean", l.Mean}, field{"latency_ms_p50", l.P50}, field{"latency_ms_p90", l.P90}, field{"latency_ms_p95", l.P95},
			field{"latency_ms_p99", l.P99}, field{"latency_ms_p999", l.P999}, field{"latency_ms_min", l.Min}, field{"latency_ms_max", l.Max},
			field{"send_lag_ms_mean", meanLag}, field{"send_lag_ms_max", maxLag}, field{"attempts_per_sale", row.AttemptsPerSale}, field{"mysql_statements_per_request", row.MySQLStatementsPerRequest},
			field{"redis_commands_per_request", row.RedisCommandsPerRequest},
			field{"waited_us_mean", row.WaitedUS.Mean}, field{"waited_us_p99", row.WaitedUS.P99}, field{"waited_us_max", row.WaitedUS.Max},
			field{"held_us_mean", row.HeldUS.Mean}, field{"held_us_p99", row.HeldUS.P99}, field{"held_us_max", row.HeldUS.Max},
			field{"replica_shares", row.shares()}, field{"evidence", strings.Join(row.Evidence, "; ")})
	}

	out := csv.NewWriter(w)
	var head []string
	for _, f := range fields(&Row{Verdict: verify.Verdict{}}) {
		head = append(head, f.name)
	}
	lines := [][]string{head}
	for _, row := range r.Rows {
		var line []string
		for _, f := range fields(row) {
			line = append(line, fmt.Sprint(f.value))
		}
		lines = append(lines, line)
	}
	return out.WriteAll(lines)
}

// positive leaves out what is not there.
func positive(v float64) any {
	if v == 0 {
		return ""
	}
	return v
}
