package stock_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
)

// The tables of the documents are made from the catalogue and from the results of the lab and the bench of the locks.
// These commands rewrite them, after a change of the catalogue and after new measurements:
//
//	go test . -update
//	go test . -update -lab out/lab/report.json -locks-table out/bench-locks.md
//	go test . -update -record out/record
var (
	update     = flag.Bool("update", false, "rewrite the generated parts of the documents")
	labReport  = flag.String("lab", "", "with -update: take the figures from this report.json of loadtest run")
	locksTable = flag.String("locks-table", "", "with -update: show this file of make bench-locks BENCH='-markdown FILE'")
)

// strategies is the catalogue, from which the tables of strategies are made.
var strategies = catalogue.Strategies

const (
	figuresFile = "docs/lab.json"
	sectionEnds = "<!-- end of table -->\n"
)

// sectionBegins is the comment before a table: its kind, and for a summary the strategies to show, or for a client its
// file.
var sectionBegins = regexp.MustCompile(`(?m)^<!-- table: (\w+)(| [\w. -]+) -->\n?$`)

func TestTablesAreUpToDate(t *testing.T) {
	if *labReport != "" {
		f := newFigures(t, *labReport)
		kept, err := keptFigures()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if lost := kept.notIn(f); len(lost) > 0 {
			t.Fatalf("%s lacks strategies that %s has: run the whole lab\n%s", *labReport, figuresFile, strings.Join(lost, ", "))
		}
		writeFile(t, figuresFile, f.json(t))
	}
	f := readFigures(t)
	kinds := map[string]bool{}
	var inREADME []string // the strategies of the summary
	for _, d := range readDocuments(t) {
		text := d.text
		for _, at := range sectionBegins.FindAllStringSubmatchIndex(d.text, -1) {
			kind, names := d.text[at[2]:at[3]], strings.Fields(d.text[at[4]:at[5]])
			kinds[kind] = true
			if kind == "summary" && d.path == "README.md" {
				inREADME = names
			}
			begin := d.text[at[0]:at[1]] + "\n"
			table, _, ended := strings.Cut(d.text[at[0]+len(begin):], sectionEnds)
			if !ended {
				t.Fatalf("%s: the table %s has no end: %q", d.path, kind, sectionEnds)
			}
			want := section(t, f, kind, names, table)
			if table != want && !*update {
				t.Errorf("%s: the table %s is out of date: run go test . -update\n got:\n%s\nwant:\n%s",
					d.path, kind, table, want)
			}
			text = strings.Replace(text, begin+table+sectionEnds, begin+want+sectionEnds, 1)
		}
		if *update && text != d.text {
			writeFile(t, d.path, []byte(text))
		}
	}
	for _, kind := range []string{
		"summary", "catalogue", "conditions", "figures", "source", "locks", "scripts", "client", "strategy",
		"record",
	} {
		if !kinds[kind] {
			t.Errorf("no document has the table %s", kind)
		}
	}
	for path, picture := range f.pictures(inREADME) {
		if err := xml.Unmarshal(picture, new(struct{})); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if *update {
			writeFile(t, path, picture)
		}
		drawn, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		} else if string(drawn) != string(picture) {
			t.Errorf("%s differs from %s: run go test . -update", path, figuresFile)
		}
	}
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, text, 0o644))
}

// section returns what a table should contain. Results of the bench are kept if the command line names no new ones.
func section(t *testing.T, f *figures, kind string, names []string, current string) string {
	t.Helper()
	switch kind {
	case "summary":
		return summary(t, f, names)
	case "catalogue":
		return catalogueTable()
	case "conditions":
		return wrap(f.Conditions, maxColumns)
	case "figures":
		return f.table()
	case "source":
		return f.beside()
	case "locks":
		current = replaced(t, *locksTable, current)
		header := regexp.MustCompile(`(?m)^\| case \|.*$`).FindString(current)
		checkNames(t, kind, regexp.MustCompile("`([a-z-]+)`"), header, "redsync", "redislock", "rueidislock")
		return current
	case "scripts":
		return scriptsTable(t, filepath.Join(append([]string{scriptsDir}, names...)...))
	case "client":
		return client(t, names[0])
	case "strategy":
		return newPage(t, *strategy(names[0])).text(t) + "\n"
	case "record":
		return recordTable(t)
	}
	t.Fatalf("no table is of the kind %q", kind)
	return ""
}

