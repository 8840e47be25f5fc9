package stock_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
)

// budgets has a line for each package: the most lines of its code, the most lines of its tests, and its name. The first
// line has the most of all packages together. The sum of the others may not exceed it, so a package gets more lines in
// a commit that takes as many from others.
const budgets = "testdata/lines.txt"

type lines struct{ code, tests int }

func (l lines) plus(o lines) lines { return lines{l.code + o.code, l.tests + o.tests} }

// With -update, budgets fall to what is needed. They rise only by hand.
func TestPackagesKeepToTheirBudgetOfLines(t *testing.T) {
	text, err := os.ReadFile(budgets)
	must.Succeed(t, err)
	budget := map[string]lines{}
	for line := range strings.Lines(string(text)) {
		var l lines
		var name string
		if _, err := fmt.Sscan(line, &l.code, &l.tests, &name); err != nil {
			t.Fatalf("%s: %q: %v", budgets, line, err)
		}
		budget[name] = l
	}
	const all = "all"
	var sum lines
	actual := countLines(t)
	for _, name := range slices.Sorted(maps.Keys(actual)) {
		is, most := actual[name], budget[name]
		if is.code > most.code || is.tests > most.tests {
			t.Errorf("%s has %d lines and %d of tests, and may have %d and %d: shorten it, or move lines of %s to it",
				name, is.code, is.tests, most.code, most.tests, budgets)
		}
		actual[name] = lines{min(is.code, most.code), min(is.tests, most.tests)}
		sum = sum.plus(most)
	}
	if most := budget[all]; sum.code > most.code || sum.tests > most.tests {
		t.Errorf("%s allows %d lines and %d of tests in all, more than the %d and %d of its first line",
			budgets, sum.code, sum.tests, most.code, most.tests)
	}
	if *update {
		writeBudgets(t, all, actual)
	}
}

func writeBudgets(t *testing.T, all string, actual map[string]lines) {
	var text bytes.Buffer
	var sum lines
	for _, l := range actual {
		sum = sum.plus(l)
	}
	fmt.Fprintf(&text, "%6d %6d %s\n", sum.code, sum.tests, all)
	for _, name := range slices.Sorted(maps.Keys(actual)) {
		fmt.Fprintf(&text, "%6d %6d %s\n", actual[name].code, actual[name].tests, name)
	}
	must.Succeed(t, os.WriteFile(budgets, text.Bytes(), 0o644))
}

// countLines counts the lines of Go in each folder.
func countLines(t *testing.T) map[string]lines {
	counted := map[string]lines{}
	must.Succeed(t, filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		text, err := os.ReadFile(name)
		n := lines{code: bytes.Count(text, []byte("\n"))}
		if strings.HasSuffix(name, "_test.go") {
			n = lines{tests: n.code}
		}
		counted[filepath.Dir(name)] = counted[filepath.Dir(name)].plus(n)
		return err
	}))
	return counted
}
