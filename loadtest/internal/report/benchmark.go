package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// WriteBenchmark writes a line per round in Go's benchmark format (golang.org/design/14313-benchmark-format), so that
// benchstat can compare two files. ns/op is the time of the round divided by its requests. A comment precedes the line
// of a round that is not correct.
func (r *Report) WriteBenchmark(w io.Writer) error {
	out := bufio.NewWriter(w)
	if r.Environment.Arch != "" {
		fmt.Fprintf(out, "goarch: %s\n", r.Environment.Arch)
	}
	fmt.Fprint(out, "pkg: stock/loadtest\n")
	if r.Environment.CPU != "" {
		fmt.Fprintf(out, "cpu: %s\n", r.Environment.CPU)
	}
	for _, m := range measures {
		if m.better != "" {
			fmt.Fprintf(out, "Unit %s better=%s\n", m.unit, m.better)
		}
	}
	fmt.Fprintln(out)
	for _, row := range r.Rows {
		if row.JudgedOnly {
			continue
		}
		for _, round := range row.Rounds {
			if round.Requests == 0 || round.ElapsedS == 0 {
				continue
			}
			if !row.Baseline && row.Claim != "" && round.Result != verify.Correct {
				fmt.Fprintf(out, "# the next line is of a round that is %s\n", round.Result)
			}
			fmt.Fprintf(out, "%s %d %.0f ns/op", row.benchmark(), round.Requests, round.ElapsedS*1e9/float64(round.Requests))
			for _, m := range measures {
				if !m.lacks(round) {
					fmt.Fprintf(out, " %g %s", m.round(round), m.unit)
				}
			}
			fmt.Fprintln(out)
		}
	}
	return out.Flush()
}

// benchmark names the row as Go names a sub-benchmark.
func (r *Row) benchmark() string {
	parts := []string{
		"BenchmarkDeduct", "strategy=" + r.Strategy, "workload=" + r.Workload.Name, "store=" + r.Store,
		fmt.Sprintf("replicas=%d", r.Replicas),
	}
	add := func(there bool, format string, value any) {
		if there {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add(r.Users > 0, "users=%d", r.Users)
	add(r.Rate > 0, "rate=%g", r.Rate)
	add(r.HoldMS > 0, "hold=%dms", r.HoldMS)
	add(r.Items() > 1 || r.Sweep == history.AxisGoods, "goods=%d", r.Items())
	add(r.Skew != "", "skew=%s", r.Skew)
	add(r.Counts != "", "counts=%s", r.Counts)
	add(r.Restock > 0, "restock=%d", r.Restock)
	return strings.Join(strings.Fields(strings.Join(parts, "/")), "_") // the name must not contain spaces
}
