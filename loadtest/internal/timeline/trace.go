package timeline

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// trace is a file in the Trace Event Format, which Perfetto and chrome://tracing read.
type trace struct {
	Unit   string  `json:"displayTimeUnit"`
	Events []event `json:"traceEvents"`

	origin    int64 // on the clock of the history
	processes int
}

// event is an event of a trace. Times are microseconds.
type event struct {
	Name     string  `json:"name"`
	Category string  `json:"cat,omitempty"`
	Phase    string  `json:"ph"`
	At       float64 `json:"ts"`
	Duration float64 `json:"dur,omitempty"`
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

// WriteTrace writes windows in the Trace Event Format. A replica is a process for each item, and each of its lanes is a
// track, so that the slices of a track never overlap. Findings and overlaps are instant events.
func WriteTrace(w io.Writer, windows []Window) error {
	t := trace{Unit: "ms", Events: []event{}, origin: math.MaxInt64}
	for _, w := range windows {
		t.origin = min(t.origin, w.Origin+w.From)
	}
	for _, w := range windows {
		t.add(w)
	}
	if err := json.NewEncoder(w).Encode(t); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// micros returns nanoseconds as microseconds.
func micros(ns int64) float64 { return float64(ns) / 1000 }

// at returns a time of a window as one of the trace.
func (t *trace) at(w Window, ns int64) float64 { return micros(w.Origin + ns - t.origin) }

func (t *trace) add(w Window) {
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
		slice := event{
			Name: s.label(), Category: s.category(), Phase: complete, At: t.at(w, s.Start), Duration: micros(s.End - s.Start),
			Process: processes[w.Lanes[s.Lane]], Track: tracks[s.Lane],
		}
		s.Start, s.End, s.Lane = w.Origin+s.Start, w.Origin+s.End, slice.Track // on the clock of the history
		slice.Args = s
		t.Events = append(t.Events, slice)
		if s.Overlap {
			t.Events = append(t.Events, event{
				Name: Overlap, Category: Overlap, Phase: instant, At: slice.At, Process: slice.Process, Track: slice.Track,
				Scope: "t",
			})
		}
	}
	for _, f := range w.Findings {
		first := w.Sections[f.Sections[len(f.Sections)-1]]
		t.Events = append(t.Events, event{
			Name: "first " + f.Kind + ": " + f.Text, Category: "finding", Phase: instant, At: t.at(w, f.Start),
			Process: processes[w.Lanes[first.Lane]], Track: tracks[first.Lane], Scope: "g",
		})
	}
}

func (t *trace) name(what string, process, track int, name string) {
	args := map[string]string{"name": name}
	t.Events = append(t.Events, event{Name: what, Phase: metadata, Process: process, Track: track, Args: args})
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
