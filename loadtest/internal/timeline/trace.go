package timeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// event is an event of the Trace Event Format, which Perfetto and chrome://tracing read. Times are microseconds.
type event struct {
	Name     string  `json:"name"`
	Category string  `json:"cat,omitempty"`
	Phase    string  `json:"ph"`
	At       *micros `json:"ts,omitempty"`
	Duration *micros `json:"dur,omitempty"`
	Process  int     `json:"pid"`
	Track    int     `json:"tid,omitempty"`
	Scope    string  `json:"s,omitempty"`
	Args     any     `json:"args,omitempty"`
}

// Phases of events.
const (
	complete = "X" // has a duration
	instant  = "i"
	metadata = "M"
)

// micros is nanoseconds, written as microseconds without rounding.
type micros int64

func (m micros) MarshalJSON() ([]byte, error) {
	if m < 0 {
		return fmt.Appendf(nil, "-%d.%03d", -m/1000, -m%1000), nil
	}
	return fmt.Appendf(nil, "%d.%03d", m/1000, m%1000), nil
}

// WriteTrace writes windows in the Trace Event Format. A replica is a process for each item, and each of its lanes is a
// track, so that the slices of a track never overlap. Findings and overlaps are instant events.
func WriteTrace(w io.Writer, windows []Window) error {
	out := bufio.NewWriter(w)
	t := tracer{out: out}
	fmt.Fprint(out, `{"displayTimeUnit":"ms","traceEvents":[`)
	if len(windows) > 0 {
		t.origin = windows[0].Origin + windows[0].From
		for _, w := range windows {
			t.origin = min(t.origin, w.Origin+w.From)
		}
	}
	for _, w := range windows {
		t.window(w)
	}
	fmt.Fprint(out, "\n]}\n")
	if t.err == nil {
		t.err = out.Flush()
	}
	if t.err != nil {
		return fmt.Errorf("write trace: %w", t.err)
	}
	return nil
}

// tracer writes events.
type tracer struct {
	out       *bufio.Writer
	origin    int64 // on the clock of the history
	processes int
	events    int
	err       error
}

func (t *tracer) write(e event) {
	text, err := json.Marshal(e)
	if err != nil && t.err == nil {
		t.err = err
	}
	if t.events++; t.events > 1 {
		t.out.WriteByte(',')
	}
	t.out.WriteByte('\n')
	t.out.WriteString(string(text))
}

// at returns a time of a window as one of the trace.
func (t *tracer) at(w Window, ns int64) *micros {
	at := micros(w.Origin + ns - t.origin)
	return &at
}

func (t *tracer) window(w Window) {
	processes, used := map[Lane]int{}, map[Lane]int{}
	tracks := make([]int, len(w.Lanes))
	for i, lane := range w.Lanes {
		if processes[lane] == 0 {
			t.processes++
			processes[lane] = t.processes
			t.name("process_name", t.processes, 0, fmt.Sprintf("item %d, %s", w.Item, lane.Replica))
		}
		used[lane]++
		tracks[i] = used[lane]
		t.name("thread_name", processes[lane], tracks[i], fmt.Sprintf("%s, lane %d", lane.Replica, tracks[i]))
	}
	for _, s := range w.Sections {
		s.Overlap = s.Overlap && !w.Allowed
		at, length := t.at(w, s.Start), micros(s.End-s.Start)
		slice := event{
			Name: s.label(), Category: s.category(), Phase: complete, At: at, Duration: &length,
			Process: processes[w.Lanes[s.Lane]], Track: tracks[s.Lane],
		}
		mark := event{
			Name: Overlap, Category: Overlap, Phase: instant, At: at, Process: slice.Process, Track: slice.Track, Scope: "t",
		}
		s.Start, s.End, s.Lane = w.Origin+s.Start, w.Origin+s.End, slice.Track // on the clock of the history
		slice.Args = s
		t.write(slice)
		if s.Overlap {
			t.write(mark)
		}
	}
	for _, f := range w.Findings {
		first := w.Sections[f.Sections[len(f.Sections)-1]]
		t.write(event{
			Name: "first " + f.Kind + ": " + f.Text, Category: "finding", Phase: instant, At: t.at(w, f.Start),
			Process: processes[w.Lanes[first.Lane]], Track: tracks[first.Lane], Scope: "g",
		})
	}
}

func (t *tracer) name(what string, process, track int, name string) {
	t.write(event{Name: what, Phase: metadata, Process: process, Track: track, Args: map[string]string{"name": name}})
}

// label is the text of a slice.
func (s Section) label() string {
	switch {
	case s.Before != nil:
		return fmt.Sprintf("%d → %d", *s.Before, *s.After)
	case s.Outcome != "":
		return s.Outcome
	}
	return fmt.Sprintf("%d units", s.Count)
}

func (s Section) category() string {
	switch {
	case s.Kind != Inside:
		return string(s.Kind)
	case s.Overlap:
		return "section,overlap"
	}
	return "section"
}
