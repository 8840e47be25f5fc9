package stock_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// importTable lists the packages of this repository, from the bottom up, with the packages of this repository that
// each of them imports directly. Paths are relative to the module. Test files may import anything.
var importTable = []struct {
	name    string
	imports []string
	because string
	tests   bool // the package is for test files only, and the boundaries do not bind it
}{
	{
		name:    "internal/locks",
		because: "A lock does not know what it guards.",
	},
	{
		name:    "internal/monotonic",
		because: "The service and the lab read the same clock.",
	},
	{
		name:    "internal/suggest",
		because: "The service and the lab answer a mistyped name in the same way.",
	},
	{
		name:    "internal/origin",
		because: "The service and the lab refuse the requests of other pages in the same way.",
	},
	{
		name:    "internal/access",
		because: "The service and the lab connect to servers with the same settings.",
	},
	{
		name:    "internal/stock/share",
		because: "It divides connections and does not know what they are used for.",
	},
	{
		name:    "internal/stock",
		imports: []string{"internal/{locks,monotonic}", "internal/stock/share"},
		because: "It is the contract: it knows no strategy.",
	},
	{
		name:    "internal/stock/retry",
		imports: []string{"internal/locks", "internal/stock"},
		because: "Optimistic strategies on any store retry in the same way.",
	},
	{
		name:    "internal/stock/batching",
		imports: []string{"internal/monotonic", "internal/stock"},
		because: "Batches on any store queue in the same way.",
	},
	{
		name:    "internal/stock/mysql",
		imports: []string{"internal/stock", "internal/stock/{batching,retry,share}"},
		because: "Its strategies leave exclusion to MySQL.",
	},
	{
		name:    "internal/stock/redis",
		imports: []string{"internal/stock", "internal/stock/{batching,retry}"},
		because: "Its strategies leave exclusion to Redis.",
	},
	{
		name:    "internal/stock/guard",
		imports: []string{"internal/locks", "internal/stock", "internal/stock/{mysql,redis}"},
		because: "It puts a lock around read-modify-write on either store.",
	},
	{
		name:    "internal/stock/stream",
		imports: []string{"internal/stock", "internal/stock/{mysql,redis}"},
		because: "It sells in Redis and writes to MySQL.",
	},
	{
		name:    "internal/stock/inventory",
		imports: []string{"internal/stock", "internal/stock/{mysql,redis}"},
		because: "It sets and restocks items in every store.",
	},
	{
		name:    "internal/stock/health",
		imports: []string{"internal/access", "internal/stock", "internal/stock/{mysql,redis}"},
		because: "It asks servers, not strategies.",
	},
	{
		name:    "internal/stock/catalogue",
		imports: []string{"internal/locks", "internal/stock", "internal/stock/{guard,mysql,redis,stream}"},
		because: "It is the only package that knows every strategy.",
	},
	{
		name:    "internal/stock/mutants",
		imports: []string{"internal/locks", "internal/stock"},
		because: "It changes any strategy from outside. Only programs built with the tag mutants contain it.",
	},
	{
		name: "internal/stock/httpapi",
		imports: []string{
			"internal/origin", "internal/stock", "internal/stock/{catalogue,health,inventory,stream}", "internal/suggest",
		},
		because: "It translates between HTTP and the domain.",
	},
	{
		name:    "docs",
		because: "It embeds what pages show as the documents do.",
	},
	{
		name:    "migrations",
		because: "It embeds the SQL files of the schema and applies them.",
	},
	{
		name: "cmd/stock",
		imports: []string{
			"internal/access", "internal/locks", "internal/stock",
			"internal/stock/{catalogue,httpapi,mutants,mysql,share,stream}", "internal/suggest", "migrations",
		},
		because: "It connects to the servers and puts the service together.",
	},
	{
		name:    "nginx",
		because: "It embeds a configuration file.",
	},
	{
		name:    "internal/servers",
		because: "Servers are started in the same way for every user.",
	},
	{
		name:    "internal/tcpproxy",
		because: "Tests and the lab cut and hold connections in the same way.",
	},
	{
		name:    "internal/stats",
		because: "The reports and both benches estimate in the same way.",
	},
	{
		name:    "loadtest/internal/history",
		because: "A history can be read without the code that recorded it.",
	},
	{
		name:    "loadtest/internal/oracle",
		imports: []string{"internal/access", "loadtest/internal/history"},
		because: "It reads the stores directly, so that the service is not its own witness.",
	},
	{
		name:    "loadtest/internal/verify",
		imports: []string{"loadtest/internal/history"},
		because: "The judge sees only what was recorded.",
	},
	{
		name:    "loadtest/internal/timeline",
		imports: []string{"loadtest/internal/{history,verify}"},
		because: "It shows what was recorded and what the judge found in it.",
	},
	{
		name:    "loadtest/internal/service",
		imports: []string{"loadtest/internal/history"},
		because: "A description of a service is read in one way, whoever asks the service.",
	},
	{
		name:    "loadtest/internal/traffic",
		imports: []string{"internal/monotonic", "loadtest/internal/{history,service}"},
		because: "The load records what it sends and receives, and judges nothing.",
	},
	{
		name:    "loadtest/internal/scenario",
		imports: []string{"internal/{monotonic,stats,suggest}", "loadtest/internal/{history,oracle,service,traffic,verify}"},
		because: "A run sends the load, records it and has it judged, and repeats what is not precise enough.",
	},
	{
		name:    "loadtest/internal/report",
		imports: []string{"internal/stats", "loadtest/internal/{explore/trace,history,timeline,verify}"},
		because: "A report is made from histories, verdicts and what an exploration found.",
	},
	{
		name:    "loadtest/internal/topology",
		imports: []string{"internal/{servers,tcpproxy}", "loadtest/internal/{oracle,service,tenant}", "nginx"},
		because: "It starts the servers, the replicas and nginx.",
	},
	{
		name:    "loadtest/internal/tenant",
		imports: []string{"internal/access", "loadtest/internal/oracle"},
		because: "It has a database and keys on servers of the user, and knows nothing of the service.",
	},
	{
		name: "loadtest/internal/fault",
		imports: []string{
			"internal/{monotonic,servers,suggest,tcpproxy}",
			"loadtest/internal/{explore,explore/trace,history,oracle,report,scenario,timeline,topology,traffic,verify}",
			"loadtest/scripts",
		},
		because: "A story strikes real processes, and the lab's judge decides what came of it.",
	},
	{
		name:    "loadtest/internal/explore/wire",
		imports: nil,
		because: "It understands MySQL and Redis, and nothing of what is sold.",
	},
	{
		name:    "loadtest/internal/explore/script",
		imports: []string{"internal/suggest"},
		because: "A script knows what it asks of the stores, and nothing of when that is executed.",
	},
	{
		name:    "loadtest/internal/explore/trace",
		imports: nil,
		because: "What was found can be shown without what has found it.",
	},
	{
		name:    "loadtest/scripts",
		imports: nil,
		because: "It has the scripts that the lab comes with.",
	},
	{
		name: "loadtest/internal/explore",
		imports: []string{
			"internal/{monotonic,servers}",
			"loadtest/internal/explore/{script,trace,wire}",
			"loadtest/internal/{history,oracle,scenario,service,topology,traffic,verify}", "migrations",
		},
		because: "It executes schedules on real processes, and the lab's judge decides what came of each.",
	},
	{
		name:    "loadtest/internal/bench",
		imports: []string{"internal/{servers,stats}", "loadtest/internal/{report,scenario,traffic,verify}"},
		because: "It compares strategies with what the servers of this machine can do.",
	},
	{
		name: "loadtest/internal/page",
		imports: []string{
			"docs", "internal/stats", "loadtest/internal/{bench,explore/trace,history,report,timeline,verify}",
		},
		because: "A page draws what was measured, and measures and judges nothing.",
	},
	{
		name: "loadtest/internal/mutation",
		imports: []string{
			"internal/{servers,suggest}", "loadtest/internal/{fault,history,report,scenario,topology,verify}",
		},
		because: "It has the lab run services with planted bugs, and play faults on them, to test the judge.",
	},
	{
		name: "loadtest/internal/lab",
		imports: []string{
			"loadtest/internal/{fault,history,oracle,page,report,scenario,service,timeline,topology}",
		},
		because: "The commands and the console start, run and report in the same way.",
	},
	{
		name: "loadtest/internal/console",
		imports: []string{
			"internal/{monotonic,origin,tcpproxy}",
			"loadtest/internal/{explore,explore/trace,fault,history,lab,oracle,page,report,scenario,topology,traffic,verify}",
			"loadtest/scripts",
		},
		because: "It shows the lab in a browser, runs and judges as the commands do, and holds messages in proxies.",
	},
	{
		name: "loadtest",
		imports: []string{
			"internal/{access,servers,suggest}",
			"loadtest/internal/{bench,console,explore,fault,history,lab,mutation,oracle,page,report,scenario,timeline,topology}",
			"loadtest/internal/{explore/trace,service,tenant,traffic,verify}",
		},
		because: "The lab's command puts its parts together.",
	},
	{
		name:    "loadtest/clients",
		because: "It is an example for clients in any language, which know the service by its HTTP API only.",
	},
	{
		name:    "internal/locks/bench",
		imports: []string{"internal/{locks,servers,stats}"},
		because: "It compares the locks with other libraries, in a module of its own.",
	},
	{
		name:    "internal/locks/lockstest",
		imports: []string{"internal/{locks,tcpproxy}", "internal/servers/serverstest"},
		because: "It is the conformance suite of every lock.",
		tests:   true,
	},
	{
		name:    "internal/servers/serverstest",
		imports: []string{"internal/servers"},
		because: "It shares servers between tests.",
		tests:   true,
	},
	{
		name:    "loadtest/internal/browsertest",
		because: "It opens any page, in tests of the report and of the lab in the browser.",
		tests:   true,
	},
	{
		name: "internal/stock/stocktest",
		imports: []string{
			"internal/servers/serverstest", "internal/stock",
			"internal/stock/{catalogue,health,inventory,share,stream}", "internal/tcpproxy", "migrations",
		},
		because: "It is the conformance suite of every strategy.",
		tests:   true,
	},
}

