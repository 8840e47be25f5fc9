package fault

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/report"
)

// The page explains each scenario, all of its variants together.
func TestTheDocumentsNameAndCountTheScenarios(t *testing.T) {
	t.Parallel()
	page, scenarios := read(t, "docs/faults.md"), map[string]bool{}
	for _, s := range Scenarios {
		scenario, _, _ := strings.Cut(s.Name, "/")
		scenarios[scenario] = true
		if !strings.Contains(page, "`"+scenario+"`") {
			t.Errorf("docs/faults.md does not explain %s", scenario)
		}
	}
	want := fmt.Sprintf("plays %d scenarios in %d variants", len(scenarios), len(Scenarios))
	if !strings.Contains(read(t, "README.md"), want) {
		t.Errorf("README.md does not say that the lab %s", want)
	}
}

// read returns the text of a document.
func read(t *testing.T, document string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + document)
	must.Succeed(t, err)
	return string(text)
}

// TestEachClaimIsShownInWords finds claims that begin with a constant for which reports have no words.
func TestEachClaimIsShownInWords(t *testing.T) {
	t.Parallel()
	constant := regexp.MustCompile(`^[a-z]+-[a-z-]+\b`)
	for _, s := range Scenarios {
		for _, c := range s.Claims {
			if words := (report.Fault{Claimed: c.Words}).ClaimWords(); constant.MatchString(words) {
				t.Errorf("a claim of %s is shown as %q", s.Name, words)
			}
		}
	}
}
