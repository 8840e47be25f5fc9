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

// Every strategy has a page in pagesDir. It is made from the catalogue, the figures of the lab and the bench, and from
// these files:
//
//	docs/statements.json   what goes over the wire, recorded by TestStatementsAreThoseOnTheWire with -update
//	docs/explored.json     what explorations found: make explored
//	docs/production.json   who describes it, written by hand
const (
	pagesDir       = "docs/strategies"
	statementsFile = "docs/statements.json"
	exploredFile   = "docs/explored.json"
	productionFile = "docs/production.json"
)

var exploreReport = flag.String("explored", "", "with -update: take what was explored from this explore.json")

// statements are what strategies send. The test that records them describes the fields.
type statements struct {
	Tables     map[string]string
	Scripts    map[string]string
	Strategies map[string]map[string][]message
}

type message struct {
	Store, Text, Reply string
	Times              int
}

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
		writeFile(t, exploredFile, newExplored(t, *exploreReport).json(t))
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
	statements
	measured   *measurement // under the workload plenty; nil: it was not
	claimed    []string     // what comes of three faults
	bench      []string     // figures of the bench
	explored   *exploredStrategy
	bounds     string
	described  []production
	onPostgres string // its scripts for PostgreSQL; empty: there are none
}

func newPage(t *testing.T, s stock.Strategy) page {
	t.Helper()
	f := readFigures(t)
	e := readJSON[explored](t, exploredFile)
	p := page{
		Strategy: s, statements: readJSON[statements](t, statementsFile), measured: f.row(s.Name, 2, "plenty"),
		claimed: f.faults(s), bench: benchFigures(t, s.Name), bounds: e.Bounds, onPostgres: onPostgres(t, s.Name),
	}
	if found, ok := e.Strategies[s.Name]; ok {
		p.explored = &found
	}
	for _, d := range readJSON[[]production](t, productionFile) {
		if slices.Contains(d.Strategies, s.Name) {
			p.described = append(p.described, d)
		}
	}
	return p
}

const cancellation = "cancellation of the sale"

func (p page) text() string {
	var b strings.Builder
	fmt.Fprintln(&b, p.introduction())
	if requests := p.statements.Strategies[p.Name]; len(requests) > 0 {
		fmt.Fprint(&b, "\n## What goes over the wire\n\n"+
			"Item 42 is sold, two units at a time. [How to read this](../strategies.md#the-pages-of-the-strategies).\n")
		shown := map[string]string{}
		for _, what := range []string{
			"sale", "refusal", "hold", "confirmation", "cancellation of a hold", "sale with a key", "the same again",
			"the same again when too few units are left", "refusal with a key", cancellation,
		} {
			title, text := strings.ToUpper(what[:1])+what[1:], asText(requests[what], shown)
			for _, m := range requests[what] {
				if shown[m.Text] == "" {
					shown[m.Text] = title
				}
			}
			switch {
			case text == "":
			case what == "sale" || what == "refusal":
				fmt.Fprintf(&b, "\n**%s**\n\n```text\n%s```\n", title, text)
			default:
				b.WriteString(folded(title, text))
			}
		}
		p.writeSources(&b, requests)
	}
	b.WriteString(p.onPostgres)
	fmt.Fprint(&b, "\n## What it promises\n\n", p.promises(), p.found())
	fmt.Fprint(&b, "\n## What it costs\n\n", p.costs())
	if len(p.described) > 0 {
		fmt.Fprint(&b, "\n## Who describes it\n\n")
		for _, d := range p.described {
			fmt.Fprintf(&b, "- [%s](%s): %s\n", d.Who, d.URL, d.Says)
		}
	}
	return b.String()
}

// onPostgres shows the scripts for PostgreSQL that do the same as a strategy, and links to those with a mistake.
func onPostgres(t *testing.T, strategy string) string {
	t.Helper()
	var scripts, mistakes strings.Builder
	for _, d := range readFiles(t, ".star") {
		if filepath.Dir(d.path) != scriptsDir+"/postgres" {
			continue
		}
		link := fmt.Sprintf("[`%s`](../../%s)", strings.TrimSuffix(filepath.Base(d.path), ".star"), d.path)
		if title, program, ok := strings.Cut(d.text, "\n# Strategy: "+strategy+".\n"); ok {
			fmt.Fprintf(&scripts, "\n%s: %s\n\n```text\n%s```\n", link, asProse(title), program)
		}
		if title, program, ok := strings.Cut(d.text, "\n# Mistake: "+strategy+".\n"); ok {
			fmt.Fprintf(&mistakes, "- %s (%s): %s\n", link, expected(program), asProse(title))
		}
	}
	if scripts.Len() == 0 {
		return ""
	}
	return "\n## On PostgreSQL\n\nThe service uses MySQL. A [script](../scripts.md#postgresql) does the same on " +
		"PostgreSQL, and every interleaving of two sessions is right.\n" + scripts.String() +
		"\nMistakes that `loadtest explore --engine postgres` finds:\n\n" + mistakes.String()
}

