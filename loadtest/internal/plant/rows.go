// Package plant tests the judge: it plants bugs into the service and the explorer, each of which must be found, and
// oddities, which must not be taken for bugs.
//
// All of them are in one program, each in copies of the functions that it changes. A switch that the program reads when
// it starts tells which of them are in effect: see overlay.
package plant

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"stock/internal/suggest"
	"stock/loadtest/internal/verify"
)

// Row is a bug or an oddity, and what must convict it.
type Row struct {
	Name    string
	Family  string `yaml:"-"` // the name of its file
	Planted string // one sentence: what is changed
	Edit    `yaml:",inline"`
	And     []Edit // further changes
	Every   int    // the change is in effect in every n-th call; 0: in each

	Strategy string // that is run
	Store    string // empty: its default
	Oddity   bool   // the strategy keeps its claims

	// At most one of them convicts it; if none is given, a load does.
	Scenario string // of package fault, or the part of its name before the slash
	Fault    string // with which the explorer finds it
	Contract bool   // sequences of requests convict it: see package sequence
	Test     string // of the explorer, with its subtests after slashes; several are separated by |

	number int
}

// Edit is a change of the source.
type Edit struct {
	File     string
	Old, New string   // Old is there once
	Imports  []string // that New needs, and that File lacks, besides package planted
}

//go:embed rows
var lists embed.FS

// Rows lists all of them, by family.
var Rows = readRows()

func readRows() (rows []Row) {
	files, _ := fs.Glob(lists, "rows/*.yaml")
	for _, file := range files {
		text, _ := lists.ReadFile(file)
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		var family []Row
		if err := decoder.Decode(&family); err != nil {
			panic(fmt.Errorf("%s: %w", file, err))
		}
		for _, r := range family {
			r.Family, r.number = strings.TrimSuffix(path.Base(file), ".yaml"), len(rows)+1
			rows = append(rows, r)
		}
	}
	return rows
}

// Choose returns the rows with the given names, or all if there are none.
func Choose(names []string) (chosen []Row, err error) {
	if len(names) == 0 {
		return Rows, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(Rows, func(r Row) bool { return r.Name == name })
		if i < 0 {
			var known []string
			for _, r := range Rows {
				known = append(known, r.Name)
			}
			return nil, fmt.Errorf("nothing to plant is named %q%s", name, suggest.DidYouMean(name, known))
		}
		chosen = append(chosen, Rows[i])
	}
	return chosen, nil
}

// wanted is the verdict that the judge should reach.
func (r Row) wanted() verify.Result {
	if r.Oddity {
		return verify.Correct
	}
	return verify.Wrong
}
