package stock_test

import (
	"bytes"
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

// exploredStrategy is what the documents show of an explore.json of loadtest explore. It is kept in exploredFile.
type exploredStrategy struct {
	Strategy  string              `json:"strategy"`
	Schedules int                 `json:"schedules"`
	Damage    map[string][]string `json:"damage,omitempty"` // the faults after which there is this kind of damage
	Trace     string              `json:"trace,omitempty"`  // the smallest that does damage
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

func newExplored(t *testing.T, path string) (all []exploredStrategy) {
	t.Helper()
	for _, r := range readJSON[[]exploration](t, path) {
		if !r.Exhausted {
			t.Fatalf("%s: not every schedule of %s was executed", path, r.Strategy)
		}
		e := exploredStrategy{Strategy: r.Strategy, Schedules: r.Tally.Schedules, Damage: map[string][]string{}}
		var smallest *schedule
		for _, c := range r.Cells {
			if len(c.Shortest) == 0 || c.Fault == "sent-again" && c.Requests == "" && strategy(r.Strategy).Idempotent() {
				continue // without a key, a request that is sent again sells twice
			}
			name := cmp.Or(strings.Trim(c.Fault+", "+c.Requests, ", "), "no fault")
			for _, kind := range slices.Sorted(maps.Keys(c.Shortest)) {
				e.Damage[kind] = append(e.Damage[kind], name)
				found := c.Shortest[kind]
				if smallest == nil || found.compare(*smallest) < 0 {
					smallest = &found
				}
			}
		}
		if smallest != nil {
			e.Trace = smallest.text(r.Strategy)
		}
		all = append(all, e)
	}
	return all
}

func (s schedule) compare(other schedule) int {
	return cmp.Or(s.Faults-other.Faults, s.Preemptions-other.Preemptions, len(s.Outcome.Steps)-len(other.Outcome.Steps))
}

// text shows a trace, one step in a line, the steps of B indented.
func (s schedule) text(strategy string) string {
	var b strings.Builder
	last := ""
	for _, step := range s.Outcome.Steps {
		if step.Kind == "passes" && !regexp.MustCompile(`^(START|BEGIN|COMMIT|ROLLBACK)`).MatchString(step.Text) {
			continue
		}
		text := step.Text
		switch {
		case step.Kind == "answers" && text == "sold":
			continue // the evidence says so
		case step.Kind == "answers":
			text = "=> " + text
		case step.Kind == "fault":
			text, _, _ = strings.Cut("*** "+text, "; ")
		case step.Kind == "waits":
			text += "  (waits)"
		case step.Reply != "":
			text = ofScript.ReplaceAllString(rest.ReplaceAllString(text, " …"), "{$1 …} …")
			text += "  → " + rowCount.ReplaceAllString(step.Reply, "")
		}
		actor := cmp.Or(step.Actor, "--")
		if step.Actor == "B" {
			actor = "    B"
		}
		text = strings.TrimSpace(wrap(s.legible(text), 95))
		if actor+text == last || actor == "--" && step.Kind == "answers" { // the evidence says what is left
			continue
		}
		last = actor + text
		b.WriteString(actor + "  " + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", len(actor)+4)) + "\n")
	}
	if len(s.Outcome.Evidence) > 0 {
		b.WriteString(s.legible(s.Outcome.Evidence[0]) + "\n")
	}
	token := s.Token
	if strings.Contains(token, "!") { // as loadtest prints it
		token = "'" + token + "'"
	}
	fmt.Fprintf(&b, "replay: loadtest explore --strategies %s --replay %s\n", strategy, token)
	return b.String()
}

// These are what a trace leaves out: the rest of a statement, of a command that runs a script, and of a reply.
var (
	rest     = regexp.MustCompile(`(?s)(, version = version \+ 1| FROM | WHERE | VALUES |\s\S+ .*\sEXEC$).*`)
	ofScript = regexp.MustCompile(`\{([^\s{}]+(?: [^\s{}]+){0,2})[^{}]*\} KEYS .*`)
	rowCount = regexp.MustCompile(`^(1 row: |OK, )`)
)

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
	{regexp.MustCompile(`(?:CAST\()?LAST_INSERT_ID\((.*?)\)(?: AS SIGNED\))?`), "$1"},
	{regexp.MustCompile(`'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?'`), "'<time>'"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "<owner>"},
	{regexp.MustCompile(`0x[0-9a-f]{33,}`), "0x<fingerprint>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<fingerprint>"},
	{regexp.MustCompile(`\d{13,}`), "<number>"},
	{regexp.MustCompile(` \(\d+ gone, .*\)$`), ""},
}

// exploredJSON has a strategy in each line.
func exploredJSON(t *testing.T, all []exploredStrategy) []byte {
	t.Helper()
	var lines []string
	for _, e := range all {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		must.Succeed(t, encoder.Encode(e))
		lines = append(lines, "  "+strings.TrimSpace(b.String()))
	}
	return []byte("[\n" + strings.Join(lines, ",\n") + "\n]\n")
}