// boundaries list what a package must not import, directly or through other packages, whatever the table allows. A path
// that ends in /... stands for the package and all packages below it.
var boundaries = []struct {
	packages string
	never    []string
	because  string
}{
	{
		packages: "internal/locks",
		never:    []string{"..."},
		because:  "a lock does not know what it guards",
	},
	{
		packages: "internal/servers",
		never:    []string{"..."},
		because:  "servers are started in the same way for every user",
	},
	{
		packages: "internal/stock/...",
		never:    []string{"internal/stock/httpapi"},
		because:  "the domain does not know how it is reached",
	},
	{
		packages: "internal/stock/...",
		never:    []string{"internal/servers/..."},
		because:  "the service connects to servers and never starts them",
	},
	{
		packages: "cmd/...",
		never:    []string{"internal/servers/..."},
		because:  "the service connects to servers and never starts them",
	},
	{
		packages: "internal/stock/...",
		never:    []string{"loadtest/..."},
		because:  "the service does not know its judge",
	},
	{
		packages: "cmd/...",
		never:    []string{"loadtest/..."},
		because:  "the service does not know its judge",
	},
	{
		packages: "loadtest/...",
		never:    []string{"internal/stock/...", "internal/locks/...", "cmd/..."},
		because:  "the lab is black-box and learns everything over HTTP",
	},
	{
		packages: "loadtest/internal/history",
		never:    []string{"..."},
		because:  "a history can be read without the code that recorded it",
	},
	{
		packages: "loadtest/internal/verify",
		never:    []string{"loadtest/internal/traffic", "loadtest/internal/oracle", "loadtest/internal/topology"},
		because:  "the judge sees only what was recorded",
	},
	{
		packages: "loadtest/internal/report",
		never:    []string{"loadtest/internal/traffic", "loadtest/internal/topology"},
		because:  "a report is made from histories and verdicts alone",
	},
	{
		packages: "loadtest/internal/traffic",
		never:    []string{"loadtest/internal/verify"},
		because:  "the load does not know the judge",
	},
}

func TestImportsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	actual := readImports(t)
	for _, row := range importTable {
		imports, found := actual[row.name]
		delete(actual, row.name)
		allowed := expand(row.imports)
		switch {
		case !found:
			t.Errorf("%s is not a package, or is twice in the import table: remove the row", row.name)
			continue
		case row.because == "":
			t.Errorf("%s: the import table gives no reason", row.name)
		}
		for _, imported := range imports {
			if !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s, which the import table does not allow. %s", row.name, imported, row.because)
			}
		}
		for _, unused := range allowed {
			if !slices.Contains(imports, unused) {
				t.Errorf("%s no longer imports %s: remove it from the import table", row.name, unused)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(actual)) {
		t.Errorf("%s is not in the import table: add a row with its imports %v and the reason", name, actual[name])
	}
}

func TestImportsNeverCrossABoundary(t *testing.T) {
	t.Parallel()
	imports := readImports(t)
	for _, boundary := range boundaries {
		matched := false
		for name := range imports {
			if !matches(boundary.packages, name) || forTests(name) {
				continue
			}
			matched = true
			for reached := range reachable(imports, name) {
				for _, never := range boundary.never {
					if matches(never, reached) {
						t.Errorf("%s imports %s, directly or through others: %s", name, reached, boundary.because)
					}
				}
			}
		}
		if !matched {
			t.Errorf("no package matches the boundary of %s: remove it", boundary.packages)
		}
	}
}

