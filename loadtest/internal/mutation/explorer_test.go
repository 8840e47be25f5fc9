package mutation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock/mutants"
)

// A mutant that cannot be planted any more, or whose test has another name, would only be noticed by make judge.
func TestEveryMutantOfTheExplorerCanBePlanted(t *testing.T) {
	t.Parallel()
	tests := ""
	files, err := filepath.Glob("../explore/*_test.go")
	must.Succeed(t, err)
	for _, file := range files {
		tests += read(t, file)
	}
	for _, m := range ExplorerMutants() {
		if m.Oddity {
			continue
		}
		if _, err := m.rewrite.apply(read(t, filepath.Join("../explore", m.rewrite.file))); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		function, subtest, _ := strings.Cut(m.rewrite.test, "/")
		script, inGallery := strings.CutPrefix(subtest, "gallery/")
		if !strings.Contains(tests, "func "+function+"(t") ||
			inGallery && len(read(t, "../../scripts/"+script+".star")) == 0 ||
			subtest != "" && !inGallery && !strings.Contains(tests, `t.Run("`+subtest+`"`) {
			t.Errorf("%s: there is no test %s", m.Name, m.rewrite.test)
		}
	}
}

func TestTheDocumentCountsTheMutants(t *testing.T) {
	t.Parallel()
	families, bugs, oddities := map[string]int{}, 0, 0
	count := func(family string, oddity bool) {
		if oddity {
			oddities++
			return
		}
		families[family]++
		bugs++
	}
	for _, m := range mutants.All() {
		count(m.Family, m.Oddity)
	}
	for _, m := range ExplorerMutants() {
		count(m.Family, m.Oddity)
	}
	counts := []string{fmt.Sprintf("all %d bugs WRONG and all %d oddities CORRECT", bugs, oddities)}
	for family, n := range families {
		counts = append(counts, fmt.Sprintf(" %s %d", family, n))
	}
	text := strings.Join(strings.Fields(read(t, "../../../docs/judge.md")), " ")
	for _, want := range counts {
		if !strings.Contains(text, want) {
			t.Errorf("docs/judge.md lacks %q", want)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	return string(text)
}

func TestARewriteIsRefusedIfItDoesNotFitOnce(t *testing.T) {
	t.Parallel()
	r := rewrite{file: "a.go", old: "x", new: "y"}
	for text, want := range map[string]string{"a x b": "a y b", "a": "", "x x": ""} {
		if got, err := r.apply(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
