package stock_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
)

// Every strategy has a page in pagesDir, of at most maxPageWords. Its table is made from the catalogue, the figures of
// the lab, the scripts that name the strategy, and these files. What no script can show is written below the table.
//
//	docs/explored.json     what explorations found: make explored
//	docs/production.json   who describes it, written by hand
const (
	pagesDir       = "docs/strategies"
	exploredFile   = "docs/explored.json"
	productionFile = "docs/production.json"
	maxPageWords   = 300
)

var exploreReport = flag.String("explored", "", "with -update: take what was explored from this explore.json")

// production is what somebody writes about strategies, and where.
type production struct {
	Strategies     []string
	Who, Says, URL string
}

func readJSON[T any](t *testing.T, path string) (v T) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// TestEveryStrategyHasAPage makes missing pages with -update. TestTablesAreUpToDate fills them.
func TestEveryStrategyHasAPage(t *testing.T) {
	if *exploreReport != "" {
		writeFile(t, exploredFile, exploredJSON(t, newExplored(t, *exploreReport)))
	}
	var want []string
	for _, s := range strategies {
		path := filepath.Join(pagesDir, s.Name+".md")
		want = append(want, path)
		if _, err := os.Stat(path); err != nil && *update {
			writeFile(t, path, fmt.Appendf(nil, "# %s\n\n<!-- table: strategy %[1]s -->\n\n%s", s.Name, sectionEnds))
		}
	}
	found, err := filepath.Glob(pagesDir + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	isIn := func(list []string) func(string) bool {
		return func(page string) bool { return slices.Contains(list, page) }
	}
	missing := slices.DeleteFunc(slices.Clone(want), isIn(found))
	superfluous := slices.DeleteFunc(found, isIn(want))
	if len(missing) > 0 {
		t.Errorf("missing pages: %q: run go test . -update", missing)
	}
	if len(superfluous) > 0 {
		t.Errorf("pages of no strategy: %q: remove them", superfluous)
	}
}

func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	for _, d := range readDocuments(t) {
		if words := len(strings.Fields(d.text)); filepath.Dir(d.path) == pagesDir && words > maxPageWords {
			t.Errorf("%s has %d words, more than %d", d.path, words, maxPageWords)
		}
	}
}

// roles finds what a script is for, such as "# Strategy: none, mutex.".
var roles = regexp.MustCompile(`(?m)^# (Strategy|With a key|Mistake): ([a-z, -]+)\.$`)

func TestScriptsNameStrategies(t *testing.T) {
	t.Parallel()
	for _, d := range readFiles(t, ".star") {
		for _, role := range roles.FindAllStringSubmatch(d.text, -1) {
			for _, name := range names(d, role[1]) {
				if strategy(name) == nil {
					t.Errorf("%s names %s, which is not in the catalogue", d.path, name)
				}
			}
			if right := expected(d.text) == "right"; right && role[1] == "Mistake" || !right && role[1] == "With a key" {
				t.Errorf("%s: %s, and it is %s", d.path, role[1], expected(d.text))
			}
		}
	}
}

func TestWhoDescribesAStrategyNamesStrategies(t *testing.T) {
	t.Parallel()
	for _, p := range readJSON[[]production](t, productionFile) {
		for _, name := range p.Strategies {
			if strategy(name) == nil {
				t.Errorf("%s names %s, which is not in the catalogue", productionFile, name)
			}
		}
		if p.Who == "" || p.Says == "" || !strings.HasPrefix(p.URL, "https://") {
			t.Errorf("%s: %+v lacks who says what, or where", productionFile, p)
		}
	}
}

func TestTheTableOfFailoversNamesEveryStrategy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/failover.md")
	must.Succeed(t, err)
	for _, s := range strategies {
		if !strings.Contains(string(text), "`"+s.Name+"`") {
			t.Errorf("docs/failover.md does not say what a failover of %s loses", s.Name)
		}
	}
}

