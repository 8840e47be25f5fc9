package plant

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stock/internal/must"
)

// shop is a small module with everything that a row can change.
var shop = map[string]string{
	"go.mod": "module stock\n\ngo 1.26\n",
	"main.go": `package main

import _ "embed"

//go:embed lua/sell.lua
var sellLua string

var script = "script: " + sellLua

const (
	limit   = 10
	message = "limit: "
)

type shop[T any] struct{ name T }

func (s shop[T]) text() T {
	switch sellLua {
	case "":
		panic(script)
	}
	return s.name
}

func largest[T any](values ...T) T { return values[len(values)-1] }

func say(words ...string) {
	for _, word := range words {
		print(word, " ")
	}
}

func describe() {
	limit := struct{ limit int }{limit: limit}.limit
	say(message, string(rune('0'+limit%10)), script)
}

func main() {
	for range 3 {
		say(shop[string]{"shop"}.text(), largest("a", "b"))
	}
	describe()
}
`,
	"lua/sell.lua": "return 1",
}

func TestARowIsInEffectWhileItIsSwitchedOn(t *testing.T) {
	t.Parallel()
	const usual = "shop b shop b shop b limit:  0 script: return 1 "
	tests := []struct {
		row      Row
		want     string
		executed bool
	}{
		{Row{Edit: Edit{Old: "return s.name", New: "return largest(s.name, s.name)"}}, usual, true},
		{Row{Edit: Edit{Old: "len(values)-1", New: "0"}, Every: 2}, strings.Replace(usual, "b shop b", "b shop a", 1), true},
		{Row{Edit: Edit{Old: "panic(script)", New: "panic(limit)"}}, usual, false},
		{Row{Edit: Edit{Old: "= 10", New: "= 15"}}, strings.Replace(usual, "0", "5", 1), true},
		{Row{Edit: Edit{File: "lua/sell.lua", Old: "1", New: `"2"`}}, strings.Replace(usual, "1", `"2"`, 1), true},
		{Row{
			Edit: Edit{Old: `print(word, " ")`, New: `print(strings.ToUpper(word), "+")`, Imports: []string{"strings"}},
			And:  []Edit{{File: "main.go", Old: `"limit: "`, New: `"at most "`}},
		}, "SHOP+B+SHOP+B+SHOP+B+AT MOST +0+SCRIPT: RETURN 1+", true},
	}
	rows := make([]Row, len(tests))
	for i := range tests {
		tests[i].row.number, tests[i].row.File = i+1, cmp.Or(tests[i].row.File, "main.go")
		rows[i] = tests[i].row
	}
	program := &Program{dir: t.TempDir(), root: t.TempDir()}
	for name, text := range shop {
		must.Succeed(t, os.MkdirAll(filepath.Join(program.root, filepath.Dir(name)), 0o755))
		must.Succeed(t, os.WriteFile(filepath.Join(program.root, name), []byte(text), 0o644))
	}
	overlay, err := writeOverlay(program.root, program.dir, rows)
	must.Succeed(t, err)
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = program.root, append(os.Environ(), "PLANTED="+program.dir)
		output, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, output)
		}
		return string(output)
	}
	run("go", "build", "-overlay="+overlay, "-o", program.Stock(), ".")
	for _, test := range tests {
		must.Succeed(t, program.switchOn(test.row))
		got := run(program.Stock())
		if got != test.want || program.executed() != test.executed {
			t.Errorf("%s for %s: executed %v, %q; want %q", test.row.New, test.row.Old, program.executed(), got, test.want)
		}
	}
}

func TestARowThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	text := "package a\n\nvar x, y = 1, 2\n\nvar z = y\n"
	must.Succeed(t, os.WriteFile(filepath.Join(root, "a.go"), []byte(text), 0o644))
	for old, want := range map[string]string{
		"absent": "is there 0 times", "y": "is there 2 times", "1, 2": "no declaration", "z = y": "changes overlap",
	} {
		row := Row{Edit: Edit{File: "a.go", Old: old}}
		if _, err := writeOverlay(root, t.TempDir(), []Row{row}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", old, err, want)
		}
	}
}
