package fault

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
)

// publicBug is a bug of docs/public-bugs.md that a scenario replays, and what is played: two strategies in one
// scenario, or one in two scenarios. The first breaks, and the second survives.
type publicBug struct {
	name                  string
	scenarios, strategies []string
}

// The document promises that each command can be run, and that it shows what the document says.
func TestPublicBugsAreReplayedAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	for _, b := range readPublicBugs(t) {
		if len(b.scenarios)*len(b.strategies) != 2 {
			t.Errorf("%s: one plays %q in %q, want two to compare", b.name, b.strategies, b.scenarios)
			continue
		}
		b.check(t, b.scenarios[0], b.strategies[0], true)
		b.check(t, b.scenarios[len(b.scenarios)-1], b.strategies[len(b.strategies)-1], false)
	}
}

// check compares the document with what is claimed about one cell.
func (b publicBug) check(t *testing.T, scenario, strategy string, breaks bool) {
	t.Helper()
	i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == scenario })
	if i < 0 {
		t.Errorf("%s: no scenario is named %q", b.name, scenario)
		return
	}
	claim, ok := claimOf(t, Scenarios[i], strategy)
	if !ok {
		t.Errorf("%s: no strategy named %q plays %s", b.name, strategy, scenario)
		return
	}
	for _, outcome := range claim.Effects {
		// Blocked may be bad or good: it depends on what it is compared with.
		if breaks && outcome == report.Safe || !breaks && (outcome == report.Unsafe || outcome == report.Unavailable) {
			t.Errorf("%s: %s is %s in %s", b.name, strategy, outcome, scenario)
		}
	}
}

// claimOf returns what is expected of a strategy that plays a scenario.
func claimOf(t *testing.T, sc Scenario, name string) (claim Claim, ok bool) {
	t.Helper()
	for _, s := range catalogue.Strategies {
		if listed := asListed(t, s); s.Name == name && sc.Applies(listed) {
			return sc.Claim(listed), true
		}
	}
	return Claim{}, false
}

// asListed is a strategy of the catalogue as the service lists it.
func asListed(t *testing.T, s stock.Strategy) (listed load.Strategy) {
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
	must.Succeed(t, err)
	return listed
}

// publicBugItem finds an item of a list with what is given to loadtest faults.
var publicBugItem = regexp.MustCompile(
	`(?m)^- \[(.*?)\](?:.*\n  )*?` + "`--scenarios ([a-z0-9/,-]+) --strategies ([a-z0-9,-]+)`$")

func readPublicBugs(t *testing.T) (bugs []publicBug) {
	t.Helper()
	for _, item := range publicBugItem.FindAllStringSubmatch(publicBugs(t), -1) {
		bugs = append(bugs, publicBug{item[1], strings.Split(item[2], ","), strings.Split(item[3], ",")})
	}
	if named := strings.Count(publicBugs(t), "`--scenarios "); len(bugs) != named || named == 0 {
		t.Errorf("%d of %d bugs of docs/public-bugs.md can be read", len(bugs), named)
	}
	return bugs
}

func publicBugs(t *testing.T) string {
	t.Helper()
	return read(t, "docs/public-bugs.md")
}
