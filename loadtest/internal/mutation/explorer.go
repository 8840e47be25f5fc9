package mutation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"stock/internal/servers"
	"stock/loadtest/internal/verify"
)

// rewrite is a change of the explorer's source, and the test that must fail with it: the explorer misses a known
// result then. No program contains the change but that of the test.
type rewrite struct {
	file     string // below the explorer's directory
	old, new string // old is there once
	test     string // with its subtests, after slashes; several are separated by |
}

// explorer is the package that is changed, and whose tests are run.
const explorer = "stock/loadtest/internal/explore"

// ExplorerMutants lists the bugs of the explorer, and an oddity, for which the tests of all of them must pass.
func ExplorerMutants() []Mutant {
	unchanged := rewrite{}
	for _, bug := range explorerBugs {
		if test := bug.rewrite.test; !strings.Contains(unchanged.test+"|", test+"|") {
			unchanged.test = strings.TrimPrefix(unchanged.test+"|"+test, "|")
		}
	}
	return append(slices.Clone(explorerBugs), Mutant{
		Name: "explorer-unchanged", Family: "explorer", Oddity: true,
		Planted: "Nothing: the tests that give the bugs of the explorer away must pass.", rewrite: &unchanged,
	})
}

// try runs the test of a rewrite, and adds to a trial what came of it.
func (r *rewrite) try(ctx context.Context, t *Trial, dir string) error {
	args := []string{"test", "-v", "-count=1", "-timeout=2m", "-run=" + r.pattern(), explorer}
	if r.file != "" {
		overlay, err := r.overlay(ctx, dir)
		if err != nil {
			return err
		}
		args = append(args, "-overlay="+overlay)
	}
	t.Runs++
	t.Workload = r.test
	if t.Oddity {
		t.Workload = "all of these"
	}
	output, err := servers.Run(ctx, servers.Command{Name: "go test", Path: "go", Args: args})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for test := range strings.SplitSeq(r.test, "|") {
		switch {
		case strings.Contains(string(output), "--- FAIL: "+test+" ("):
			t.Verdict, t.Evidence = verify.Wrong, failure(output)
			return nil
		case !strings.Contains(string(output), "--- PASS: "+test+" ("):
			return fmt.Errorf("the test %s was not run: %w\n%s", test, err, output)
		}
	}
	return nil
}

// pattern is that of go test -run.
func (r *rewrite) pattern() string {
	return "^" + strings.NewReplacer("/", "$/^", "|", "$|^").Replace(r.test) + "$"
}

// failures finds what a test complains about. It may have logged something before.
var failures = regexp.MustCompile(`(?m)^ +(\w+_test\.go:\d+: .*)$`)

func failure(output []byte) string {
	found := failures.FindAllSubmatch(output, -1)
	if len(found) == 0 {
		return "the test failed"
	}
	return string(found[len(found)-1][1])
}

// overlay writes the changed file, and the file that has the go command read it instead of the original.
func (r *rewrite) overlay(ctx context.Context, dir string) (path string, err error) {
	list := servers.Command{Name: "go list", Path: "go", Args: []string{"list", "-f={{.Dir}}", explorer}}
	output, err := servers.Run(ctx, list)
	if err != nil {
		return "", fmt.Errorf("mutants of the explorer need its source and Go: run this in the directory of stock, or "+
			"choose other mutants with --mutants: %w: %s", err, output)
	}
	original := filepath.Join(strings.TrimSpace(string(output)), r.file)
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	changed, err := r.apply(string(text))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	copied, path := filepath.Join(dir, filepath.Base(r.file)), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {original: copied}})
	if err == nil {
		err = os.WriteFile(copied, []byte(changed), 0o644)
	}
	if err == nil {
		err = os.WriteFile(path, replaced, 0o644)
	}
	return path, err
}

// apply returns the text of the file with the change.
func (r *rewrite) apply(text string) (string, error) {
	if n := strings.Count(text, r.old); n != 1 {
		return "", fmt.Errorf("%s has %d times what a mutant changes, want once: %s", r.file, n, r.old)
	}
	return strings.Replace(text, r.old, r.new, 1), nil
}
