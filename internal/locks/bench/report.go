package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"stock/internal/stats"
)

// report holds the results of a run.
type report struct {
	Redis    string        `json:"redis"`
	Go       string        `json:"go"`
	CPUs     int           `json:"cpus"`
	Seed     uint64        `json:"seed"`
	Rounds   int           `json:"rounds"`
	Unit     time.Duration `json:"time_ns"`
	Rows     []row         `json:"rows"`
	Idle     *idle         `json:"idle,omitempty"`
	Verdicts []verdict     `json:"verdicts"`
	Samples  samples       `json:"samples"`
}

// row is one lock in one case, over the rounds.
type row struct {
	Case     string                   `json:"case"`
	Lock     string                   `json:"lock"`
	Figures  map[string]stats.Summary `json:"figures"`
	Unserved int                      `json:"unserved"`
	Failures int                      `json:"failures"`
	Broken   int                      `json:"violations"`
}

// fill computes the rows and the verdicts from the samples.
func (r *report) fill() {
	for _, c := range cases {
		for _, s := range subjects {
			line := row{Case: c.Name, Lock: s.Name, Figures: map[string]stats.Summary{}}
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
				r.Rows = append(r.Rows, line)
			}
		}
	}
	r.Verdicts = judge(r.Samples, r.Idle)
}

// violations counts how often two contenders held a lock at once.
func (r *report) violations() (total int) {
	for _, row := range r.Rows {
		total += row.Broken
	}
	return total
}

func (r *report) conditions() string {
	const format = "%s without persistence, %s, %d cores for Redis and all clients; %d rounds, cells of %v and up, seed %d"
	return fmt.Sprintf(format, r.Redis, r.Go, r.CPUs, r.Rounds, r.Unit, r.Seed)
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
	last := ""
	for _, row := range r.Rows {
		columns := caseNamed(row.Case).metrics()
		if row.Case != last {
			last = row.Case
			fmt.Fprintf(table, "\n%s", last)
			for _, m := range columns {
				fmt.Fprintf(table, "\t%s", m.Name)
			}
			fmt.Fprintln(table)
		}
		fmt.Fprintf(table, "  %s", row.Lock)
		for _, m := range columns {
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
	table.Flush()
}

// writeNotes explains the columns and the settings, and reports failures and idle leases.
func (r *report) writeNotes(w io.Writer) {
	fmt.Fprintf(w, `
median µs, 99 %% µs: one lock and unlock; the locks take turns, so that a disturbance affects all of them
commands, trips: sent by clients per lock, and in how many round trips; executed: by Redis, including those of scripts
fewest/most: locks of the contenders; process: the process with the fewest/the mean process; µs: processor time per lock
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
	if i := r.Idle; i != nil {
		fmt.Fprintf(w, "\n%d idle leases of %v, renewed for %v: %.1f %% of a core, and %.1f %% of Redis; ",
			i.Leases, i.Lease, i.Time, 100*i.CPU, 100*i.RedisCPU)
		fmt.Fprintf(w, "%d commands in %d round trips\n", i.Commands, i.Trips)
	}
}

// writeMarkdown writes a table of all cases and locks, and a table of the targets.
func (r *report) writeMarkdown(w io.Writer) {
	locks := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool {
		return !slices.ContainsFunc(r.Rows, func(row row) bool { return row.Lock == s.Name })
	})
	fmt.Fprintf(w, "%s.\n\n", r.conditions())
	fmt.Fprint(w, "Each cell: **locks per second**, commands sent per lock, longest wait. "+
		"Uncontended: **the time of a lock and unlock**, commands, and the 99th percentile of the times. "+
		"Medians over the rounds, the first with the farther end of its 95 % interval.\n\n| case |")
	for _, s := range locks {
		fmt.Fprintf(w, " `%s` |", s.Name)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(locks)))
	for _, c := range cases {
		if !slices.ContainsFunc(r.Rows, func(row row) bool { return row.Case == c.Name }) {
			continue
		}
		fmt.Fprintf(w, "| %s |", c.Name)
		for _, s := range locks {
			for _, row := range r.Rows {
				if row.Case == c.Name && row.Lock == s.Name {
					fmt.Fprintf(w, " %s |", row.markdown(c.alternate))
				}
			}
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
		slow := stats.Format(r.Figures[p99Took.Name].Median)
		return fmt.Sprintf("**%s** µs<br>%s commands<br>%s µs", r.Figures[median.Name], sent, slow)
	}
	wait := stats.Format(r.Figures[longest.Name].Median)
	return fmt.Sprintf("**%s**<br>%s commands<br>%s ms", r.Figures[rate.Name], sent, wait)
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
