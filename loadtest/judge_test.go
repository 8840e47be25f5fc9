package main

import (
	"regexp"
	"strings"
	"testing"

	"stock/internal/must"
)

func TestJudgeFindsPlantedBugsAndClearsOddities(t *testing.T) {
	t.Parallel()
	found := []string{ // one for each place in which a mutant can be
		"update-refuses-two", "update-unchecked", "for-update-rolls-back", "redis-script-unchecked",
		"lock-redis-owner-one-replica", "lock-mysql-getlock-unasked", "reserve-cancels-twice",
		"reserve-lost-confirmation-as-busy", // in a fault scenario
		"for-update-ignores-a-failure",      // in one that cannot be played to its end
		"explorer-allows-one-preemption-less",
	}
	cleared := []string{"busy", "token-gaps"}
	got := finish(t, "judge", "--requests", "300", "--mutants", strings.Join(append(found, cleared...), ","))
	got.want(t, exitHeld, "10 of 10 bugs were found WRONG, 2 of 2 oddities CORRECT")
}

func TestJudgeNamesTheMutantThatDoesNotExist(t *testing.T) {
	t.Parallel()
	finish(t, "judge", "--mutants", "none-such").
		want(t, exitUnusable, `no mutant is named "none-such": `, "--list lists all")
}

func TestJudgeListsWhatItPlants(t *testing.T) {
	t.Parallel()
	got := finish(t, "judge", "--list", "--mutants", "slow,explorer-keeps-leases")
	want := regexp.MustCompile(`^slow +oddity +oddity +Each .+\nexplorer-keeps-leases +explorer +bug +A .+\n$`)
	if got.code != exitHeld || !want.MatchString(got.stdout) {
		t.Errorf("exit status %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
}

func TestJudgeNeedsAServiceThatCanPlantMutants(t *testing.T) {
	t.Parallel()
	dir, err := programs()
	must.Succeed(t, err)
	finish(t, "judge", "--stock-binary", dir+"/stock").want(t, exitUnusable, "it must be built with -tags mutants")
}