// expectation finds what a script says about itself.
var expectation = regexp.MustCompile(`(?m)^expect = (.*)$`)

// expected returns what a script says about its result.
func expected(script string) string {
	if found := expectation.FindStringSubmatch(script); found != nil {
		return strings.NewReplacer(`"`, "", "{", "", "}", "").Replace(found[1])
	}
	return ""
}

// scriptsDir has the scripts for MySQL and Redis, and directories of those for other engines.
const scriptsDir = "loadtest/scripts"

// scriptsTable lists the scripts of a directory by what they expect.
func scriptsTable(t *testing.T, dir string) string {
	t.Helper()
	byResult := map[string][]string{}
	for _, d := range readFiles(t, ".star") {
		if filepath.Dir(d.path) != dir {
			continue
		}
		result := expected(d.text)
		if result == "" || !strings.HasPrefix(d.text, "# ") {
			t.Fatalf("%s does not say what it shows, and what the result must be", d.path)
		}
		name := strings.TrimSuffix(filepath.Base(d.path), ".star")
		byResult[result] = append(byResult[result], fmt.Sprintf("[`%s`](../%s)", name, d.path))
	}
	var b strings.Builder
	row(&b, "result", "scripts")
	row(&b, "---", "---")
	for _, result := range slices.Sorted(maps.Keys(byResult)) {
		row(&b, result, strings.Join(byResult[result], ", "))
	}
	return b.String()
}

// scriptOfABug finds a row of the table of docs/public-bugs.md: a mistake and its repair.
var scriptOfABug = regexp.MustCompile(`\| \[[^|]*\]\(\.\./(\S+\.star)\) \| \[[^|]*\]\(\.\./(\S+\.star)\) \|`)

// The table promises that the first script of a row breaks, and that the second does not.
func TestThePublicBugsAreScriptsThatBreakAndSurvive(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/public-bugs.md")
	must.Succeed(t, err)
	rows := scriptOfABug.FindAllStringSubmatch(string(text), -1)
	if len(rows) == 0 {
		t.Fatal("docs/public-bugs.md has no table of scripts")
	}
	for _, row := range rows {
		for i, breaks := range []bool{true, false} {
			script, err := os.ReadFile(row[1+i])
			must.Succeed(t, err)
			if result := expected(string(script)); (result != "right") != breaks {
				t.Errorf("%s: the result is %q", row[1+i], result)
			}
		}
	}
}

// client shows an example client.
func client(t *testing.T, file string) string {
	t.Helper()
	path := "loadtest/clients/" + file
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	language := map[string]string{".sh": "sh", ".go": "go", ".py": "python", ".java": "java"}[filepath.Ext(file)]
	return fmt.Sprintf("[`%s`](../%s):\n\n```%s\n%s```\n", path, path, language, text)
}

// replaced returns the content of the file, or current if path is empty.
func replaced(t *testing.T, path, current string) string {
	t.Helper()
	if path == "" {
		return current
	}
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	return "\n" + strings.TrimSpace(string(text)) + "\n\n"
}

// checkNames requires every name in a table to be that of a strategy, a lock, or one of others.
func checkNames(t *testing.T, kind string, name *regexp.Regexp, table string, others ...string) {
	t.Helper()
	found := name.FindAllStringSubmatch(table, -1)
	if len(found) == 0 {
		t.Errorf("the table %s names no strategy", kind)
	}
	for _, match := range found {
		if strategy(match[1]) == nil && strategy("lock-"+match[1]) == nil && !slices.Contains(others, match[1]) {
			t.Errorf("the table %s names %s, which is not in the catalogue", kind, match[1])
		}
	}
}

