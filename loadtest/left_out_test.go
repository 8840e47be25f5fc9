package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"stock/internal/must"
)

func TestNoScenarioIsPlayedOnServersThatCannotBeReachedThroughProxies(t *testing.T) {
	t.Parallel()
	const noTLS, noCluster = "certificates", "Redis Cluster"
	for _, test := range []struct {
		servers []string
		why     string
	}{
		{[]string{"--mysql-dsn=lab@tcp(db:3306)/", "--mysql-tls=on"}, noTLS},
		{[]string{"--mysql-dsn=lab@tcp(db:3306)/?tls=true"}, noTLS},
		{[]string{"--mysql-dsn=lab@tcp(db:3306)/?tls=skip-verify"}, noTLS},
		{[]string{"--mysql-dsn=lab@tcp(db:3306)/?tls=preferred"}, noTLS},
		{[]string{"--redis=cache:6380", "--redis-tls=on"}, noTLS},
		{[]string{"--redis=a:6379,b:6379"}, noCluster},
	} {
		runHere(t.Context(), append([]string{"faults"}, test.servers...)...).want(t, exitUnusable, test.why)
		f := runFlagsOf(t, test.servers)
		if notes := fmt.Sprint(f.notes()); f.faults || !strings.Contains(notes, test.why) {
			t.Errorf("run %v: plays fault scenarios: %t, notes %s", test.servers, f.faults, notes)
		}
	}
	plain := []string{"--mysql-dsn=lab@tcp(db:3306)/?tls=false&compress=true", "--redis=cache:6379"}
	if f := runFlagsOf(t, plain); !f.faults || len(f.notes()) > 0 {
		t.Errorf("run %v: plays fault scenarios: %t, notes %q", plain, f.faults, f.notes())
	}
}

func TestOnlyAStandardRunIsExplored(t *testing.T) {
	t.Parallel()
	if f := runFlagsOf(t, nil); !f.explore {
		t.Error("a run does not explore")
	}
	for _, args := range [][]string{
		{"--play-faults=false"}, {"--quick"}, {"--target=http://a", "--admin=http://b"}, {"--duration=1s"},
		{"--workload=plenty"}, {"--rate=10"}, {"--mysql-dsn=lab@tcp(db:3306)/"}, {"--redis=cache:6379"},
	} {
		if f := runFlagsOf(t, args); f.explore {
			t.Errorf("run %v explores", args)
		}
	}
}

// runFlagsOf returns the flags of a run, with their defaults.
func runFlagsOf(t *testing.T, args []string) *runFlags {
	t.Helper()
	var f runFlags
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.register(flags)
	must.Succeed(t, errors.Join(flags.Parse(args), f.check(flags)))
	f.setDefaults(flags)
	return &f
}