func TestArchitectureDocumentHasTheImportTable(t *testing.T) {
	t.Parallel()
	const (
		document = "docs/architecture.md"
		begins   = "<!-- The import table is made by architecture_test.go: go test . -update -->\n"
		ends     = "<!-- end of the import table -->\n"
	)
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begins)
	got, after, ended := strings.Cut(rest, ends)
	if !found || !ended {
		t.Fatalf("%s has no %q followed by %q", document, begins, ends)
	}
	want := renderImportTable()
	if *update {
		if err := os.WriteFile(document, []byte(before+begins+want+ends+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("%s has an old import table: run go test . -update\n got:\n%s\nwant:\n%s", document, got, want)
	}
}

// renderImportTable returns the import table and the boundaries as Markdown.
func renderImportTable() string {
	var b strings.Builder
	b.WriteString("| package | imports, of this repository | why |\n| --- | --- | --- |\n")
	for _, row := range importTable {
		imports := "nothing"
		if len(row.imports) > 0 {
			imports = codeList(row.imports)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.name, imports, row.because)
	}
	b.WriteString("\nForbidden even indirectly:\n\n")
	for _, boundary := range boundaries {
		never := codeList(boundary.never)
		if slices.Equal(boundary.never, []string{"..."}) {
			never = "any other package"
		}
		fmt.Fprintf(&b, "- `%s` must not import %s: %s.\n", boundary.packages, never, boundary.because)
	}
	return b.String()
}

func codeList(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }

// expand replaces each name like a/{b,c} by a/b and a/c.
func expand(names []string) (expanded []string) {
	for _, name := range names {
		prefix, rest, found := strings.Cut(name, "{")
		if !found {
			expanded = append(expanded, name)
			continue
		}
		for last := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
			expanded = append(expanded, prefix+last)
		}
	}
	return expanded
}

// readImports returns the packages of this repository, each with those that it imports directly outside its test
// files. It reads the source, not the output of go list, so that go test reruns the tests when a file changes.
func readImports(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	err := filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		importer := path.Dir(filepath.ToSlash(name))
		for _, spec := range file.Imports {
			imported, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "stock/")
			if ours && !slices.Contains(imports[importer], imported) {
				imports[importer] = append(imports[importer], imported)
			}
		}
		imports[importer] = slices.Sorted(slices.Values(imports[importer])) // also lists a package without imports
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports
}

func forTests(name string) bool {
	for _, row := range importTable {
		if row.name == name {
			return row.tests
		}
	}
	return false
}

// reachable returns what the package imports, directly or through others.
func reachable(imports map[string][]string, name string) map[string]bool {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		for _, imported := range imports[name] {
			if !seen[imported] {
				seen[imported] = true
				visit(imported)
			}
		}
	}
	visit(name)
	return seen
}

// matches reports whether the pattern, a path that may end in /..., stands for the package. The pattern ... stands for
// every package.
func matches(pattern, name string) bool {
	prefix, below := strings.CutSuffix(pattern, "...")
	prefix = strings.TrimSuffix(prefix, "/")
	return name == prefix || below && (prefix == "" || strings.HasPrefix(name, prefix+"/"))
}