// asProse returns the text of a comment.
func asProse(comment string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(comment, "# ", "")), " ")
}

// introduction says what a strategy does, in three sentences.
func (p page) introduction() string {
	where := map[stock.Store]string{
		stock.MySQL: "in a row of MySQL", stock.Slots: "in 16 rows of MySQL", stock.Redis: "in a key of Redis",
		stock.Units: "in a row of MySQL for each unit", stock.NoStore: "nowhere",
	}
	second := "The stock is " + where[p.Stores[0]]
	for _, store := range p.Stores[1:] {
		second += ", or " + where[store]
	}
	var needs []string
	for _, need := range p.Needs {
		needs = append(needs, needNames[need])
	}
	if len(needs) > 0 {
		second += "; it needs " + strings.Join(needs, " and ")
	}
	third := "An idempotency key sells once, and gets its first answer again."
	if !p.Idempotent() {
		third = "It keeps no idempotency keys: " + p.NoKeys + "."
	}
	first := p.Summary
	if p.Control {
		first = "**A control, which is wrong on purpose.** " + first
	}
	return fmt.Sprintf("%s %s. %s\n\n`go run ./loadtest run --quick --strategies %s` judges it on your machine. "+
		"[All strategies](../strategies.md), [which one?](../choose.md)", first, second, third, p.Name)
}

var needNames = map[stock.Need]string{
	stock.NeedMySQL: "MySQL", stock.NeedInnoDB: "MySQL or MariaDB (not TiDB)", stock.NeedRedis: "Redis",
	stock.NeedRedisReplica: "a Redis replica", stock.NeedRedlock: "independent Redis masters", stock.NeedEtcd: "etcd",
	stock.NeedZooKeeper: "ZooKeeper",
}

// folded shows text under a title that has to be opened.
func folded(title, text string) string {
	return fmt.Sprintf("\n<details><summary>%s</summary>\n\n```text\n%s\n```\n\n</details>\n", title,
		strings.TrimSpace(text))
}

// asText shows messages as they can be typed, and their replies as comments. Long ones that were shown before are not
// shown again: shown has the title under which they were.
func asText(messages []message, shown map[string]string) string {
	var b strings.Builder
	mixed := slices.ContainsFunc(messages, func(m message) bool { return m.Store != messages[0].Store })
	last := ""
	for _, m := range messages {
		if m.Store != last && mixed {
			fmt.Fprintf(&b, "-- %s\n", map[string]string{"mysql": "MySQL", "redis": "Redis"}[m.Store])
		}
		last = m.Store
		if title := shown[m.Text]; title != "" && len(m.Text) > maxColumns {
			fmt.Fprintf(&b, "-- the message of %q\n", title)
		} else {
			writeMessage(&b, m)
		}
		if !regexp.MustCompile(`^(SET TRANSACTION.*|START TRANSACTION|COMMIT|ROLLBACK)$`).MatchString(m.Text) {
			fmt.Fprintf(&b, "--> %s\n", m.Reply)
		}
	}
	return b.String()
}

func writeMessage(b *strings.Builder, m message) {
	lines, end := strings.Split(m.Text, "\n"), ""
	if m.Store == "mysql" {
		lines, end = strings.Split(m.Text, "; "), ";"
	}
	switch {
	case m.Times > 1:
		fmt.Fprintf(b, "-- to each of %d servers:\n", m.Times)
	case len(lines) > 1:
		b.WriteString("-- in one message:\n")
	}
	for _, line := range lines {
		b.WriteString(strings.ReplaceAll(strings.TrimSpace(wrap(line+end, 100)), "\n", "\n    ") + "\n")
	}
}

// writeSources shows the tables and the scripts that messages name, folded.
func (p page) writeSources(b *strings.Builder, requests map[string][]message) {
	var all strings.Builder
	for what, messages := range requests {
		if what == cancellation {
			continue // its query names the tables of every store
		}
		for _, m := range messages {
			all.WriteString(m.Text + "\n")
		}
	}
	var tables []string
	for _, name := range slices.Sorted(maps.Keys(p.Tables)) {
		if regexp.MustCompile(`\b` + name + `\b`).MatchString(all.String()) {
			tables = append(tables, p.Tables[name]+";")
		}
	}
	if len(tables) > 0 {
		b.WriteString(folded("Tables", strings.Join(tables, "\n")))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Scripts)) {
		if strings.Contains(all.String(), "<"+name+">") {
			b.WriteString(folded("Script "+name, p.Scripts[name]))
		}
	}
	for _, need := range []stock.Need{stock.NeedEtcd, stock.NeedZooKeeper} {
		if name := needNames[need]; slices.Contains(p.Needs, need) {
			fmt.Fprintf(b, "\nThe lock is taken before the first of these messages and given back after the last. "+
				"What goes to %s is not recorded: see `internal/locks/%s.go`.\n", name, strings.ToLower(name))
		}
	}
}

