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
	is      string
	tests   bool // the package is for test files only, and the boundaries do not bind it
}{
	{
		name: "internal/locks",
		is:   "one file per lock",
	},
	{
		name: "internal/monotonic",
		is:   "the clock that processes of one host share",
	},
	{
		name: "internal/suggest",
		is:   "the names that a mistyped one may stand for",
	},
	{
		name: "internal/origin",
		is:   "refuses what other pages make a browser send",
	},
	{
		name: "internal/access",
		is:   "TLS settings and passwords",
	},
	{
		name: "internal/stock/share",
		is:   "divides the connections to MySQL between the items",
	},
	{
		name:    "internal/stock",
		imports: []string{"internal/{locks,monotonic}", "internal/stock/share"},
		is:      "the contract: request, receipt, errors, order, strategy, claim, critical section",
	},
	{
		name:    "internal/stock/retry",
		imports: []string{"internal/locks", "internal/stock"},
		is:      "how optimistic strategies retry",
	},
	{
		name:    "internal/stock/batching",
		imports: []string{"internal/monotonic", "internal/stock"},
		is:      "the queue in which requests wait to share a commit or a call",
	},
	{
		name:    "internal/stock/mysql",
		imports: []string{"internal/stock", "internal/stock/{batching,retry,share}"},
		is:      "strategies on MySQL, one file for each",
	},
	{
		name:    "internal/stock/redis",
		imports: []string{"internal/stock", "internal/stock/{batching,retry}"},
		is:      "strategies on Redis, one file for each",
	},
	{
		name:    "internal/stock/guard",
		imports: []string{"internal/locks", "internal/stock", "internal/stock/{mysql,redis}"},
		is:      "a lock around read-modify-write, and its fence",
	},
	{
		name:    "internal/stock/stream",
		imports: []string{"internal/stock", "internal/stock/{mysql,redis}"},
		is:      "sells in Redis, writes behind to MySQL, reconciles, prunes",
	},
	{
		name:    "internal/stock/inventory",
		imports: []string{"internal/stock", "internal/stock/{mysql,redis}"},
		is:      "reads, sets and restocks items in all stores",
	},
	{
		name:    "internal/stock/health",
		imports: []string{"internal/access", "internal/stock", "internal/stock/{mysql,redis}"},
		is:      "asks the servers whether they answer",
	},
	{
		name:    "internal/stock/catalogue",
		imports: []string{"internal/locks", "internal/stock", "internal/stock/{guard,mysql,redis,stream}"},
		is:      "the table of all strategies",
	},
	{
		name:    "internal/stock/mutants",
		imports: []string{"internal/locks", "internal/stock"},
		is:      "bugs and oddities that test the judge",
	},
	{
		name: "internal/stock/httpapi",
		imports: []string{
			"internal/origin", "internal/stock", "internal/stock/{catalogue,health,inventory,stream}", "internal/suggest",
		},
		is: "the HTTP API; no other package below `internal/stock` imports net/http",
	},
	{
		name: "migrations",
		is:   "the schema",
	},
	{
		name: "cmd/stock",
		imports: []string{
			"internal/access", "internal/locks", "internal/stock",
			"internal/stock/{catalogue,httpapi,mutants,mysql,share,stream}", "internal/suggest", "migrations",
		},
		is: "the service: serve, migrate, prune, reconcile, healthcheck, version",
	},
	{
		name: "nginx",
		is:   "the load balancer's configuration",
	},
	{
		name: "internal/servers",
		is:   "real servers as private child processes",
	},
	{
		name: "internal/tcpproxy",
		is:   "a proxy that cuts, holds and delays connections",
	},
	{
		name: "internal/stats",
		is:   "means, intervals and differences of measurements",
	},
	{
		name: "loadtest/internal/history",
		is:   "what each client asked, when, and what it was told, on disk",
	},
	{
		name:    "loadtest/internal/oracle",
		imports: []string{"internal/access", "loadtest/internal/history"},
		is:      "reads stock and ledger directly",
	},
	{
		name:    "loadtest/internal/verify",
		imports: []string{"loadtest/internal/history"},
		is:      "the judge",
	},
	{
		name:    "loadtest/internal/timeline",
		imports: []string{"loadtest/internal/{history,verify}"},
		is:      "critical sections on a time axis",
	},
	{
		name:    "loadtest/internal/service",
		imports: []string{"internal/servers", "loadtest/internal/history"},
		is:      "the description of a service of the user's",
	},
	{
		name:    "loadtest/internal/traffic",
		imports: []string{"internal/monotonic", "loadtest/internal/{history,service}"},
		is:      "the load: closed loop and open loop",
	},
	{
		name:    "loadtest/internal/scenario",
		imports: []string{"internal/{monotonic,stats,suggest}", "loadtest/internal/{history,oracle,service,traffic,verify}"},
		is:      "what is run, and in which order",
	},
	{
		name:    "loadtest/internal/report",
		imports: []string{"internal/stats", "loadtest/internal/{explore/trace,history,timeline,verify}"},
		is:      "Markdown and JSON",
	},
	{
		name:    "loadtest/internal/topology",
		imports: []string{"internal/{servers,tcpproxy}", "loadtest/internal/{oracle,service,tenant}", "nginx"},
		is:      "servers, replicas and nginx, started and stopped as one",
	},
	{
		name:    "loadtest/internal/tenant",
		imports: []string{"internal/access", "loadtest/internal/oracle"},
		is:      "the lab's own database and keys on servers of the user",
	},
	{
		name:    "loadtest/internal/messages",
		imports: []string{"internal/tcpproxy", "loadtest/internal/{oracle,scenario,topology}"},
		is:      "what the messages between a replica and its stores do",
	},
	{
		name: "loadtest/internal/fault",
		imports: []string{
			"internal/{monotonic,servers,suggest,tcpproxy}",
			"loadtest/internal/{explore,explore/trace,history,messages,oracle,report}",
			"loadtest/internal/{scenario,timeline,topology,traffic,verify}", "loadtest/scripts",
		},
		is: "the fault scenarios",
	},
	{
		name: "loadtest/internal/explore/wire",
		is:   "the protocols of MySQL and Redis",
	},
	{
		name:    "loadtest/internal/explore/script",
		imports: []string{"internal/suggest"},
		is:      "reads sessions in Starlark",
	},
	{
		name: "loadtest/internal/explore/trace",
		is:   "what an exploration found",
	},
	{
		name: "loadtest/scripts",
		is:   "the scripts that the lab comes with",
	},
	{
		name: "loadtest/internal/explore",
		imports: []string{
			"internal/{monotonic,servers}",
			"loadtest/internal/explore/{script,trace,wire}",
			"loadtest/internal/{history,oracle,scenario,service,topology,traffic,verify}", "migrations",
		},
		is: "every interleaving of two requests, with at most one fault",
	},
	{
		name:    "loadtest/internal/bench",
		imports: []string{"internal/{servers,stats}", "loadtest/internal/{report,scenario,traffic,verify}"},
		is:      "the comparison with what the machine allows",
	},
	{
		name: "loadtest/internal/page",
		imports: []string{
			"internal/stats", "loadtest/internal/{explore/trace,history,report,timeline,verify}",
		},
		is: "the report as a page for the browser",
	},
	{
		name: "loadtest/internal/mutation",
		imports: []string{
			"internal/{servers,suggest}", "loadtest/internal/{fault,history,report,scenario,topology,verify}",
		},
		is: "has the lab run mutants, to test the judge",
	},
	{
		name: "loadtest/internal/lab",
		imports: []string{
			"loadtest/internal/{fault,history,oracle,page,report,scenario,service,topology}",
		},
		is: "what the commands and the console share",
	},
	{
		name: "loadtest/internal/console",
		imports: []string{
			"internal/{monotonic,origin,tcpproxy}",
			"loadtest/internal/{explore,explore/trace,fault,history,lab,messages,oracle,page,report,scenario}",
			"loadtest/internal/{topology,traffic,verify}",
			"loadtest/scripts",
		},
		is: "the lab in the browser, served by loadtest up",
	},
	{
		name: "loadtest",
		imports: []string{
			"internal/{access,servers,suggest}",
			"loadtest/internal/{bench,console,explore,fault,history,lab,mutation,oracle,page,report,scenario,topology}",
			"loadtest/internal/{explore/trace,service,tenant,traffic,verify}",
		},
		is: "the commands of the lab",
	},
	{
		name: "loadtest/clients",
		is:   "example clients, in any language",
	},
	{
		name:    "internal/locks/bench",
		imports: []string{"internal/{locks,servers,stats}"},
		is:      "the comparison of locks with libraries, a module of its own",
	},
	{
		name:    "internal/locks/lockstest",
		imports: []string{"internal/{locks,tcpproxy}", "internal/servers/serverstest"},
		is:      "the conformance suite of locks",
		tests:   true,
	},
	{
		name:    "internal/servers/serverstest",
		imports: []string{"internal/servers"},
		is:      "shares servers between tests",
		tests:   true,
	},
	{
		name:  "loadtest/internal/browsertest",
		is:    "opens pages in Chromium, in tests",
		tests: true,
	},
	{
		name: "internal/stock/stocktest",
		imports: []string{
			"internal/servers/serverstest", "internal/stock",
			"internal/stock/{catalogue,health,inventory,share,stream}", "internal/tcpproxy", "migrations",
		},
		is:    "the conformance suite of strategies",
		tests: true,
	},
}