// page is what the page of a strategy is made from.
type page struct {
	stock.Strategy
	measured  *measurement // under the workload plenty; nil: it was not
	explored  *exploredStrategy
	described []production
	scripts   map[string][]document // by role; those for PostgreSQL are last
	shown     map[string]bool       // Lua scripts and tables that need not be shown again
}

func newPage(t *testing.T, s stock.Strategy) page {
	t.Helper()
	p := page{Strategy: s, scripts: map[string][]document{}, shown: map[string]bool{}}
	p.measured = readFigures(t).row(s.Name, 2, "plenty")
	for _, e := range readJSON[[]exploredStrategy](t, exploredFile) {
		if e.Strategy == s.Name {
			p.explored = &e
		}
	}
	for _, d := range readJSON[[]production](t, productionFile) {
		if slices.Contains(d.Strategies, s.Name) {
			p.described = append(p.described, d)
		}
	}
	scripts := readFiles(t, ".star")
	slices.SortStableFunc(scripts, func(a, b document) int {
		return cmp.Compare(strings.Count(a.path, "/"), strings.Count(b.path, "/"))
	})
	for _, d := range scripts {
		for _, role := range []string{"Strategy", "With a key", "Mistake"} {
			if slices.Contains(names(d, role), s.Name) {
				p.scripts[role] = append(p.scripts[role], d)
			}
		}
	}
	return p
}

// names returns the strategies for which a script has a role.
func names(d document, role string) []string {
	for _, found := range roles.FindAllStringSubmatch(d.text, -1) {
		if found[1] == role {
			return strings.Split(found[2], ", ")
		}
	}
	return nil
}

func (p page) text(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.introduction())
	sales := p.scripts["Strategy"]
	if len(sales) > 0 {
		fmt.Fprintf(&b, "\n## A sale\n%s", p.listings(t, sales))
	}
	b.WriteString(p.withAKey(t))
	fmt.Fprint(&b, "\n## Promises\n\n", p.promises(), p.found())
	fmt.Fprint(&b, "\n## Costs\n\n", p.costs())
	b.WriteString(p.watchOut())
	return b.String()
}

// introduction says what a strategy does.
func (p page) introduction() string {
	text := p.Summary
	if p.Control {
		text = "**A control, which is wrong on purpose.** " + text
	}
	var needs []string
	for _, need := range p.Needs {
		if name := needNames[need]; name != "" {
			needs = append(needs, name)
		}
	}
	if len(needs) > 0 {
		text += " It needs " + strings.Join(needs, " and ") + "."
	}
	return text + " [All strategies](../strategies.md)"
}

// needNames are what few strategies need.
var needNames = map[stock.Need]string{
	stock.NeedInnoDB: "MySQL or MariaDB (not TiDB)", stock.NeedRedisReplica: "a Redis replica",
	stock.NeedRedlock: "independent Redis masters", stock.NeedEtcd: "etcd", stock.NeedZooKeeper: "ZooKeeper",
}

