package stock_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"stock/internal/must"
)

// explored is what the documents show of an explore.json of loadtest explore. It is kept in exploredFile.
type explored struct {
	Bounds     string                      `json:"bounds"`
	Strategies map[string]exploredStrategy `json:"strategies"`
}

type exploredStrategy struct {
	Schedules int      `json:"schedules"`
	Damage    []damage `json:"damage,omitempty"`
	Trace     string   `json:"trace,omitempty"` // the smallest that does damage
}

// damage is a kind of damage that some schedules did after a fault; empty: without one.
type damage struct {
	Fault string `json:"fault,omitempty"`
	Kind  string `json:"kind"`
}

// exploration is a result in explore.json.
type exploration struct {
	Strategy  string
	Exhausted bool
	Requests  int
	Bounds    struct{ Preemptions, Faults int }
	Tally     struct{ Schedules int }
	Workloads []struct{ Name string }
	Cells     []struct {
		Fault    string
		Requests string
		Shortest map[string]schedule
		Held     bool `json:"claim_held"`
	}
}

type schedule struct {
	Token               string
	Preemptions, Faults int
	Outcome             struct {
		Evidence []string
		Stock    map[int64]int64
		Steps    []struct{ Actor, Text, Reply, Kind string }
	}
}

func newExplored(t *testing.T, path string) explored {
	t.Helper()
	e := explored{Strategies: map[string]exploredStrategy{}}
	names := map[string]bool{}
	for _, r := range readJSON[[]exploration](t, path) {
		if !r.Exhausted {
			t.Fatalf("%s: not every schedule of %s was executed", path, r.Strategy)
		}
		for _, w := range r.Workloads {
			names["`"+w.Name+"`"] = true
		}
		e.Bounds = fmt.Sprintf("up to %d requests, %d preemptions and %d fault",
			r.Requests, r.Bounds.Preemptions, r.Bounds.Faults)
		s := exploredStrategy{Schedules: r.Tally.Schedules}
		var smallest *schedule
		for _, c := range r.Cells {
			if c.Fault == "sent-again" && c.Requests == "" && strategy(r.Strategy).Idempotent() {
				continue // without a key: see page.found
			}
			for _, kind := range slices.Sorted(maps.Keys(c.Shortest)) {
				found := c.Shortest[kind]
				s.Damage = append(s.Damage, damage{strings.Trim(c.Fault+", "+c.Requests, ", "), kind})
				if smallest == nil || found.compare(*smallest) < 0 {
					smallest = &found
				}
			}
		}
		if smallest != nil {
			s.Trace = smallest.text(r.Strategy)
		}
		e.Strategies[r.Strategy] = s
	}
	e.Bounds += "; [workloads](../explore.md#workloads) " + strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	return e
}

func (s schedule) compare(other schedule) int {
	return cmp.Or(s.Faults-other.Faults, s.Preemptions-other.Preemptions, len(s.Outcome.Steps)-len(other.Outcome.Steps))
}

// text shows a trace, one step in a line, the steps of B indented.
func (s schedule) text(strategy string) string {
	var b strings.Builder
	for _, step := range s.Outcome.Steps {
		if step.Kind == "passes" && !regexp.MustCompile(`^(START|BEGIN|COMMIT|ROLLBACK)`).MatchString(step.Text) {
			continue
		}
		text := step.Text
		switch {
		case step.Kind == "answers":
			text = "=> " + text
		case step.Kind == "fault":
			text = "*** " + text
		case step.Kind == "waits":
			text += "  (waits)"
		case step.Reply != "":
			text += "  → " + step.Reply
		}
		actor := cmp.Or(step.Actor, "--")
		if step.Actor == "B" {
			actor = "    B"
		}
		text = strings.TrimSpace(wrap(s.legible(text), 95))
		b.WriteString(actor + "  " + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", len(actor)+4)) + "\n")
	}
	for _, evidence := range s.Outcome.Evidence {
		b.WriteString(s.legible(evidence) + "\n")
	}
	fmt.Fprintf(&b, "replay: loadtest explore --strategies %s --replay %s\n", strategy, s.Token)
	return b.String()
}

// legible numbers items from 1, and leaves out what differs from run to run.
func (s schedule) legible(text string) string {
	for i, item := range slices.Sorted(maps.Keys(s.Outcome.Stock)) {
		text = strings.ReplaceAll(text, strconv.FormatInt(item, 10), strconv.Itoa(i+1))
	}
	for _, r := range replacements {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}

var replacements = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?'`), "'<time>'"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "<owner>"},
	{regexp.MustCompile(`0x[0-9a-f]{33,}`), "0x<fingerprint>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<fingerprint>"},
	{regexp.MustCompile(`\d{13,}`), "<number>"},
}

func (e explored) json(t *testing.T) []byte {
	t.Helper()
	text, err := json.MarshalIndent(e, "", " ")
	must.Succeed(t, err)
	return append(text, '\n')
}
