package main

import (
	"regexp"
	"strings"
	"testing"
)

func TestPlantFindsBugsAndClearsOddities(t *testing.T) {
	t.Parallel()
	found := []string{ // one for each way in which a bug is found
		"update-neighbour", "redis-script-unchecked", "redis-script-by-number", "fence-checks-the-token-alone",
		"reserve-lost-confirmation-as-busy", // explored
		"failure-of-commit-ignored",         // in a fault scenario that cannot be played to its end
		"explorer-allows-one-preemption-less",
	}
	got := finish(t, "plant", "--requests", "300", "--only", strings.Join(append(found, "uneven-stream"), ","))
	got.want(t, exitHeld, "7 of 7 bugs were found WRONG, 1 of 1 oddities CORRECT")
}

func TestPlantNamesTheBugThatDoesNotExist(t *testing.T) {
	t.Parallel()
	finish(t, "plant", "--only", "none-such").
		want(t, exitUnusable, `nothing to plant is named "none-such": `, "--list lists all")
}

func TestPlantListsWhatItPlants(t *testing.T) {
	t.Parallel()
	got := finish(t, "plant", "--list", "--only", "slow,explorer-keeps-leases")
	want := regexp.MustCompile(`^slow +oddities +oddity +Each .+\nexplorer-keeps-leases +explorer +bug +A .+\n$`)
	if got.code != exitHeld || !want.MatchString(got.stdout) {
		t.Errorf("exit status %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
}
