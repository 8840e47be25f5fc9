package topology

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
)

func TestStockBesideThisProgramIsUsedOnlyIfBuiltTogether(t *testing.T) {
	t.Parallel()
	built := time.Now()
	for name, test := range map[string]struct {
		age  time.Duration // how much older stock is than this program; negative: there is none
		want bool
	}{
		"by the same build":     {5 * time.Second, true},
		"by an earlier build":   {time.Hour, false},
		"none, as under go run": {-1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			self, stock := filepath.Join(dir, "loadtest"), filepath.Join(dir, "stock")
			write(t, self, built)
			if test.age >= 0 {
				write(t, stock, built.Add(-test.age))
			}
			if path, found := builtWith(self); found != test.want || found && path != stock {
				t.Errorf("found %v at %q, want %v", found, path, test.want)
			}
		})
	}
}

// It is not parallel because it changes the environment.
func TestTheServiceIsBuiltWithItsRevision(t *testing.T) {
	t.Setenv("GOFLAGS", "-buildvcs=false")
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Skipf("this is not a git checkout: %v", err)
	}
	stock := filepath.Join(t.TempDir(), "stock")
	if output, err := buildStock(t.Context(), stock); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	out, err := exec.Command(stock, "version").Output()
	if want := "revision " + strings.TrimSpace(string(head)); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}

// write creates an executable file with the given modification time.
func write(t *testing.T, path string, at time.Time) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, nil, 0o700))
	must.Succeed(t, os.Chtimes(path, at, at))
}
