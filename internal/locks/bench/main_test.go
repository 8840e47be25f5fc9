package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
)

func TestARunMeasuresEveryLock(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new", "bench.md")
	o, err := parse([]string{
		"-time", "100ms", "-rounds", "1", "-seed", "7", "-markdown", file,
		"-cases", "^1 contender, 0 ms|^64 contenders, 2 ms|^8 contenders of 8 clients, 2 ms",
	})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), o, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(stderr.String(), "failed") {
		t.Error(&stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != stdout.String() {
		t.Errorf("the file has %q, %v, want what was shown", text, err)
	}
	for _, want := range []string{
		"seed 7", "| case | `redis-queue` |", " `rueidislock` |\n", "| 1 contender, 0 ms | **", "<br>2.00<br>",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

func TestALockThatLetsTwoInFailsTheRun(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"^8 contenders, 2 ms", "^8 contenders of 8 clients, 2 ms"} {
		o, err := parse([]string{"-time", "100ms", "-rounds", "1", "-cases", name})
		if err != nil {
			t.Fatal(err)
		}
		none := func(redis.UniversalClient, locks.Options) locks.None { return locks.None{} }
		o.subjects = []subject{{"none", ours(none)}}
		var stdout, stderr bytes.Buffer
		err = run(t.Context(), o, &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), "two contenders held a lock at once") || stdout.Len() > 0 {
			t.Errorf("%s: %v, want that two contenders held the lock, and no table", name, err)
		}
	}
}

func TestWrongUsageIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-cases", "no such"}, {"-locks", "("}, {"-rounds", "0"}, {"more"}, {"-no-such-flag"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
