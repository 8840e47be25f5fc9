package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
)

// Each public bug is a script, or docs/scripts.md says why it is none.
func TestScriptsShowPublicBugs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/*.star")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range append(files, "../docs/scripts.md") {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		all.WriteString(strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\n# ", " ")), " "))
	}
	named := func(name string) bool {
		return regexp.MustCompile(regexp.QuoteMeta(name) + `([^\d\w-]|$)`).MatchString(all.String())
	}
	bugs, err := os.ReadFile("../docs/public-bugs.md")
	must.Succeed(t, err)
	// Bugs of cancellations are about what the service keeps with a key, which no script shows.
	schedules, _, _ := strings.Cut(string(bugs), "\n## Units that come back twice")
	links := regexp.MustCompile(`\[([^\]]+)\]\(http`).FindAllStringSubmatch(schedules, -1)
	if len(links) < 40 {
		t.Fatalf("%d bugs", len(links))
	}
	for _, link := range links {
		if !named(link[1]) {
			t.Errorf("the bug %s is no script", link[1])
		}
	}
}

func TestScriptsEndWithAStatus(t *testing.T) {
	t.Parallel()
	shop := filepath.Join(t.TempDir(), "shop.star")
	for _, c := range []struct {
		text, want string
		status     int
		flags      []string
	}{
		{"def buy(who):\n    redis('SET', key('a'), who)\n    sql('DO 1')\ndef check(): return True", "2 right", 0, nil},
		{"def check(): return 'damage'\ndef buy(): pass", "replay: loadtest explore --replay script: " + shop, 1, nil},
		{
			"def setup(): sql('CREATE PROCEDURE IF NOT EXISTS shop() DO 1')\ndef buy(): sql('CALL shop()')\n" +
				"def check(): return True",
			"CALL shop() is not one step on the server", 3, nil,
		},
		{"\ndef buy():\n    sql('SELEC')", shop + ":3:8: in buy: Error 1064", 2, nil},
		{
			"def buy():\n    s = 'x'\n    for _ in range(28):\n        s += s",
			shop + ":1:1: it needs more than 64 MiB of memory", 2, nil,
		},
		{"\n\ndef buy(:", shop + ":3:10: got ':'", 2, nil},
		{
			"def check(): return 'damage'\ndef buy():\n    sql('SELECT $1', 1)",
			"replay: loadtest explore --engine postgres --replay script:A.B " + shop, 1, []string{"--engine", "postgres"},
		},
		{"def buy(): pass", "--engine: must be mysql, postgres, or", 2, []string{"--engine", "oracle"}},
		{"def buy(): pass", "--engine is for scripts", 2, []string{"--engine", "postgres", "--strategies", "update", "--"}},
	} {
		must.Succeed(t, os.WriteFile(shop, []byte(c.text), 0o600))
		args := slices.Concat([]string{"explore", "--traces", "--lanes", "1"}, c.flags, []string{shop})
		out, err := command(t, args...).CombinedOutput()
		status := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			status = exit.ExitCode()
		}
		if status != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: status %d, want %d and %q:\n%s", c.text, status, c.status, c.want, out)
		}
	}
}