// listings shows scripts of a page: the name of each, and what it executes. Two that execute the same are shown once.
func (p page) listings(t *testing.T, scripts []document) string {
	t.Helper()
	var b strings.Builder
	var links []string
	for i, d := range scripts {
		l := newListing(t, d)
		links = append(links, fmt.Sprintf("[%s](../../%s)", l.engine(d), d.path))
		if i+1 < len(scripts) && newListing(t, scripts[i+1]).text.String() == l.text.String() {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n\n", strings.Join(links, " and "))
		links = nil
		if lua := l.luas.String(); lua != "" && !p.shown[lua] {
			p.shown[lua] = true
			fmt.Fprintf(&b, "```lua\n%s```\n\n", lua)
		}
		fmt.Fprintf(&b, "```%s\n", l.language())
		for _, table := range l.tables {
			if !p.shown[table] {
				p.shown[table] = true
				b.WriteString(wrap(table, 100))
			}
		}
		fmt.Fprintf(&b, "%s```\n", &l.text)
	}
	return b.String()
}

func (l *listing) engine(d document) string {
	switch {
	case strings.Contains(d.path, "/postgres/"):
		return "PostgreSQL"
	case !l.isSQL:
		return "Redis"
	case l.luas.Len() > 0 || l.isRedis:
		return "Redis, and MySQL"
	}
	return "MySQL"
}

func (l *listing) language() string {
	if l.isSQL {
		return "sql"
	}
	return "text"
}

// withAKey shows a sale with an idempotency key, or says where it is shown.
func (p page) withAKey(t *testing.T) string {
	t.Helper()
	scripts := p.scripts["With a key"]
	var like, how string
	switch {
	case !p.Idempotent():
		return ""
	case len(scripts) == 0 && p.Stores[0] == stock.Redis:
		like, how = "redis-script", "Keep the answer with the stock,"
	case len(scripts) == 0:
		like, how = "for-update", "INSERT the key first,"
	case slices.Contains(names(scripts[0], "Strategy"), p.Name):
		return "\n## With a key\n\nThe sale above has one.\n"
	case names(scripts[0], "With a key")[0] != p.Name:
		like, how = names(scripts[0], "With a key")[0], "INSERT the key in the same transaction,"
	default:
		return "\n## With a key\n" + p.listings(t, scripts)
	}
	return fmt.Sprintf("\n## With a key\n\n%s as [`%s`](%[2]s.md#with-a-key) does.\n", how, like)
}

// promises shows the claim.
func (p page) promises() string {
	c := p.Claim
	return fmt.Sprintf("**Under load:** %s. **Holder dies:** %s. **Late write:** %s. **Sent again:** %s.\n",
		underLoad(c), onCrash(c), withCaveat(c.LateWrite, c.LateCaveat), c.ClientRetry)
}

// found says what an exploration found.
func (p page) found() string {
	e := p.explored
	if e == nil {
		return "\nIt was not explored.\n"
	}
	if len(e.Damage) == 0 {
		return fmt.Sprintf("\nAll [%d schedules](../strategies.md#the-pages-of-the-strategies) are right.\n", e.Schedules)
	}
	var damage []string
	for _, kind := range slices.Sorted(maps.Keys(e.Damage)) {
		damage = append(damage, fmt.Sprintf("%s (%s)", kind, strings.Join(e.Damage[kind], ", ")))
	}
	return fmt.Sprintf("\nDamage by [fault](../explore.md#faults): %s. The shortest trace:\n\n```text\n%s```\n",
		strings.Join(damage, "; "), e.Trace)
}

func (p page) costs() string {
	m := p.measured
	if m == nil || m.Goodput == 0 {
		return "Not measured.\n"
	}
	text := fmt.Sprintf("%s units/s, %s × noop", m.rate(), m.share())
	if m.P50 > 0 {
		text += fmt.Sprintf("; median %s ms", number(m.P50))
	}
	return text + ". [Conditions](../performance.md)\n"
}

// watchOut names who describes the strategy, and the scripts that show how to do it wrong.
func (p page) watchOut() string {
	var b strings.Builder
	for _, d := range p.described[:min(len(p.described), 1)] {
		fmt.Fprintf(&b, "- [%s](%s): %s\n", d.Who, d.URL, d.Says)
	}
	var mistakes []string
	for _, d := range p.scripts["Mistake"][:min(len(p.scripts["Mistake"]), 3)] {
		mistakes = append(mistakes, fmt.Sprintf("[%s](../../%s)", strings.TrimSuffix(filepath.Base(d.path), ".star"), d.path))
	}
	if len(mistakes) > 0 {
		fmt.Fprintf(&b, "- Mistakes: %s\n", strings.Join(mistakes, ", "))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n## Watch out\n\n" + b.String()
}
