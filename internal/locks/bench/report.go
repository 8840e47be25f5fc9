package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"stock/internal/stats"
)

// report holds the results of a run.
type report struct {
	Redis    string // its version
	Seed     uint64
	Rounds   int
	Unit     time.Duration
	Samples  samples
	Idle     *idle
	Verdicts []verdict
}

// row is one lock in one case, over the rounds.
type row struct {
	Lock                       string
	Figures                    map[string]stats.Summary
	Unserved, Failures, Broken int
}

// rows returns a row for each lock that was run in a case.
func (r *report) rows(c benchCase) (rows []row) {
	for _, s := range subjects {
		line := row{Lock: s.Name, Figures: map[string]stats.Summary{}}
		for _, m := range c.metrics() {
			if summary, ok := r.Samples.summary(m, c.Name, s.Name); ok {
				line.Figures[m.Name] = summary
			}
		}
		for _, sample := range r.Samples {
			if sample.Case == c.Name && sample.Lock == s.Name {
				line.Unserved += sample.Unserved
				line.Failures += sample.Failures
				line.Broken += sample.Broken
			}
		}
		if len(line.Figures) > 0 {
			rows = append(rows, line)
		}
	}
	return rows
}

// violations counts how often two contenders held a lock at once.
func (r *report) violations() (total int) {
	for _, s := range r.Samples {
		total += s.Broken
	}
	return total
}

func (r *report) conditions() string {
	const format = "%s without persistence, %s, %d cores for Redis and all clients; %d rounds, cells of %v and up, seed %d"
	return fmt.Sprintf(format, r.Redis, runtime.Version(), runtime.NumCPU(), r.Rounds, r.Unit, r.Seed)
}

// writeText writes the tables for a terminal.
func (r *report) writeText(w io.Writer) {
	fmt.Fprintf(w, "%s\nmedians over the rounds, and the farther end of their 95 %% interval\n", r.conditions())
	r.writeRows(w)
	r.writeNotes(w)
	if len(r.Verdicts) == 0 {
		return
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, redisQueue+"\twanted\tmeasured\t")
	for _, v := range r.Verdicts {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", v.Case, v.Wanted, v.Measured, v.Outcome)
	}
	table.Flush()
}

// writeRows writes a table for each case.
func (r *report) writeRows(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range cases {
		for i, row := range r.rows(c) {
			if i == 0 {
				fmt.Fprintf(table, "\n%s", c.Name)
				for _, m := range c.metrics() {
					fmt.Fprintf(table, "\t%s", m.Name)
				}
				fmt.Fprintln(table)
			}
			fmt.Fprintf(table, "  %s", row.Lock)
			for _, m := range c.metrics() {
				fmt.Fprintf(table, "\t%s", row.Figures[m.Name])
			}
			if row.Unserved > 0 {
				fmt.Fprintf(table, "\t%d not served", row.Unserved)
			}
			if row.Failures > 0 {
				fmt.Fprintf(table, "\t%d failed", row.Failures)
			}
			if row.Broken > 0 {
				fmt.Fprintf(table, "\tTWO HOLDERS AT ONCE %d ×", row.Broken)
			}
			fmt.Fprintln(table)
		}
	}
	table.Flush()
}

// writeNotes explains the columns and the settings, and reports failures.
func (r *report) writeNotes(w io.Writer) {
	fmt.Fprintf(w, `
median µs, 99 %% µs: one lock and unlock; the locks take turns, so that a disturbance affects all of them
commands, trips: sent by clients per lock, and in how many round trips
fewest/mean: locks of the process with the fewest, divided by the mean of the processes
not served: still waiting %v after the end of the cell, when no contender asked again
`, patience)
	for _, s := range subjects {
		if s.Settings != "" {
			fmt.Fprintf(w, "%s: %s\n", s.Name, s.Settings)
		}
	}
	for _, sample := range r.Samples {
		if sample.Failures > 0 {
			fmt.Fprintf(w, "%s, %s, round %d: %d failed, one of them with: %s\n",
				sample.Lock, sample.Case, sample.Round, sample.Failures, sample.Failure)
		}
	}
}

// writeMarkdown writes a table of all cases and locks, and a table of the targets.
func (r *report) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s.\n\n", r.conditions())
	fmt.Fprint(w, "Each cell: **locks per second**, commands sent per lock, longest wait. "+
		"Uncontended: **the time of a lock and unlock**, commands, and the 99th percentile of the times. "+
		"Medians over the rounds, the first with the farther end of its 95 % interval.\n\n")
	heading := false
	for _, c := range cases {
		rows := r.rows(c)
		if len(rows) == 0 {
			continue
		}
		if !heading {
			heading = true
			fmt.Fprint(w, "| case |")
			for _, row := range rows {
				fmt.Fprintf(w, " `%s` |", row.Lock)
			}
			fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(rows)))
		}
		fmt.Fprintf(w, "| %s |", c.Name)
		for _, row := range rows {
			fmt.Fprintf(w, " %s |", row.markdown(c.alternate))
		}
		fmt.Fprintln(w)
	}
	if len(r.Verdicts) > 0 {
		fmt.Fprintf(w, "\n| `%s` | wanted | measured | |\n| --- | --- | --- | --- |\n", redisQueue)
		for _, v := range r.Verdicts {
			fmt.Fprintf(w, "| %s | %s | %s | %s |\n", v.Case, v.Wanted, v.Measured, v.Outcome)
		}
	}
}

// markdown returns the row's cell of the Markdown table.
func (r row) markdown(alternate bool) string {
	sent := stats.Format(r.Figures[commands.Name].Median)
	if alternate {
		slow := stats.Format(r.Figures[p99.Name].Median)
		return fmt.Sprintf("**%s** µs<br>%s commands<br>%s µs", r.Figures[median.Name], sent, slow)
	}
	wait := stats.Format(r.Figures[longest.Name].Median)
	return fmt.Sprintf("**%s**<br>%s commands<br>%s ms", r.Figures[rate.Name], sent, wait)
}