// boundaries list what a package must not import, directly or through other packages, whatever the table allows. A path
// that ends in /... stands for the package and all packages below it.
var boundaries = []struct {
	packages []string
	never    []string
	because  string
}{
	{
		packages: []string{"internal/locks"},
		never:    []string{"..."},
		because:  "a lock does not know what it guards",
	},
	{
		packages: []string{"internal/servers"},
		never:    []string{"..."},
		because:  "servers are started in the same way for every user",
	},
	{
		packages: []string{"internal/stock/..."},
		never:    []string{"internal/stock/httpapi"},
		because:  "the domain does not know how it is reached",
	},
	{
		packages: []string{"internal/stock/...", "cmd/..."},
		never:    []string{"internal/servers/..."},
		because:  "the service connects to servers and never starts them",
	},
	{
		packages: []string{"internal/stock/...", "cmd/..."},
		never:    []string{"loadtest/..."},
		because:  "the service does not know its judge",
	},
	{
		packages: []string{"loadtest/..."},
		never:    []string{"internal/stock/...", "internal/locks/...", "cmd/..."},
		because:  "the lab knows the service only by its HTTP API and by what is in the stores",
	},
	{
		packages: []string{"loadtest/internal/history"},
		never:    []string{"..."},
		because:  "a history can be read without the code that recorded it",
	},
	{
		packages: []string{"loadtest/internal/verify"},
		never:    []string{"loadtest/internal/traffic", "loadtest/internal/oracle", "loadtest/internal/topology"},
		because:  "the judge sees only what was recorded",
	},
	{
		packages: []string{"loadtest/internal/report"},
		never:    []string{"loadtest/internal/traffic", "loadtest/internal/topology"},
		because:  "a report is made from histories and verdicts alone",
	},
	{
		packages: []string{"loadtest/internal/traffic"},
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
		case row.is == "":
			t.Errorf("%s: the import table does not say what it is", row.name)
		}
		for _, imported := range imports {
			if !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s, which the import table does not allow", row.name, imported)
			}
		}
		for _, unused := range allowed {
			if !slices.Contains(imports, unused) {
				t.Errorf("%s no longer imports %s: remove it from the import table", row.name, unused)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(actual)) {
		t.Errorf("%s is not in the import table: add a row with its imports %v and what it is", name, actual[name])
	}
}

func TestImportsNeverCrossABoundary(t *testing.T) {
	t.Parallel()
	imports := readImports(t)
	for _, boundary := range boundaries {
		matched := false
		for name := range imports {
			if forTests(name) || !slices.ContainsFunc(boundary.packages, func(p string) bool { return matches(p, name) }) {
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
	b.WriteString("| package | what it is | imports, of this repository |\n| --- | --- | --- |\n")
	for _, row := range importTable {
		imports := ""
		if len(row.imports) > 0 {
			imports = codeList(row.imports)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.name, row.is, imports)
	}
	b.WriteString("\nForbidden even indirectly:\n\n")
	for _, boundary := range boundaries {
		never := codeList(boundary.never)
		if slices.Equal(boundary.never, []string{"..."}) {
			never = "any other package"
		}
		fmt.Fprintf(&b, "- %s must not import %s: %s.\n", codeList(boundary.packages), never, boundary.because)
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