func strategy(name string) *stock.Strategy {
	i := slices.IndexFunc(strategies, func(s stock.Strategy) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &strategies[i]
}

// summary shows a few strategies on one screen, with the faults that tell them apart. What faults do to a strategy that
// is wrong without any does not matter.
func summary(t *testing.T, f *figures, names []string) string {
	t.Helper()
	var b strings.Builder
	row(&b, "strategy", "how it works", "on two replicas", "goodput/s", "× noop", "holder dies", "late write")
	row(&b, "---", "---", "---", "---:", "---:", "---", "---")
	for _, name := range names {
		s := strategy(name)
		if s == nil {
			t.Fatalf("a summary names %s, which is not in the catalogue", name)
		}
		found, goodput, share := "not measured", "", ""
		onFaults := f.faults(*s)[:2]
		if r := f.row(name, 2, "plenty"); r != nil {
			found = r.found()
			switch {
			case r.correct():
				goodput, share = r.rate(), r.share()
			case r.Verdict == "wrong":
				onFaults = []string{"", ""} // a fault does no further harm that matters
			}
		}
		row(&b, append([]string{label(*s), s.Summary, found, goodput, share}, onFaults...)...)
	}
	return b.String()
}

// row writes a row of a Markdown table.
func row(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func label(s stock.Strategy) string {
	if s.Control {
		return "`" + s.Name + "` *"
	}
	return "`" + s.Name + "`"
}

// pageLink is the label of a strategy, which leads to its page.
func pageLink(s stock.Strategy) string {
	name, star, _ := strings.Cut(label(s), " ")
	return strings.TrimSpace(fmt.Sprintf("[%s](strategies/%s.md) %s", name, s.Name, star))
}

func withCaveat(effect fmt.Stringer, caveat string) string {
	if caveat == "" {
		return effect.String()
	}
	return effect.String() + ", " + caveat
}

func onCrash(c stock.Claim) string { return withCaveat(c.HolderCrash, c.CrashCaveat) }

var behaviours = map[stock.Behaviour]string{
	stock.Correct:      "correct",
	stock.LosesUpdates: "**loses updates**",
	stock.Oversells:    "**oversells**",
	stock.Undersells:   "**undersells**",
	stock.SellsNothing: "sells nothing",
}

// catalogueTable shows every strategy with what it claims. The rest of the claim is on its page.
func catalogueTable() string {
	var b strings.Builder
	row(&b, "strategy", "how it works", "store", "under load", "holder dies", "late write")
	row(&b, slices.Repeat([]string{"---"}, 6)...)
	for _, s := range strategies {
		var stores []string
		for _, on := range s.Stores {
			stores = append(stores, string(on))
		}
		row(&b, pageLink(s), s.Summary, strings.Join(stores, ", "), underLoad(s.Claim),
			marked(s.Claim.HolderCrash.String(), s.Claim.CrashCaveat != ""),
			marked(s.Claim.LateWrite.String(), s.Claim.LateCaveat != ""))
	}
	return b.String()
}

// marked marks a cell of a table if more is to be said about it than the cell says.
func marked(cell string, mark bool) string {
	if mark {
		return cell + " †"
	}
	return cell
}

// underLoad says what a strategy claims for one replica, and when it claims something else.
func underLoad(c stock.Claim) string {
	text := behaviours[c.OneReplica]
	if c.TwoReplicas != c.OneReplica {
		text += "; on two replicas " + behaviours[c.TwoReplicas]
	}
	if c.Restocked != c.TwoReplicas {
		text += "; when restocked " + behaviours[c.Restocked]
	}
	return text
}

// wrap breaks a sentence into lines.
func wrap(s string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(s) {
		if column > 0 && column+1+len([]rune(word)) > width {
			b.WriteByte('\n')
			column = 0
		} else if column > 0 {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len([]rune(word))
	}
	return b.String() + "\n"
}
