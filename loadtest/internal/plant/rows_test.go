package plant

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/fault"
)

func TestEveryRowCanBePlanted(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	root, err := filepath.Abs("../../..")
	must.Succeed(t, err)
	overlay, err := writeOverlay(root, t.TempDir(), Rows)
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-overlay="+overlay, "./cmd/stock", "./"+explorer)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0") // as Build does, so that they share what is compiled
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

func TestEveryRowSaysWhatMustConvictIt(t *testing.T) {
	t.Parallel()
	names, faults := map[string]bool{}, []string{explore.LostReply, explore.ReplicaDies, explore.StockSet}
	for _, r := range Rows {
		if !regexp.MustCompile(`^[a-z-]+$`).MatchString(r.Name) || names[r.Name] {
			t.Errorf("%q: the name is malformed or used twice", r.Name)
		}
		names[r.Name] = true
		if !regexp.MustCompile(`^[A-Z0-9].*[^.]\.$`).MatchString(r.Planted) {
			t.Errorf("%s: %q is no sentence", r.Name, r.Planted)
		}
		given := []string{r.Scenario, r.Fault, r.Test}
		if len(slices.DeleteFunc(given, func(s string) bool { return s == "" })) > 1 {
			t.Errorf("%s: more than one thing convicts it", r.Name)
		}
		if r.Fault != "" && !slices.Contains(faults, r.Fault) {
			t.Errorf("%s: no fault is named %s", r.Name, r.Fault)
		}
		if r.Scenario != "" {
			if _, err := fault.Find([]string{r.Scenario}); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
		if r.Test != "" {
			checkTests(t, r)
		} else {
			checkStrategy(t, r)
		}
	}
}

// checkStrategy reports a row whose strategy is unknown, or wrong without it.
func checkStrategy(t *testing.T, r Row) {
	t.Helper()
	i := slices.IndexFunc(catalogue.Strategies, func(s stock.Strategy) bool { return s.Name == r.Strategy })
	if i < 0 {
		t.Errorf("%s: no strategy is named %q", r.Name, r.Strategy)
		return
	}
	s := catalogue.Strategies[i]
	if r.Store != "" && !slices.Contains(s.Stores, stock.Store(r.Store)) || s.Claim.TwoReplicas != stock.Correct {
		t.Errorf("%s: strategy %s is not correct on store %q without the row either", r.Name, r.Strategy, r.Store)
	}
}

// checkTests reports a row with a test that does not exist.
func checkTests(t *testing.T, r Row) {
	t.Helper()
	tests := ""
	files, err := filepath.Glob("../explore/*_test.go")
	must.Succeed(t, err)
	for _, file := range files {
		tests += read(t, file)
	}
	for test := range strings.SplitSeq(r.Test, "|") {
		function, subtest, _ := strings.Cut(test, "/")
		if !strings.Contains(tests, "func "+function+"(t") ||
			subtest != "" && !strings.Contains(tests, `t.Run("`+subtest+`"`) {
			t.Errorf("%s: there is no test %s", r.Name, test)
		}
	}
}

func TestTheDocumentsCountAndNameTheRows(t *testing.T) {
	t.Parallel()
	oddities := len(slices.DeleteFunc(slices.Clone(Rows), func(r Row) bool { return !r.Oddity }))
	want := fmt.Sprintf("all %d bugs WRONG and all %d oddities CORRECT", len(Rows)-oddities, oddities)
	if text := strings.Join(strings.Fields(read(t, "../../../docs/judge.md")), " "); !strings.Contains(text, want) {
		t.Errorf("docs/judge.md lacks %q", want)
	}
	named := regexp.MustCompile(`--only ([a-z,-]+)`).FindAllStringSubmatch(
		read(t, "../../../docs/judge.md")+read(t, "../../../docs/public-bugs.md"), -1)
	if len(named) != 3 {
		t.Errorf("the documents name rows in %d places, want 3", len(named))
	}
	for _, match := range named {
		_, err := Choose(strings.Split(match[1], ","))
		must.Succeed(t, err)
	}
}

func TestChooseFindsRowsByName(t *testing.T) {
	t.Parallel()
	last, first := Rows[len(Rows)-1].Name, Rows[0].Name
	got, err := Choose([]string{last, first})
	if err != nil || len(got) != 2 || got[0].Name != last || got[1].Name != first {
		t.Errorf("got %v, %v, want the last and the first", got, err)
	}
	if got, err := Choose(nil); err != nil || len(got) != len(Rows) {
		t.Errorf("got %d, %v, want all", len(got), err)
	}
	if _, err := Choose([]string{"none-such"}); err == nil {
		t.Error("an unknown name is accepted")
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	return string(text)
}
