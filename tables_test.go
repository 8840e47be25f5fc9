package stock_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"io/fs"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/stock"
)

// The tables of the documents are made from the catalogue and from the results of the lab and the two benches:
//
//	go test . -update
//	go test . -update -lab out/lab/report.json -bench out/bench.md -locks out/bench-locks.md
var (
	update     = flag.Bool("update", false, "rewrite what the documents contain of the catalogue and of results")
	labReport  = flag.String("lab", "", "with -update: take the figures from this report.json of loadtest run")
	benchTable = flag.String("bench", "", "with -update: show this file of make bench BENCH='--markdown FILE'")
	locksTable = flag.String("locks", "", "with -update: show this file of make bench-locks BENCH='-markdown FILE'")
)

// catalogue is what the strategy tables are made from.
var catalogue = stock.Catalogue

const (
	figuresFile = "docs/lab.json"
	pictureFile = "docs/lab.svg"
	sectionEnds = "<!-- end of table -->\n"
)

// sectionBegins is the comment before a table: its kind, and for a summary the strategies to show.
var sectionBegins = regexp.MustCompile(`(?m)^<!-- table: (\w+)(| [\w -]+) -->\n?$`)

func TestTablesAreUpToDate(t *testing.T) {
	if *labReport != "" {
		writeFile(t, figuresFile, newFigures(t, *labReport).json(t))
	}
	f := readFigures(t)
	kinds := map[string]bool{}
	for _, d := range readDocuments(t) {
		text := d.text
		for _, at := range sectionBegins.FindAllStringSubmatchIndex(d.text, -1) {
			kind, names := d.text[at[2]:at[3]], strings.Fields(d.text[at[4]:at[5]])
			kinds[kind] = true
			begin := d.text[at[0]:at[1]] + "\n"
			table, _, ended := strings.Cut(d.text[at[0]+len(begin):], sectionEnds)
			if !ended {
				t.Fatalf("%s: the table %s has no end: %q", d.path, kind, sectionEnds)
			}
			want := section(t, f, kind, names, table)
			if table != want && !*update {
				t.Errorf("%s: the table %s differs from its sources: run go test . -update\n got:\n%s\nwant:\n%s", d.path, kind, table, want)
			}
			text = strings.Replace(text, begin+table+sectionEnds, begin+want+sectionEnds, 1)
		}
		if *update && text != d.text {
			writeFile(t, d.path, []byte(text))
		}
	}
	for _, kind := range []string{"summary", "catalogue", "conditions", "figures", "source", "bench", "locks"} {
		if !kinds[kind] {
			t.Errorf("no document has the table %s", kind)
		}
	}
	picture := f.picture()
	if *update {
		writeFile(t, pictureFile, picture)
	}
	drawn, err := os.ReadFile(pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(drawn) != string(picture) {
		t.Errorf("%s differs from %s: run go test . -update", pictureFile, figuresFile)
	}
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// section is what a table should be, given what it is now.
func section(t *testing.T, f *figures, kind string, names []string, now string) string {
	t.Helper()
	switch kind {
	case "summary":
		return summary(t, f, names)
	case "catalogue":
		return catalogueTable()
	case "conditions":
		return wrap(f.Conditions)
	case "figures":
		return f.table()
	case "source":
		return f.beside()
	case "bench":
		now = replaced(t, *benchTable, now)
		checkNames(t, kind, regexp.MustCompile(`(?m)^\| ([a-z][a-z-]*)`), now, "bare", "raw", "a", "the")
		return now
	case "locks":
		now = replaced(t, *locksTable, now)
		header := regexp.MustCompile(`(?m)^\| case \|.*$`).FindString(now)
		checkNames(t, kind, regexp.MustCompile("`([a-z-]+)`"), header, "redsync", "redislock", "rueidislock")
		return now
	}
	t.Fatalf("no table is of the kind %q", kind)
	return ""
}

// replaced is the content of a file that the command line names, else what is there.
func replaced(t *testing.T, path, now string) string {
	t.Helper()
	if path == "" {
		return now
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return "\n" + strings.TrimSpace(string(text)) + "\n\n"
}

// checkNames wants every name in a table to be a strategy, a lock, or one of others.
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
	i := slices.IndexFunc(catalogue, func(s stock.Strategy) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &catalogue[i]
}

// summary shows a few strategies on one screen.
func summary(t *testing.T, f *figures, names []string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| strategy | how it works | on two replicas | goodput/s | holder dies | holder is stopped | client sends again |\n" +
		"| --- | --- | --- | ---: | --- | --- | --- |\n")
	for _, name := range names {
		s := strategy(name)
		if s == nil {
			t.Fatalf("a summary names %s, which is not in the catalogue", name)
		}
		found, goodput := "not measured", ""
		if row := f.row(name, 2, "plenty"); row != nil {
			found = row.found()
			if row.correct() {
				goodput = number(row.Goodput)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", label(*s), s.Summary, found, goodput,
			s.Claim.HolderCrash, s.Claim.HolderPause, s.Claim.ClientRetry)
	}
	return b.String()
}

func label(s stock.Strategy) string {
	if s.Control {
		return "`" + s.Name + "` *"
	}
	return "`" + s.Name + "`"
}

// catalogueTable shows every strategy with all that it claims.
func catalogueTable() string {
	var b strings.Builder
	b.WriteString("| strategy | how it works | store | 1 replica | 2 replicas | restocked meanwhile | holder dies | " +
		"holder is stopped | client sends again |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	promises := map[stock.Promise]string{
		stock.Correct:      "correct",
		stock.LosesUpdates: "**loses updates**",
		stock.Oversells:    "**oversells**",
		stock.SellsNothing: "sells nothing",
	}
	for _, s := range catalogue {
		var stores []string
		for _, on := range s.Stores {
			stores = append(stores, string(on))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", label(s), s.Summary, strings.Join(stores, ", "),
			promises[s.Claim.OneReplica], promises[s.Claim.TwoReplicas], promises[s.Claim.Restocked],
			s.Claim.HolderCrash, s.Claim.HolderPause, s.Claim.ClientRetry)
	}
	return b.String()
}

// figures are those of a run of the whole lab that the documents show, kept in figuresFile.
type figures struct {
	Conditions string   `json:"conditions"`
	Rows       []figure `json:"rows"`
}

// figure is a row of the lab's report: a strategy under a workload.
type figure struct {
	Strategy string      `json:"strategy"`
	Replicas int         `json:"replicas"`
	Workload string      `json:"workload"`
	Verdict  string      `json:"verdict"`
	Goodput  float64     `json:"goodput"`            // units sold correctly a second, median of the rounds
	Interval *[2]float64 `json:"interval,omitempty"` // 95 %
	Noop     float64     `json:"noop,omitempty"`     // share of noop's goodput
	P50      float64     `json:"p50,omitempty"`      // ms
	P99      float64     `json:"p99,omitempty"`      // ms
	Sold     int64       `json:"sold,omitempty"`     // units confirmed, of a strategy that is wrong
	Lost     int64       `json:"lost,omitempty"`     // units
	Oversold int64       `json:"oversold,omitempty"` // units
}

// newFigures takes the figures from a report of loadtest run.
func newFigures(t *testing.T, path string) *figures {
	t.Helper()
	var report struct {
		Schema      string
		Environment struct {
			CPU     string
			Cores   int
			Go      string
			Seed    uint64
			Servers []struct{ Name, Version string }
		}
		Rows []struct {
			Strategy, Workload, Verdict string
			Replicas, Users             int
			Baseline                    bool
			Goodput                     float64                      `json:"goodput_per_s"`
			Noop                        *float64                     `json:"share_of_noop"`
			Interval                    *struct{ Low, High float64 } `json:"goodput_interval"`
			Latency                     struct{ P50, P99 float64 }   `json:"latency_ms"`
			Sold                        int64
			Lost                        int64 `json:"lost_updates"`
			Oversold                    int64
			Rounds                      []struct{}
		}
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	if report.Schema != "stock-lab/1" || len(report.Rows) == 0 {
		t.Fatalf("%s is no report of loadtest run: its schema is %q, and it has %d rows", path, report.Schema, len(report.Rows))
	}
	var servers []string
	for _, s := range report.Environment.Servers {
		if s.Name != "service" {
			servers = append(servers, strings.TrimSpace(s.Version))
		}
	}
	f := &figures{Conditions: fmt.Sprintf("Medians of %d rounds, %d users, two replicas behind nginx, %d cores (%s) for load and servers; %s; %s; seed %d.",
		len(report.Rows[0].Rounds), report.Rows[0].Users, report.Environment.Cores, report.Environment.CPU,
		strings.Join(servers, ", "), report.Environment.Go, report.Environment.Seed)}
	for _, r := range report.Rows {
		if r.Baseline {
			continue
		}
		row := figure{Strategy: r.Strategy, Replicas: r.Replicas, Workload: r.Workload, Verdict: r.Verdict,
			Goodput: math.Round(r.Goodput), P50: short(r.Latency.P50), P99: short(r.Latency.P99)}
		if r.Interval != nil {
			row.Interval = &[2]float64{math.Round(r.Interval.Low), math.Round(r.Interval.High)}
		}
		if r.Noop != nil {
			row.Noop = short(*r.Noop)
		}
		if r.Verdict == "wrong" {
			row.Sold, row.Lost, row.Oversold = r.Sold, r.Lost, r.Oversold
		}
		f.Rows = append(f.Rows, row)
	}
	return f
}

// short keeps three digits, and whole numbers above.
func short(v float64) float64 {
	if v == 0 || v >= 100 {
		return math.Round(v)
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(v)))
	return math.Round(v*scale) / scale
}

// json has a line a row, so that a new run is a readable difference.
func (f *figures) json(t *testing.T) []byte {
	t.Helper()
	encode := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var rows []string
	for _, row := range f.Rows {
		rows = append(rows, "    "+encode(row))
	}
	return fmt.Appendf(nil, "{\n  \"conditions\": %s,\n  \"rows\": [\n%s\n  ]\n}\n", encode(f.Conditions), strings.Join(rows, ",\n"))
}

func readFigures(t *testing.T) *figures {
	t.Helper()
	text, err := os.ReadFile(figuresFile)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v: run go test . -update -lab out/lab/report.json", err)
	}
	var f figures
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range f.Rows {
		if strategy(row.Strategy) == nil {
			t.Errorf("%s has figures of %s, which is not in the catalogue: run the lab again", figuresFile, row.Strategy)
		}
	}
	return &f
}

func (f *figures) row(name string, replicas int, workload string) *figure {
	i := slices.IndexFunc(f.Rows, func(r figure) bool {
		return r.Strategy == name && r.Replicas == replicas && r.Workload == workload
	})
	if i < 0 {
		return nil
	}
	return &f.Rows[i]
}

// correct reports whether the judge found the strategy correct, and it promises to be: others are not ranked.
func (r *figure) correct() bool {
	return r.Verdict == "correct" && strategy(r.Strategy).Claim.TwoReplicas != stock.Oversells
}

// found is the verdict in words.
func (r *figure) found() string {
	switch {
	case r.Lost > 0:
		return fmt.Sprintf("**wrong**: %d of %d units lost", r.Lost, r.Sold)
	case r.Oversold > 0:
		return fmt.Sprintf("**wrong**: %d of %d units oversold", r.Oversold, r.Sold)
	case r.Verdict == "wrong":
		return "**wrong**"
	}
	return r.Verdict
}

// ranked lists the rows of the workload plenty: correct ones first, the fastest on top.
func (f *figures) ranked() (rows []*figure) {
	for i, r := range f.Rows {
		if r.Workload == "plenty" {
			rows = append(rows, &f.Rows[i])
		}
	}
	slices.SortStableFunc(rows, func(a, b *figure) int {
		if a.correct() != b.correct() {
			if a.correct() {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Goodput, a.Goodput)
	})
	return rows
}

// table shows every strategy that was measured, under both workloads.
func (f *figures) table() string {
	var b strings.Builder
	b.WriteString("| strategy | plenty: goodput/s | × noop | median ms | 99 % ms | verdict | flash sale: goodput/s | verdict |\n" +
		"| --- | ---: | ---: | ---: | ---: | --- | ---: | --- |\n")
	for _, r := range f.ranked() {
		sale, saleFound := "", ""
		if s := f.row(r.Strategy, r.Replicas, "flash-sale"); s != nil {
			sale, saleFound = s.rate(), s.found()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", r.label(), r.rate(), number(r.Noop), number(r.P50),
			number(r.P99), r.found(), sale, saleFound)
	}
	for _, s := range catalogue {
		if s.Claim.TwoReplicas != stock.SellsNothing && f.row(s.Name, 2, "plenty") == nil {
			fmt.Fprintf(&b, "| `%s` | | | | | not measured | | |\n", s.Name)
		}
	}
	return b.String()
}

// beside compares the figures with those of the source material: requests a second, one instance, 6,000 requests.
func (f *figures) beside() string {
	var b strings.Builder
	b.WriteString("| in the text | requests/s | here | goodput/s | verdict |\n| --- | ---: | --- | ---: | --- |\n")
	for _, theirs := range []struct {
		name     string
		rate     float64
		strategy string
		replicas int
	}{
		{"no lock", 671, "none", 2},
		{"`synchronized`", 51, "mutex", 1},
		{"`ReentrantLock`", 52, "mutex", 1},
		{"one UPDATE", 813, "update", 2},
		{"SELECT … FOR UPDATE", 64.6, "for-update", 2},
	} {
		ours := f.row(theirs.strategy, theirs.replicas, "plenty")
		if ours == nil {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", theirs.name, number(theirs.rate), ours.label(), number(ours.Goodput), ours.found())
	}
	if one, two := f.row("update", 2, "plenty"), f.row("for-update", 2, "plenty"); one != nil && two != nil {
		fmt.Fprintf(&b, "| UPDATE ÷ FOR UPDATE | 12.6 | | %.1f | |\n", one.Goodput/two.Goodput)
	}
	return b.String()
}

func (r *figure) label() string {
	if r.Replicas == 1 {
		return "`" + r.Strategy + "`, 1 replica"
	}
	return label(*strategy(r.Strategy))
}

// rate is the goodput and the farther end of its interval, in per cent.
func (r *figure) rate() string {
	if r.Interval == nil || r.Goodput == 0 {
		return number(r.Goodput)
	}
	return fmt.Sprintf("%s ±%.0f%%", number(r.Goodput), 100*max(r.Interval[1]/r.Goodput-1, 1-r.Interval[0]/r.Goodput))
}

func number(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprint(v)
}

// picture draws the table's two rates as bars.
func (f *figures) picture() []byte {
	const width, left, bar, next, top, line = 1100, 205, 150, 440, 96, 22
	rows := f.ranked()
	height := top + line*len(rows) + 24
	var b strings.Builder
	text := func(x, y int, attributes, s string) {
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, attributes, html.EscapeString(s))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="Goodput and verdict of every strategy">
<style>text{font:13px system-ui,sans-serif;fill:#1a202c}.h{font-size:17px;font-weight:600}.b{font-weight:600}.s{font-size:12px;fill:#4a5568}.ok{fill:#2f855a}.bad{fill:#c53030}</style>
<rect width="%[1]d" height="%[2]d" fill="#fff"/>
`, width, height)
	text(20, 34, ` class="h"`, "Units sold correctly a second, and what the judge found")
	text(20, 52, ` class="s"`, f.Conditions)
	text(left, 80, ` class="b"`, "plenty: as much stock as demand")
	text(left+next, 80, ` class="b"`, "flash sale: a sixth of the demand in stock")
	for column, workload := range []string{"plenty", "flash-sale"} {
		x := left + column*next
		most := 1.0
		for _, r := range rows {
			if r := f.row(r.Strategy, r.Replicas, workload); r != nil {
				most = max(most, r.Goodput)
			}
		}
		for i, r := range rows {
			y := top + line*i
			if column == 0 {
				text(left-10, y+12, ` text-anchor="end"`, strings.NewReplacer("`", "", " *", "").Replace(r.label()))
			}
			r := f.row(r.Strategy, r.Replicas, workload)
			if r == nil {
				continue
			}
			class, colour := "bad", "#c53030"
			if r.correct() {
				class, colour = "ok", "#2f855a"
			}
			length := max(1, int(bar*r.Goodput/most))
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"15\" rx=\"2\" fill=\"%s\"/>\n", x, y, length, colour)
			text(x+length+6, y+12, "", number(r.Goodput))
			text(x+bar+65, y+12, ` class="`+class+`"`, strings.ReplaceAll(r.found(), "*", ""))
		}
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// wrap breaks a sentence into lines.
func wrap(s string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(s) {
		if column > 0 && column+1+len([]rune(word)) > maxColumns {
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
