package stock_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
)

var recordDir = flag.String("record", "",
	"with -update: take what was found in shops from this directory of make record")

const recordFile = "docs/record.json"

// explorations is what was found in a shop without faults, and with one. It is kept in recordFile.
type explorations struct {
	Explored found  `json:"explored"`
	Faults   *found `json:"faults,omitempty"` // nil if the shop was not explored with faults
}

type found struct {
	Schedules int      `json:"schedules"`
	All       bool     `json:"all"`                // every schedule within the bounds was executed
	Wrong     []damage `json:"wrong,omitempty"`    // the stock did not agree with the answers
	Reported  []damage `json:"reported,omitempty"` // damage that does not make the shop wrong
}

// readRecord returns what was found in each shop. With -record, it first replaces that of the shops that were explored.
func readRecord(t *testing.T) map[string]explorations {
	t.Helper()
	record := readJSON[map[string]explorations](t, recordFile)
	if *recordDir == "" || !*update {
		return record
	}
	// A shop has a directory of its own, or one for each way to run it.
	var paths []string
	for _, pattern := range []string{"*", "*/*"} {
		some, err := filepath.Glob(filepath.Join(*recordDir, pattern, "explored", "explore.json"))
		must.Succeed(t, err)
		paths = append(paths, some...)
	}
	if len(paths) == 0 {
		t.Fatalf("-record %s: no shop was explored", *recordDir)
	}
	for _, path := range paths {
		shop := filepath.Dir(filepath.Dir(path))
		name, err := filepath.Rel(*recordDir, shop)
		must.Succeed(t, err)
		e := explorations{Explored: readFound(t, path)}
		withFaults := filepath.Join(shop, "faults", "explore.json")
		if _, err := os.Stat(withFaults); err == nil {
			faults := readFound(t, withFaults)
			e.Faults = &faults
		}
		record[filepath.ToSlash(name)] = e
	}
	text, err := json.MarshalIndent(record, "", " ")
	must.Succeed(t, err)
	writeFile(t, recordFile, append(text, '\n'))
	return record
}

func readFound(t *testing.T, path string) found {
	t.Helper()
	r := readJSON[[]exploration](t, path)[0]
	f := found{Schedules: r.Tally.Schedules, All: r.Exhausted}
	for _, c := range r.Cells {
		for _, kind := range slices.Sorted(maps.Keys(c.Shortest)) {
			if c.Held {
				f.Reported = append(f.Reported, damage{c.Fault, kind})
			} else {
				f.Wrong = append(f.Wrong, damage{c.Fault, kind})
			}
		}
	}
	if !f.All && f.Wrong == nil {
		t.Fatalf("%s: not every schedule was executed", path)
	}
	return f
}

// TestTheRecordIsThatOfTheScript compares the record with what run.sh expects of each shop.
func TestTheRecordIsThatOfTheScript(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("loadtest/record/run.sh")
	must.Succeed(t, err)
	want := map[string]string{}
	row := regexp.MustCompile(`(?m)^(?:shops=')?(\S+) ([01]) ([01-])'?$`)
	for _, row := range row.FindAllStringSubmatch(string(script), -1) {
		want[row[1]] = row[2] + " " + row[3]
	}
	got := map[string]string{}
	for name, e := range readJSON[map[string]explorations](t, recordFile) {
		got[name] = e.Explored.status() + " "
		if e.Faults == nil {
			got[name] += "-"
		} else {
			got[name] += e.Faults.status()
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s has %v, want %v as in run.sh", recordFile, got, want)
	}
}

// status is the exit status of loadtest explore.
func (f found) status() string {
	if f.Wrong != nil {
		return "1"
	}
	return "0"
}

func recordTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| shop | without faults | with one fault |\n| --- | --- | --- |\n")
	record := readRecord(t)
	for _, name := range slices.Sorted(maps.Keys(record)) {
		withFault := "not explored"
		if f := record[name].Faults; f != nil {
			withFault = f.String()
		}
		fmt.Fprintf(&b, "| `%s` | %v | %s |\n", name, record[name].Explored, withFault)
	}
	return b.String()
}

func (f found) String() string {
	var kinds []string
	for _, d := range f.Wrong {
		kinds = append(kinds, "**"+d.Kind+"**"+d.after())
	}
	result := cmp.Or(strings.Join(kinds, ", "), "right")
	for _, d := range f.Reported {
		result += ", but " + d.Kind + d.after()
	}
	if f.All {
		return fmt.Sprintf("%s; all %d schedules", result, f.Schedules)
	}
	return fmt.Sprintf("%s; %d schedules until then", result, f.Schedules)
}

// damage is a kind of damage that some schedules did after a fault; empty: without one.
type damage struct {
	Fault string `json:"fault,omitempty"`
	Kind  string `json:"kind"`
}

// after tells the fault that damage came of.
func (d damage) after() string {
	if d.Fault == "" {
		return ""
	}
	return " (`" + d.Fault + "`)"
}
