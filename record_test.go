package stock_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
)

var recordDir = flag.String("record", "",
	"with -update: take what was found in shops from this directory of make record")

const recordFile = "docs/record.json"

// explorations are what was found in a shop without faults, and with one. They are kept in recordFile.
type explorations struct {
	Explored found  `json:"explored"`
	Faults   *found `json:"faults,omitempty"` // nil if the shop was not explored with faults
}

type found struct {
	Schedules int      `json:"schedules"`
	All       bool     `json:"all"`              // within the bounds were executed
	Damage    []damage `json:"damage,omitempty"` // also what is only reported
	Wrong     bool     `json:"wrong,omitempty"`  // the stock did not agree with the answers
}

// readRecord returns what was found in each shop. With -record, it first replaces that of the shops that were explored.
func readRecord(t *testing.T) map[string]explorations {
	t.Helper()
	record := readJSON[map[string]explorations](t, recordFile)
	if *recordDir == "" {
		return record
	}
	// A shop has a directory of its own, or one for each way to run it.
	for _, pattern := range []string{"*", "*/*"} {
		dirs, err := filepath.Glob(filepath.Join(*recordDir, pattern, "explored"))
		must.Succeed(t, err)
		for _, dir := range dirs {
			shop := filepath.Dir(dir)
			name, err := filepath.Rel(*recordDir, shop)
			must.Succeed(t, err)
			e := explorations{Explored: readFound(t, filepath.Join(dir, "explore.json"))}
			withFaults, err := filepath.Glob(filepath.Join(shop, "faults", "explore.json"))
			must.Succeed(t, err)
			for _, path := range withFaults {
				faults := readFound(t, path)
				e.Faults = &faults
			}
			record[filepath.ToSlash(name)] = e
		}
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
		f.Wrong = f.Wrong || !c.Held
		for _, kind := range slices.Sorted(maps.Keys(c.Shortest)) {
			f.Damage = append(f.Damage, damage{c.Fault, kind})
		}
	}
	return f
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
	for _, d := range f.Damage {
		kind := d.Kind
		if f.Wrong {
			kind = "**" + kind + "**"
		}
		if d.Fault != "" {
			kind += " (`" + d.Fault + "`)"
		}
		kinds = append(kinds, kind)
	}
	result := cmp.Or(strings.Join(kinds, ", "), "right")
	if f.All {
		return fmt.Sprintf("%s; all %d schedules", result, f.Schedules)
	}
	return fmt.Sprintf("%s; %d schedules until then", result, f.Schedules)
}
