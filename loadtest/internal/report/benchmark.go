package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteBenchmark writes a line a round in Go's benchmark format (golang.org/design/14313-benchmark-format), so that
// benchstat can compare two files. ns/op is the time of the round over its requests, the inverse of its speed. The lines of
// wrong strategies say so, as comments between them.
func (r *Report) WriteBenchmark(w io.Writer) error {
	out := bufio.NewWriter(w)
	if r.Environment.Arch != "" {
		fmt.Fprintf(out, "goarch: %s\n", r.Environment.Arch)
	}
	fmt.Fprint(out, "pkg: stock/loadtest\n")
	if r.Environment.CPU != "" {
		fmt.Fprintf(out, "cpu: %s\n", r.Environment.CPU)
	}
	fmt.Fprint(out, "Unit goodput/s better=higher\nUnit req/s better=higher\n\n")
	for _, row := range r.Rows {
		name := row.benchmark()
		for _, round := range row.Rounds {
			if round.Requests == 0 || round.ElapsedS == 0 {
				continue
			}
			if !row.Baseline && row.Claim != "" && round.Result != "correct" {
				fmt.Fprintf(out, "# the next line is of a round that is %s\n", round.Result)
			}
			l := round.LatencyMS
			fmt.Fprintf(out, "%s %d %.0f ns/op %g goodput/s %g req/s %g mean-ms %g p50-ms %g p99-ms %g max-ms\n",
				name, round.Requests, round.ElapsedS*1e9/float64(round.Requests), round.GoodputPerS, round.ThroughputPerS,
				l.Mean, l.P50, l.P99, l.Max)
		}
	}
	return out.Flush()
}

// benchmark names the row as Go names a sub-benchmark.
func (r *Row) benchmark() string {
	parts := []string{"BenchmarkDeduct", "strategy=" + r.Strategy, "workload=" + r.Workload.Name, "store=" + r.Store,
		fmt.Sprintf("replicas=%d", r.Replicas)}
	if r.Users > 0 {
		parts = append(parts, fmt.Sprintf("users=%d", r.Users))
	}
	if r.Rate > 0 {
		parts = append(parts, fmt.Sprintf("rate=%g", r.Rate))
	}
	if r.HoldMS > 0 {
		parts = append(parts, fmt.Sprintf("hold=%dms", r.HoldMS))
	}
	if r.Items() > 1 || r.Sweep == axisGoods {
		parts = append(parts, fmt.Sprintf("goods=%d", r.Items()))
	}
	if r.Skew != "" {
		parts = append(parts, "skew="+r.Skew)
	}
	if r.Counts != "" {
		parts = append(parts, "counts="+r.Counts)
	}
	if r.Restock > 0 {
		parts = append(parts, fmt.Sprintf("restock=%d", r.Restock))
	}
	return strings.Join(strings.Fields(strings.Join(parts, "/")), "_") // a blank would end the name
}
