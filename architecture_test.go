package stock_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
)

// architecture is the document with the import table, which lists the packages of this repository from the bottom up,
// each with those that it imports directly, and with the boundaries that nothing may cross. Test files may import
// anything.
const architecture = "docs/architecture.md"

var (
	importRow = regexp.MustCompile("(?m)^\\| `(.*)` \\| (.*) \\| (.*) \\|$")
	boundary  = regexp.MustCompile("(?m)^- (`.*`) must not import (.*): (.*)\\.$")
	codeIn    = regexp.MustCompile("`([^`]+)`")
)

// readArchitecture finds a pattern in the import table and below it. It fails the test if it finds nothing.
func readArchitecture(t *testing.T, pattern *regexp.Regexp) [][]string {
	t.Helper()
	text, err := os.ReadFile(architecture)
	must.Succeed(t, err)
	_, table, _ := strings.Cut(string(text), "<!-- The import table ")
	table, _, _ = strings.Cut(table, "<!-- end of the import table -->")
	found := pattern.FindAllStringSubmatch(table, -1)
	if len(found) == 0 {
		t.Fatalf("%s has nothing like %s", architecture, pattern)
	}
	return found
}

// named returns the names in a text, each like `a` or `a/{b,c}`.
func named(text string) (names []string) {
	for _, match := range codeIn.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return expand(names)
}

func TestImportsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	actual := readImports(t)
	for _, row := range readArchitecture(t, importRow) {
		name, allowed := row[1], named(row[3])
		imports, found := actual[name]
		delete(actual, name)
		if !found {
			t.Errorf("%s is not a package, or is twice in the import table: remove the row", name)
			continue
		}
		for _, imported := range imports {
			if !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s, which the import table does not allow", name, imported)
			}
		}
		for _, unused := range allowed {
			if !slices.Contains(imports, unused) {
				t.Errorf("%s no longer imports %s: remove it from the import table", name, unused)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(actual)) {
		t.Errorf("%s is not in the import table: add a row with its imports %v and what it is", name, actual[name])
	}
}

// The boundaries do not bind packages for tests, such as stocktest.
func TestImportsNeverCrossABoundary(t *testing.T) {
	t.Parallel()
	imports := readImports(t)
	for _, b := range readArchitecture(t, boundary) {
		matched, never := false, named(b[2])
		if b[2] == "any other package" {
			never = []string{"..."}
		}
		for name := range imports {
			bound := slices.ContainsFunc(named(b[1]), func(p string) bool { return matches(p, name) })
			if !bound || strings.HasSuffix(name, "test") && name != "loadtest" {
				continue
			}
			matched = true
			for reached := range reachable(imports, name) {
				if slices.ContainsFunc(never, func(p string) bool { return matches(p, reached) }) {
					t.Errorf("%s imports %s, directly or through others: %s", name, reached, b[3])
				}
			}
		}
		if !matched {
			t.Errorf("no package matches the boundary of %s: remove it", b[1])
		}
	}
}

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
	must.Succeed(t, err)
	return imports
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
