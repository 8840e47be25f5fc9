package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/page"
	"stock/loadtest/internal/timeline"
	"stock/loadtest/internal/verify"
)

func timelineCommand() *cobra.Command {
	var out, trace string
	cmd := &cobra.Command{
		Use:   "timeline FILE",
		Short: "Show the critical sections of one recorded history",
		Long: `timeline reads one history, such as a file in DIR/history or DIR/faults that run or faults wrote, and writes a
page that shows who was in the critical section and when, what each read and wrote, and where two were inside at the
same time. The page needs no server: open it in a browser.

With --trace it also writes a trace for https://ui.perfetto.dev or chrome://tracing.`,
		Example: `  loadtest timeline out/lab/history/008-none-plenty-2r-round1.jsonl
  loadtest timeline out/lab/faults/late-write-lock-redis-lua-1.jsonl --trace trace.json`,
		Args: exactArgs(1, "timeline needs one FILE, such as out/before/history/001-none-plenty-2r-round1.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeTimeline(args[0], out, trace, cmd.OutOrStdout())
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&out, "out", "timeline.html", "file to write the page to")
	cmd.Flags().StringVar(&trace, "trace", "", "file to write a trace in the Trace Event Format to")
	return cmd
}

// writeTimeline writes the page of a history, and a trace if it has a name.
func writeTimeline(path, out, trace string, stdout io.Writer) error {
	h, err := history.Read(path)
	if err != nil {
		return err
	}
	if h.Run.Reserves {
		return fmt.Errorf("%s is of reservations, which have no critical sections to show", path)
	}
	windows := timeline.Whole(h)
	if len(windows) == 0 {
		return fmt.Errorf("%s: nothing was sold, so there is nothing to show", path)
	}
	v := verify.Judge(h)
	t := page.Timeline{
		Title: "Timeline of " + h.Run.Label(), Windows: windows, Evidence: v.Evidence,
		Lead: fmt.Sprintf("%s: %s. %d requests.", played(h.Run), v.Result, v.Requests),
	}
	err = lab.WriteFile(out, func(w io.Writer) error { return page.WriteTimeline(w, t) })
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "page:", out)
	if trace == "" {
		return nil
	}
	fmt.Fprintln(stdout, "trace:", trace)
	return lab.WriteFile(trace, func(w io.Writer) error { return timeline.WriteTrace(w, windows) })
}

// played says what a history is of: a round under load, or a fault scenario.
func played(run history.Run) string {
	if run.Story != "" {
		return "Fault scenario " + run.Story
	}
	return fmt.Sprintf("Round %d", run.Round)
}
