package main

import (
	"strings"
	"testing"
)

func TestSizePredictsFromTheRecord(t *testing.T) {
	t.Parallel()
	got := finish(t, "size", "--sales", "300", "--items", "100", "--strategies", "update")
	if got.code != 0 || !strings.Contains(got.stdout, "update: ") || !strings.Contains(got.stdout, "Measured on: ") {
		t.Errorf("exit status %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

func TestSizeRefusesWhatItCannotPredict(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--strategies", "updat"}, `the record has no updat: did you mean "update"?`},
		{[]string{"--items", "0"}, "--items 0: must be a number from 1 to 10000"},
		{[]string{"--sales", "-1"}, "--sales -1: must be positive"},
		{[]string{"--rtt", "-1ms"}, "must not be negative"},
		{[]string{"--record", "size_test.go"}, "not a record of loadtest size --measure"},
		{[]string{"--record", "missing.json"}, "no such file"},
		{[]string{"--measure", "--sales", "5"}, "--sales cannot be used with --measure"},
		{[]string{"--measure", "--rounds", "0"}, "--rounds 0: must be positive"},
		{[]string{"--rounds", "5"}, "--rounds needs --measure"},
	} {
		got := finish(t, append([]string{"size"}, test.args...)...)
		if got.code != exitUnusable || !strings.Contains(got.stderr, test.want) {
			t.Errorf("size %q: exit status %d, want %d\n%s\nwant %q", test.args, got.code, exitUnusable, got.stderr, test.want)
		}
	}
}
