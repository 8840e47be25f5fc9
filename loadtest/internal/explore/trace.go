package explore

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// columns is the width of a trace on a terminal.
const columns = 150

// WriteTrace writes a trace in columns, one for each actor.
func WriteTrace(w io.Writer, steps []Step) error {
	var actors []string
	column := map[string]int{}
	for _, step := range steps {
		if _, known := column[step.Actor]; !known && step.Actor != "" {
			column[step.Actor] = len(actors)
			actors = append(actors, step.Actor)
		}
	}
	width := columns / max(len(actors), 1)
	lines := []string{headings(actors, width)}
	for _, step := range steps {
		if step.Kind == Passes {
			continue
		}
		if step.Actor == "" {
			lines = append(lines, "-- "+step.text())
			continue
		}
		lines = append(lines, indent(wrap(step.text(), width-3), column[step.Actor]*width)...)
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

func headings(actors []string, width int) string {
	var b strings.Builder
	for _, name := range actors {
		fmt.Fprintf(&b, "%-*s", width, name)
	}
	return strings.TrimRight(b.String(), " ")
}

// text is a step with its reply, in one line.
func (s Step) text() string {
	text := strings.Join(strings.Fields(s.Text), " ")
	switch s.Kind {
	case Executes, Polls:
		return text + reply(s.Reply)
	case Waits:
		return text + "  (waits)"
	case Resumes:
		return "(goes on) " + text + reply(s.Reply)
	case Answers:
		return "=> " + text
	case Strikes:
		return "*** " + text
	}
	return text
}

func reply(text string) string {
	if text == "" {
		return ""
	}
	return "  → " + text
}

func wrap(text string, width int) (lines []string) {
	runes := []rune(text)
	for len(runes) > width {
		at := width
		for i := width; i > width/2; i-- {
			if runes[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, string(runes[:at]))
		runes = []rune("  " + strings.TrimLeft(string(runes[at:]), " "))
	}
	return append(lines, string(runes))
}

func indent(lines []string, by int) []string {
	for i := range lines {
		lines[i] = strings.Repeat(" ", by) + lines[i]
	}
	return lines
}

// Write writes what was found, one line for each fault, and a trace for each kind of damage.
func (r Result) Write(w io.Writer, traces bool) error {
	state := "exhausted"
	if r.Tally.Settled > 0 {
		state = "exhausted but for claims of damage that were proved"
	}
	if r.Random {
		state = "chosen at random"
	} else if !r.Exhausted {
		state = fmt.Sprintf("NOT exhausted: %d beginnings not tried, %d could not be repeated",
			r.Tally.Waiting, r.Tally.Diverged)
	}
	fmt.Fprintf(w, "%s on %s: %d schedules, %s (%.1f s)\n",
		r.Strategy, r.Store, r.Tally.Schedules, state, r.Took.Seconds())
	if r.Tally.Example != "" {
		fmt.Fprintf(w, "  could not be repeated: %s\n", r.Tally.Example)
	}
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Cells {
		fmt.Fprintf(lines, "  %s\t%d\t%s\t%s\n", c.name(), c.Schedules, c.kinds(), c.verdict())
	}
	if err := lines.Flush(); err != nil || !traces {
		return err
	}
	for _, c := range r.Cells {
		for _, kind := range c.damages() {
			s := c.Shortest[kind]
			fmt.Fprintf(w, "\n%s, %s: %s\n", c.name(), kind, strings.Join(s.Outcome.Evidence, "; "))
			fmt.Fprintf(w, "replay: %s\n", r.Replay(s.Token))
			if err := WriteTrace(w, s.Outcome.Steps); err != nil {
				return err
			}
		}
	}
	return nil
}

// name says what struck, and what was asked for.
func (c Cell) name() string {
	name := orElse(c.Fault, "no fault")
	if c.Requests != "" {
		name += ", " + c.Requests
	}
	return name
}

func (c Cell) kinds() string {
	parts := []string{fmt.Sprintf("%d right", c.Kinds[Right])}
	for _, kind := range c.damages() {
		parts = append(parts, fmt.Sprintf("%d %s", c.Kinds[kind], kind))
	}
	if c.Waited > 0 {
		parts = append(parts, fmt.Sprintf("%d after a lease", c.Waited))
	}
	return strings.Join(parts, ", ")
}

func (c Cell) verdict() string {
	switch {
	case c.Claim == "":
		return ""
	case c.Held:
		return "as claimed: " + c.Claim
	}
	return "REFUTED: " + c.Claim
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// Replay returns the command that executes the schedule of a token again.
func (r Result) Replay(token string) string {
	switch {
	case !r.Own:
		return fmt.Sprintf("loadtest explore --strategies %s --replay %s", r.Strategy, token)
	case strings.HasSuffix(r.Strategy, scriptEnding):
		return fmt.Sprintf("loadtest explore --replay %s %s", token, r.Strategy)
	}
	return fmt.Sprintf("loadtest explore --replay %s -- %s", token, r.Strategy)
}

// scriptEnding is how the name of a script's file ends.
const scriptEnding = ".star"
