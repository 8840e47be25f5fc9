package fault

import (
	"os"
	"strings"
	"testing"
)

// The page explains each story, all of its variants together, and its table shows what the lab has measured.
func TestEachScenarioIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	var prose strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") {
			prose.WriteString(line)
		}
	}
	for _, s := range Scenarios {
		story, _, _ := strings.Cut(s.Name, "/")
		if !strings.Contains(prose.String(), "`"+story+"`") {
			t.Errorf("docs/faults.md does not explain %s", story)
		}
		if !strings.Contains(string(text), "\n| `"+s.Name+"` |") {
			t.Errorf("docs/faults.md has no row for %s: make faults FAULTS='--markdown out/faults.md', "+
				"and go test . -update -faults-table out/faults.md", s.Name)
		}
	}
}
