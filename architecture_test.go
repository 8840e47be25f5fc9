package stock_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bans say which packages of this module a package must not import, directly or through others, and why. A name that ends
// in /... stands for everything below it. Test files are free.
var bans = []struct {
	packages, mayNotImport, because string
}{
	{"stock/internal/locks", "stock/...", "a lock knows nothing of what it guards"},
	{"stock/internal/servers", "stock/internal/stock/...", "servers are the same whoever uses them"},
	{"stock/internal/servers", "stock/loadtest/...", "servers are the same whoever uses them"},
	{"stock/internal/stock", "stock/internal/stock/httpapi", "the domain does not know how it is reached"},
	{"stock/internal/stock/...", "stock/internal/servers/...", "the service connects to servers, it never starts them"},
	{"stock/internal/stock/...", "stock/loadtest/...", "what is judged does not know its judge"},
	{"stock/cmd/...", "stock/internal/servers/...", "the service connects to servers, it never starts them"},
	{"stock/cmd/...", "stock/loadtest/...", "what is judged does not know its judge"},
	{"stock/loadtest/...", "stock/internal/stock/...", "the lab is black-box: it learns all over HTTP"},
	{"stock/loadtest/...", "stock/internal/locks", "the lab is black-box: it learns all over HTTP"},
	{"stock/loadtest/internal/history", "stock/...", "a history is read without anything that made it"},
	{"stock/loadtest/internal/verify", "stock/loadtest/internal/traffic", "the judge does not know the load"},
	{"stock/loadtest/internal/verify", "stock/loadtest/internal/oracle", "the judge knows what was written down, nothing else"},
	{"stock/loadtest/internal/verify", "stock/loadtest/internal/topology", "the judge knows what was written down, nothing else"},
	{"stock/loadtest/internal/report", "stock/loadtest/internal/traffic", "a report is made from histories and verdicts alone"},
	{"stock/loadtest/internal/report", "stock/loadtest/internal/topology", "a report is made from histories and verdicts alone"},
	{"stock/loadtest/internal/traffic", "stock/loadtest/internal/verify", "the load does not know the judge"},
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	t.Parallel()
	imports := readImports(t)
	for _, ban := range bans {
		matched := false
		for path := range imports {
			if !matches(ban.packages, path) || slices.Contains(suites, path) {
				continue
			}
			matched = true
			for dep := range reachable(imports, path) {
				if dep != path && matches(ban.mayNotImport, dep) {
					t.Errorf("%s imports %s: %s", path, dep, ban.because)
				}
			}
		}
		if !matched {
			t.Errorf("the ban on %s bans nothing: no such package", ban.packages)
		}
	}
}

// suites are test code that lives in packages of its own.
var suites = []string{"stock/internal/locks/lockstest", "stock/internal/servers/serverstest", "stock/internal/stock/stocktest"}

// readImports finds what each package of this module imports of it, test files aside. It reads the source itself, not
// through go list, so that go test knows to run this test again whenever a file changes.
func readImports(t *testing.T) map[string][]string {
	imports := map[string][]string{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
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
		path := "stock/" + filepath.ToSlash(filepath.Dir(name))
		imports[path] = append(imports[path], path)
		for _, spec := range file.Imports {
			if dep := strings.Trim(spec.Path.Value, `"`); strings.HasPrefix(dep, "stock/") {
				imports[path] = append(imports[path], dep)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports
}

// reachable is a package and all that it imports, directly or through others.
func reachable(imports map[string][]string, path string) map[string]bool {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(path string) {
		if !seen[path] {
			seen[path] = true
			for _, dep := range imports[path] {
				visit(dep)
			}
		}
	}
	visit(path)
	return seen
}

func matches(pattern, path string) bool {
	prefix, below := strings.CutSuffix(pattern, "/...")
	return path == prefix || below && strings.HasPrefix(path, prefix+"/")
}
