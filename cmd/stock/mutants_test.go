package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"
)

// The service that is deployed must not even contain the code that plants bugs.
func TestOnlyAProgramBuiltWithTheTagContainsMutants(t *testing.T) {
	t.Parallel()
	for tags, want := range map[string]bool{"": false, "mutants": true} {
		packages, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(packages), "stock/internal/stock/mutants\n"); got != want {
			t.Errorf("tags %q: the program contains mutants: %v, want %v", tags, got, want)
		}
	}
}

func TestADeployedServiceRefusesToPlantAMutant(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"serve", "--mutant=update-loses-a-sale"}, {"mutants"}} {
		err := run(t.Context(), args, func(string) string { return "" }, io.Discard, io.Discard)
		if exitCode(err) != 2 {
			t.Errorf("stock %v: %v, want wrong usage", args, err)
		}
	}
}
