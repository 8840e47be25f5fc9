package main

import (
	"os/exec"
	"strings"
	"testing"

	"stock/internal/must"
)

// The service that is deployed must not even contain the code that plants bugs.
func TestOnlyAProgramBuiltWithTheTagContainsMutants(t *testing.T) {
	t.Parallel()
	for tags, want := range map[string]bool{"": false, "mutants": true} {
		packages, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, ".").Output()
		must.Succeed(t, err)
		if got := strings.Contains(string(packages), "stock/internal/stock/mutants\n"); got != want {
			t.Errorf("tags %q: the program contains mutants: %v, want %v", tags, got, want)
		}
	}
}
