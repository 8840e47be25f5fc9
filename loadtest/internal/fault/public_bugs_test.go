package fault

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/mutants"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// publicBug is a row of docs/public-bugs.md.
type publicBug struct {
	name string // with its links
	// What breaks and what survives: strategies and practices, or scenarios if the command plays several.
	breaks, survives []string
	// What the command plays. Strategies may be practices.
	scenarios, strategies []string
	unreadable            string
}

// The table promises that each command can be run, and that it shows what the table says. What is claimed, and what the
// lab has measured and keeps in docs/lab.json, must agree.
func TestPublicBugsAreReplayedAsTheTableSays(t *testing.T) {
	t.Parallel()
	measured := measuredFaults(t)
	for _, b := range readPublicBugs(t) {
		if b.unreadable != "" {
			t.Errorf("%s: %s", b.name, b.unreadable)
			continue
		}
		played := b.strategies
		if b.comparesScenarios() {
			played = b.scenarios
		}
		if shown := slices.Concat(b.breaks, b.survives); !slices.Equal(played, shown) {
			t.Errorf("%s: the command plays %q, the row shows %q", b.name, played, shown)
		}
		for _, story := range b.scenarios {
			for _, strategy := range b.strategies {
				b.check(t, story, strategy, measured)
			}
		}
	}
}

// comparesScenarios reports whether the columns of the row name scenarios, because a server's settings matter.
func (b publicBug) comparesScenarios() bool { return len(b.scenarios) > 1 }

// check compares the row with what is claimed and measured about one cell.
func (b publicBug) check(t *testing.T, story, strategy string, measured map[string]report.Outcome) {
	t.Helper()
	i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == story })
	if i < 0 {
		t.Errorf("%s: no scenario is named %q", b.name, story)
		return
	}
	claim, ok := claimOf(t, Scenarios[i], strategy)
	if !ok {
		t.Errorf("%s: no strategy or practice named %q plays %s", b.name, strategy, story)
		return
	}
	outcomes := slices.Clone(claim.Allowed)
	if outcome, ok := measured[story+" "+strategy]; ok {
		outcomes = append(outcomes, outcome)
	}
	shown := strategy
	if b.comparesScenarios() {
		shown = story
	}
	breaks := slices.Contains(b.breaks, shown)
	for _, outcome := range outcomes {
		// Blocked may be bad or good: it depends on what else is in the row.
		if breaks && outcome == report.Safe || !breaks && (outcome == report.Unsafe || outcome == report.Unavailable) {
			t.Errorf("%s: %s is %s in %s", b.name, strategy, outcome, story)
		}
	}
}

// claimOf returns what is expected of a strategy or a practice that plays a scenario.
func claimOf(t *testing.T, sc Scenario, name string) (claim Claim, ok bool) {
	t.Helper()
	for _, p := range sc.Practices {
		if p.Name == name {
			return p.Claim, true
		}
	}
	for _, s := range catalogue.Strategies {
		if listed := asListed(t, s); s.Name == name && sc.Applies(listed) == "" {
			return sc.Claim(listed), true
		}
	}
	return Claim{}, false
}

// asListed is a strategy of the catalogue as the service lists it.
func asListed(t *testing.T, s stock.Strategy) (listed scenario.Strategy) {
	t.Helper()
	var reservations []stock.Store
	if s.Name == "reserve" { // the service finds out when it makes the strategy
		reservations = s.Stores
	}
	text, err := json.Marshal(map[string]any{
		"name": s.Name, "control": s.Control, "claim": s.Claim, "stores": s.Stores, "needs": s.NeedsOn(s.Stores[0]),
		"write_behind": s.WriteBehind, "write_through": s.WriteThrough, "reservations": reservations,
	})
	if err == nil {
		err = json.Unmarshal(text, &listed)
	}
	if err != nil {
		t.Fatal(err)
	}
	return listed
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
		"^`go run ./loadtest faults --scenarios ([a-z0-9/,-]+) --strategies ([a-z0-9,-]+)`$")
	quotedName = regexp.MustCompile("`([a-z0-9/-]+)`")
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
			b.scenarios, b.strategies = strings.Split(command[1], ","), strings.Split(command[2], ",")
			b.breaks, b.survives = quotedNames(cells[2]), quotedNames(cells[3])
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

func quotedNames(cell string) (names []string) {
	for _, match := range quotedName.FindAllStringSubmatch(cell, -1) {
		names = append(names, match[1])
	}
	return names
}

// measuredFaults returns what came of each scenario and strategy, such as "unsafe" for "late-write none".
func measuredFaults(t *testing.T) map[string]report.Outcome {
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
	outcomes := map[string]report.Outcome{}
	for _, row := range figures.Rows {
		for story, outcome := range row.Faults {
			word, _, _ := strings.Cut(outcome, " ") // "blocked 2.0 s"
			outcomes[story+" "+row.Strategy] = report.Outcome(word)
		}
	}
	if len(outcomes) == 0 {
		t.Fatal("docs/lab.json has no faults")
	}
	return outcomes
}
