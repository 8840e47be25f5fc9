package stock_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/stock"
)

var update = flag.Bool("update", false, "rewrite the README's strategy table from the catalogue")

const (
	tableBegins = "<!-- The strategy table is made from the catalogue: go test . -update -->\n"
	tableEnds   = "<!-- end of the strategy table -->\n"
)

func TestREADMEHasTheStrategiesOfTheCatalogue(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(readme), tableBegins)
	table, after, ended := strings.Cut(rest, tableEnds)
	if !found || !ended {
		t.Fatalf("README.md has no %q followed by %q", tableBegins, tableEnds)
	}
	want := strategyTable(stock.Catalogue)
	if *update {
		if err := os.WriteFile("README.md", []byte(before+tableBegins+want+tableEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the strategy table differs from the catalogue: run go test . -update\n got:\n%s\nwant:\n%s", table, want)
	}
}

func strategyTable(catalogue []stock.Strategy) string {
	var b strings.Builder
	b.WriteString("| strategy | how it works | store | 1 replica | 2 replicas | restocked meanwhile | holder dies | holder is stopped | client retries |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
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
		name := "`" + s.Name + "`"
		if s.Control {
			name += " *"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, s.Summary, strings.Join(stores, ", "),
			promises[s.Claim.OneReplica], promises[s.Claim.TwoReplicas], promises[s.Claim.Restocked], s.Claim.HolderCrash, s.Claim.HolderPause, s.Claim.ClientRetry)
	}
	return b.String()
}

// A flaw that is told of is replayed by the test that is named beside it, in the README and in docs/ as in the comments of the locks.
func TestEveryTestThatIsNamedExists(t *testing.T) {
	t.Parallel()
	var tests []string
	for _, folder := range []string{"internal", "cmd"} {
		found, err := filepath.Glob(folder + "/*/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, found...)
	}
	var known strings.Builder
	for _, path := range tests {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		known.Write(text)
	}
	tellers, err := filepath.Glob("internal/locks/*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Concat(tellers, documents, []string{"README.md"}) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1) {
			named++
			if !strings.Contains(known.String(), "func "+name+"(") {
				t.Errorf("%s names %s, which is no test of internal/ or cmd/", path, name)
			}
		}
	}
	if named == 0 {
		t.Error("no test is named")
	}
}

// failed finds a refusal that the README does not mean to show, and a vegeta report with failures.
var failed = regexp.MustCompile(`/problems/([^s]|s[^o])|Success +\[ratio\] +\d?\d\.`)

// Every session of the README is typed in while a lab is up, as it stands but for ports, paths and how much of the same is done.
// A reader may begin with any of them: they do not wait for each other.
func TestREADMESessionsWork(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const begins, ends = "<!-- session -->\n```sh\n", "```\n"
	sessions := strings.Split(string(readme), begins)[1:]
	if len(sessions) == 0 {
		t.Fatalf("README.md has no session: %q", begins)
	}
	here := labUp(t)
	for i, session := range sessions {
		session, _, _ = strings.Cut(session, ends)
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command("bash", "-euc", here.Replace(session)).CombinedOutput()
			if err != nil || failed.Match(out) {
				t.Errorf("%v\n%s\nanswers:\n%s", err, session, out)
			}
		})
	}
}

// labUp starts a lab on free ports and returns what to write in place of the README's ports and paths.
func labUp(t *testing.T) *strings.Replacer {
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir+"/", "./loadtest", "./cmd/stock").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lab := exec.Command(filepath.Join(dir, "loadtest"), "up", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	stdout, err := lab.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lab.Process.Signal(os.Interrupt)
		if err := lab.Wait(); err != nil {
			t.Error(err)
		}
	})
	var up struct {
		URL      string
		Replicas []struct {
			AdminURL string `json:"admin_url"`
		}
	}
	if err := json.NewDecoder(stdout).Decode(&up); err != nil {
		t.Fatal(err)
	}
	ports := []string{
		"localhost:8000", strings.TrimPrefix(up.URL, "http://"),
		"127.0.0.1:8000", strings.TrimPrefix(up.URL, "http://"), "localhost:9001", strings.TrimPrefix(up.Replicas[0].AdminURL, "http://"),
	}
	const targets = "loadtest/vegeta/deduct.targets"
	text, err := os.ReadFile(targets)
	if err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(dir, "deduct.targets")
	if err := os.WriteFile(moved, []byte(strings.NewReplacer(ports...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	less := []string{"-duration=5s", "-duration=1s", "--rounds 6", "--rounds 2"}
	return strings.NewReplacer(slices.Concat(ports, less, []string{targets, moved, "out/", dir + "/out/"})...)
}
