package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stock/loadtest/internal/fault"
)

// Each practice of the fault scenarios and each public bug is a script, or docs/scripts.md says why it is none.
func TestScriptsShowPracticesAndPublicBugs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/*.star")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range append(files, "../docs/scripts.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\n# ", " ")), " "))
	}
	named := func(name string) bool {
		return regexp.MustCompile(regexp.QuoteMeta(name) + `([^\d\w-]|$)`).MatchString(all.String())
	}
	for _, s := range fault.Scenarios {
		for _, p := range s.Practices {
			if !named(p.Name) {
				t.Errorf("the practice %s of %s is no script", p.Name, s.Name)
			}
		}
	}
	bugs, err := os.ReadFile("../docs/public-bugs.md")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\[([^\]]+)\]\(http`).FindAllStringSubmatch(string(bugs), -1)
	if len(links) < 40 {
		t.Fatalf("%d bugs", len(links))
	}
	for _, link := range links {
		if !named(link[1]) {
			t.Errorf("the bug %s is no script", link[1])
		}
	}
}
