package trace

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// columns is the width of a trace on a terminal.
const columns = 150

// Write writes a trace in columns, one for each actor.
func Write(w io.Writer, steps []Step) error {
	actors := Actors(steps)
	width := columns / max(len(actors), 1)
	lines := []string{headings(actors, width)}
	for _, step := range steps {
		if !step.Shown() {
			continue
		}
		if step.Actor == "" {
			lines = append(lines, "-- "+step.String())
			continue
		}
		lines = append(lines, indent(wrap(step.String(), width-3), slices.Index(actors, step.Actor)*width)...)
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// Actors lists who takes steps: the requests that begin with the schedule, and then those that faults start.
func Actors(steps []Step) (actors []string) {
	for _, step := range steps {
		if step.Actor != "" && !slices.Contains(actors, step.Actor) {
			actors = append(actors, step.Actor)
		}
	}
	slices.SortFunc(actors, func(a, b string) int {
		return cmp.Or(min(len(a), 2)-min(len(b), 2), strings.Compare(a, b)) // the former have one letter
	})
	return actors
}

// Shown reports whether a person should see a step: it is chosen, or begins or ends a transaction.
func (s Step) Shown() bool { return s.Kind != Passes || ofTransaction(s.Text) }

func headings(actors []string, width int) string {
	var b strings.Builder
	for _, name := range actors {
		fmt.Fprintf(&b, "%-*s", width, name)
	}
	return strings.TrimRight(b.String(), " ")
}

// String returns a step with its reply, in one line.
func (s Step) String() string {
	text := strings.Join(strings.Fields(s.Text), " ")
	switch s.Kind {
	case Executes, Polls, Passes:
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

// Write writes what was found, one line for each fault. With traces, it writes one for each kind of damage, in columns
// or as text for terminals.
func (r Result) Write(w io.Writer, traces, terminals bool) error {
	fmt.Fprintf(w, "%s on %s: %d schedules, %s (%.1f s)\n",
		r.Strategy, r.Store, r.Tally.Schedules, r.State(), r.Took.Seconds())
	if r.Tally.Example != "" {
		fmt.Fprintf(w, "  could not be executed: %s\n", r.Tally.Example)
	}
	last := ""
	for _, c := range r.Cells {
		why := strings.Join(c.Shortest[Unjudged].Execution.Readable().Evidence, "; ")
		if !c.Judged() && why != last {
			fmt.Fprintf(w, "  not judged: %s\n", why)
			last = why
		}
	}
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Cells {
		fmt.Fprintf(lines, "  %s\t%d\t%s\t%s\n", c.Name(), c.Schedules, c.Found(), c.Verdict())
	}
	if err := lines.Flush(); err != nil || !traces {
		return err
	}
	for _, c := range r.Cells {
		for _, kind := range c.Damages() {
			s := c.Shortest[kind]
			o := s.Execution.Readable()
			fmt.Fprintf(w, "\n%s, %s: %s\n", c.Name(), kind, strings.Join(o.Evidence, "; "))
			fmt.Fprintf(w, "replay: %s\n", r.Replay(s.Token))
			if terminals {
				fmt.Fprintln(w, r.Terminals(c, s))
				continue
			}
			if err := Write(w, o.Steps); err != nil {
				return err
			}
		}
	}
	return nil
}

// State says whether all schedules were executed.
func (r Result) State() string {
	switch {
	case r.Random:
		return "chosen at random"
	case !r.Exhausted:
		return fmt.Sprintf("NOT exhausted: %d beginnings not tried, %d could not be executed",
			r.Tally.Waiting, r.Tally.Diverged)
	case r.Tally.Settled == 0:
		return "exhausted"
	case r.Service():
		return "exhausted without faults, and with faults until damage was found"
	case r.Own:
		return "exhausted but for expected damage, which was found"
	}
	return "exhausted but for claimed damage, which was found"
}

// Service reports whether a user's service was explored, about which the catalogue claims nothing.
func (r Result) Service() bool { return r.Own && !strings.HasSuffix(r.Strategy, scriptEnding) }

// Limits says within which bounds they are.
func (r Result) Limits() string {
	text := fmt.Sprintf("up to %d requests", r.Requests)
	if r.Bounds.Preemptions >= 0 {
		text += atMost(r.Bounds.Preemptions, "preemption")
	}
	return text + atMost(r.Bounds.Faults, "fault")
}

func atMost(n int, what string) string {
	switch n {
	case 0:
		return ", no " + what
	case 1:
		return ", at most 1 " + what
	}
	return fmt.Sprintf(", at most %d %ss", n, what)
}

// Name says what struck, and what was asked for.
func (c Cell) Name() string {
	name := cmp.Or(c.Fault, "no fault")
	if c.Requests != "" {
		name += ", " + c.Requests
	}
	return name
}

// Found counts the schedules by what came of them.
func (c Cell) Found() string {
	parts := []string{fmt.Sprintf("%d right", c.Kinds[Right])}
	for _, kind := range c.Damages() {
		parts = append(parts, fmt.Sprintf("%d %s", c.Kinds[kind], kind))
	}
	if c.Waited > 0 {
		parts = append(parts, fmt.Sprintf("%d after a lease", c.Waited))
	}
	return strings.Join(parts, ", ")
}

// Verdict compares that with the claim; empty if there is none. A user's service claims nothing, and is right or wrong.
func (c Cell) Verdict() string {
	switch {
	case c.Claim == "" && !c.Held:
		return "WRONG"
	case c.Held && !c.Judged():
		return strings.TrimSuffix("not judged: "+c.Claim, ": ")
	case c.Claim == "":
		return ""
	case c.Held:
		return "as claimed: " + c.Claim
	}
	return "REFUTED: " + c.Claim
}

// Replay returns the command that executes the schedule of a token again.
func (r Result) Replay(token string) string {
	engine := ""
	if r.Own && r.File == "" && !r.Service() && r.Store == Postgres {
		engine = " --engine postgres"
	}
	command := "loadtest explore" + engine
	if r.Requests > 2 {
		command += fmt.Sprint(" --requests ", r.Requests)
	}
	if strings.ContainsAny(token, " ;!") { // which shells would read
		token = "'" + token + "'"
	}
	switch {
	case !r.Own:
		command += " --strategies " + r.Strategy
		if r.OtherStore {
			command += " --store " + r.Store
		}
		return command + " --replay " + token
	case r.File != "":
		return fmt.Sprintf("%s --service %s --replay %s", command, r.File, token)
	case r.Service():
		return fmt.Sprintf("%s --replay %s -- %s", command, token, r.Strategy)
	}
	return fmt.Sprintf("%s --replay %s %s", command, token, r.Strategy)
}

// scriptEnding is how the name of a script's file ends.
const scriptEnding = ".star"
