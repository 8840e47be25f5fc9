package main

import (
	"fmt"
	"runtime"
	"strings"

	"stock/internal/stats"
)

// cell is a case with one lock.
type cell struct{ benchCase, lock string }

// results are the samples of all rounds.
type results map[cell][]sample

// table returns a table of all cases and locks in Markdown.
func (r results) table(o options, redis string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s without persistence, %s, %d cores for Redis and all clients; %d rounds, cells of %v and up, "+
		"seed %d.\n\n", redis, runtime.Version(), runtime.NumCPU(), o.rounds, o.unit, o.seed)
	b.WriteString("Each cell: **locks per second**, commands sent per lock, longest wait. " +
		"Medians over the rounds, the first with the farther end of its 95 % interval.\n\n| case |")
	for _, s := range o.subjects {
		fmt.Fprintf(&b, " `%s` |", s.name)
	}
	fmt.Fprintf(&b, "\n| --- |%s\n", strings.Repeat(" --- |", len(o.subjects)))
	for _, c := range o.cases {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, s := range o.subjects {
			of := func(value func(sample) float64) stats.Summary { return r.summary(cell{c.name, s.name}, value) }
			fmt.Fprintf(&b, " **%s**<br>%s<br>%s ms |",
				of(func(s sample) float64 { return s.rate }),
				stats.Format(of(func(s sample) float64 { return s.commands }).Median),
				stats.Format(of(func(s sample) float64 { return s.longest.Seconds() * 1000 }).Median))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// summary summarizes a figure of a cell over the rounds.
func (r results) summary(c cell, of func(sample) float64) stats.Summary {
	var values []float64
	for _, s := range r[c] {
		values = append(values, of(s))
	}
	return stats.Summarize(values)
}