// promises shows the claim, and beside it what the lab measured.
func (p page) promises() string {
	var b strings.Builder
	c := p.Claim
	row(&b, "what happens", "it promises", "the lab measured")
	row(&b, "---", "---", "---")
	found := "not measured"
	if p.measured != nil {
		found = p.measured.found()
	}
	row(&b, "buyers at one replica", behaviours[c.OneReplica], "")
	row(&b, "buyers at two replicas", behaviours[c.TwoReplicas], found)
	row(&b, "units are put back meanwhile", behaviours[c.Restocked], "")
	measured := func(i int) string {
		switch found := p.claimed[i]; {
		case strings.HasSuffix(found, notMeasured):
			return "not measured"
		case i == 2 && p.Idempotent() && strings.HasPrefix(found, "**"): // as long as figures are kept from before keys
			return "without a key: " + found
		default:
			return found
		}
	}
	row(&b, "the holder dies", onCrash(c), measured(0))
	row(&b, "the holder is stopped, and goes on", onPause(c), "")
	row(&b, "its write comes late", withCaveat(c.LateWrite, c.LateCaveat), measured(1))
	row(&b, "the client sends again", c.ClientRetry.String(), measured(2))
	b.WriteString("\nMore: [faults](../faults.md), [what a failover loses](../failover.md).\n")
	return b.String()
}

// found says what an exploration found.
func (p page) found() string {
	e := p.explored
	if e == nil {
		return "\nIt was not explored.\n"
	}
	within := fmt.Sprintf("%d schedules were executed: %s.", e.Schedules, p.bounds)
	if p.Idempotent() {
		within += " Without a key, a request that is sent again sells twice."
	}
	if len(e.Damage) == 0 {
		return fmt.Sprintf("\n**No trace breaks it.** %s\n", within)
	}
	var names []string
	damages := map[string][]string{}
	for _, d := range e.Damage {
		name := cmp.Or(d.Fault, "no fault")
		if damages[name] == nil {
			names = append(names, name)
		}
		damages[name] = append(damages[name], d.Kind)
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%s)", name, strings.Join(damages[name], ", "))
	}
	return fmt.Sprintf("\n**What breaks it**, by [fault](../explore.md#faults): %s. %s\n%s",
		strings.Join(names, "; "), within, folded("The smallest trace", e.Trace))
}

func (p page) costs() string {
	m := p.measured
	if m == nil {
		return "Not measured.\n"
	}
	text := ""
	if m.P50 > 0 {
		text = fmt.Sprintf("Of 100 users who buy one item: half are answered within %s ms", number(m.P50))
		if m.P99 > 0 {
			text += fmt.Sprintf(", 99 %% within %s ms", number(m.P99))
		}
		text += ". "
	}
	if m.Goodput > 0 {
		text = fmt.Sprintf("%s units per second, %s × noop. ", m.rate(), m.share()) + text
	}
	if len(p.bench) > 0 {
		text += "In the bench, with a load of its own: " + strings.Join(p.bench, ", ") + ". "
	}
	return text + "[Conditions](../performance.md).\n"
}

// inWords are the parts of the bench's table that are no names.
var inWords = map[string]string{"service": "the service"}

// benchFigures returns the cells of the bench's table that tell what a sale costs.
func benchFigures(t *testing.T, name string) (figures []string) {
	t.Helper()
	text, err := os.ReadFile("docs/performance.md")
	must.Succeed(t, err)
	_, table, _ := strings.Cut(string(text), "<!-- table: bench -->")
	table, _, _ = strings.Cut(table, sectionEnds)
	header := strings.Split(regexp.MustCompile(`(?m)^\| \|.*$`).FindString(table), "|")
	for _, label := range []string{name, name + ", key"} {
		cells := strings.Split(regexp.MustCompile(`(?m)^\| `+label+` \|.*$`).FindString(table), "|")
		for i, cell := range cells {
			column, cell := strings.TrimSpace(header[i]), strings.TrimSpace(cell)
			part, isTime := strings.CutSuffix(column, " µs")
			switch {
			case cell == "" || cell == "0":
			case isTime && label == name && part != "load" && part != "nginx":
				figures = append(figures, fmt.Sprintf("%s µs of CPU per sale in %s", cell, cmp.Or(inWords[part], part)))
			case column == "× without key":
				figures = append(figures, cell+" × as many sales with a key as without")
			}
		}
	}
	return figures
}
