package fault

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/stock/catalogue"
	"stock/internal/stock/mutants"
)

// publicBug is a row of docs/public-bugs.md.
type publicBug struct {
	name             string // with its links
	breaks, survives []string
	scenario         string
	replayed         []string // the strategies of the command
	unreadable       string
}

// The table promises that each command can be run, and that it shows what the table says. What the lab has measured,
// and keeps in docs/lab.json, must agree.
func TestPublicBugsAreReplayedAsTheTableSays(t *testing.T) {
	t.Parallel()
	var known []string
	for _, s := range catalogue.Strategies {
		known = append(known, s.Name)
	}
	measured := measuredFaults(t)
	for _, b := range readPublicBugs(t) {
		if b.unreadable != "" {
			t.Errorf("%s: %s", b.name, b.unreadable)
			continue
		}
		if _, err := Find([]string{b.scenario}); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
		if shown := slices.Concat(b.breaks, b.survives); !slices.Equal(b.replayed, shown) {
			t.Errorf("%s: the command plays %q, the row shows %q", b.name, b.replayed, shown)
		}
		for _, strategy := range b.replayed {
			if !slices.Contains(known, strategy) {
				t.Errorf("%s: no strategy is named %q", b.name, strategy)
			}
			outcome, ok := measured[b.scenario+" "+strategy]
			bad := outcome == "unsafe" || strings.HasPrefix(outcome, "unavailable")
			if ok && bad != slices.Contains(b.breaks, strategy) {
				t.Errorf("%s: the lab measured %q for %s", b.name, outcome, strategy)
			}
		}
	}
}

func TestTheMutantsOfPublicBugsExist(t *testing.T) {
	t.Parallel()
	var known []string
	for _, m := range mutants.All() {
		known = append(known, m.Name)
	}
	named := regexp.MustCompile(`--mutants ([a-z-]+)`).FindAllStringSubmatch(publicBugs(t), -1)
	if len(named) == 0 {
		t.Error("docs/public-bugs.md names no mutant")
	}
	for _, match := range named {
		if !slices.Contains(known, match[1]) {
			t.Errorf("no mutant is named %q", match[1])
		}
	}
}

var (
	replayCommand = regexp.MustCompile(
		"^`go run ./loadtest faults --scenarios ([a-z0-9/-]+) --strategies ([a-z0-9,-]+)`$")
	strategyName = regexp.MustCompile("`([a-z0-9-]+)`")
)

func readPublicBugs(t *testing.T) (bugs []publicBug) {
	t.Helper()
	for line := range strings.Lines(publicBugs(t)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if !strings.HasPrefix(line, "| [") {
			continue
		}
		b := publicBug{name: cells[0]}
		if len(cells) != 5 {
			b.unreadable = "a row has five cells"
		} else if command := replayCommand.FindStringSubmatch(cells[4]); command == nil {
			b.unreadable = "this is not a command of loadtest faults: " + cells[4]
		} else {
			b.scenario, b.replayed = command[1], strings.Split(command[2], ",")
			b.breaks, b.survives = strategies(cells[2]), strategies(cells[3])
		}
		bugs = append(bugs, b)
	}
	if len(bugs) == 0 {
		t.Fatal("docs/public-bugs.md has no bugs")
	}
	return bugs
}

func publicBugs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/public-bugs.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func strategies(cell string) (names []string) {
	for _, match := range strategyName.FindAllStringSubmatch(cell, -1) {
		names = append(names, match[1])
	}
	return names
}

// measuredFaults returns what came of each scenario and strategy, such as "unsafe" for "late-write none".
func measuredFaults(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/lab.json")
	if err != nil {
		t.Fatal(err)
	}
	var figures struct {
		Rows []struct {
			Strategy string
			Faults   map[string]string
		}
	}
	if err := json.Unmarshal(text, &figures); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]string{}
	for _, row := range figures.Rows {
		for scenario, outcome := range row.Faults {
			outcomes[scenario+" "+row.Strategy] = outcome
		}
	}
	if len(outcomes) == 0 {
		t.Fatal("docs/lab.json has no faults")
	}
	return outcomes
}
