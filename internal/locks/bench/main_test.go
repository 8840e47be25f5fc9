package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// broken excludes nobody: the bench must detect it.
const broken = "broken"

func TestMain(m *testing.M) {
	none := func(redis.UniversalClient) locks.Locker { return locks.None{} }
	subjects = append(subjects, subject{Name: broken, open: ours(none)})
	if os.Getenv(asClient) != "" {
		beClient()
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // clients would otherwise take a second to exit
	os.Exit(m.Run())
}

func TestARunMeasuresEveryLock(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	o, err := parse([]string{
		"-quick", "-seed", "7", "-locks", "^r",
		"-cases", "^uncontended|^64 contenders, 2 ms|^8 contenders in 8 processes, 2 ms",
	}, &text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := bench(t.Context(), o, &text)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 * 7; len(got.Samples) != want {
		t.Errorf("%d samples, want %d", len(got.Samples), want)
	}
	for _, s := range got.Samples {
		waited, took := s.Longest > 0, s.Median > 0 && s.P99 >= s.Median
		if took != (s.Case == uncontended) || took == waited {
			t.Errorf("%s, %s: not measured as its case requires: %+v", s.Lock, s.Case, s)
		}
		if s.Case == uncontended && s.Lock == "redis-lua" && (s.Commands != 2 || s.Trips != 2) {
			t.Errorf("%s: %v commands in %v round trips, want 2 and 2", s.Lock, s.Commands, s.Trips)
		}
		if s.Failures > 0 {
			t.Errorf("%s, %s: %d failures: %s", s.Lock, s.Case, s.Failures, s.Failure)
		}
	}
	if got.Idle == nil || got.Idle.CPU <= 0 || got.Idle.RedisCPU <= 0 {
		t.Errorf("idle leases: %+v, want a share of a core", got.Idle)
	}
	got.writeText(&text)
	got.writeMarkdown(&text)
	for _, want := range []string{
		"| case | `redis-queue` |", "| 64 contenders, 2 ms | **", "rueidislock", "wanted", "seed 7",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &text)
		}
	}
}

func TestALockThatLetsTwoInFailsTheRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new", "bench.md")
	for _, benchCase := range []string{"^8 contenders, 2 ms", "^8 contenders in 8 processes, 2 ms"} {
		var stdout, stderr bytes.Buffer
		args := []string{"-quick", "-leases", "0", "-locks", broken, "-cases", benchCase, "-markdown", file}
		status := run(t.Context(), args, &stdout, &stderr)
		if status != exitViolated || !strings.Contains(stderr.String(), "two contenders held a lock at once") {
			t.Errorf("%s: exit status %d, want %d: %s", benchCase, status, exitViolated, &stderr)
		}
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "| `broken` |") {
			t.Errorf("%s: the file has no table of the lock: %q, %v", benchCase, text, err)
		}
	}
}

func TestAClientEndsWithTheProgramThatStartedIt(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	shared, err := newDetectorFile()
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	j := job{Lock: "redis-lua", Addr: server.Addr, Key: "key", First: 1, Contenders: 1, Time: time.Hour}
	p, err := startProcess(t.Context(), j, shared)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.end(true) }() // cannot fail if it kills
	var word string
	if err := p.replies.Decode(&word); err != nil {
		t.Fatal(err)
	}
	if err := p.orders.Encode("go"); err != nil {
		t.Fatal(err)
	}

	p.in.Close() // as the kernel does when the parent is killed

	serverstest.Gone(t, []int{p.cmd.Process.Pid}, nil)
}

func TestWrongUsageIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-cases", "no such"}, {"-locks", "("}, {"-rounds", "0"}, {"-rounds", "1001"}, {"more"}, {"-no-such-flag"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), args, &stdout, &stderr); status != exitUnusable || stderr.Len() == 0 {
			t.Errorf("%v: exit status %d and %q, want %d and a reason", args, status, &stderr, exitUnusable)
		}
	}
}

func TestEachRoundHasEveryCellInAnOrderOfTheSeed(t *testing.T) {
	t.Parallel()
	names := func(cells []cell) (names []string) {
		for _, c := range cells {
			names = append(names, c.String())
		}
		return names
	}
	once := names(plan(cases, subjects, 3, 1))
	if again := names(plan(cases, subjects, 3, 1)); !slices.Equal(once, again) {
		t.Error("the same seed gives two orders")
	}
	if other := names(plan(cases, subjects, 3, 2)); slices.Equal(once, other) {
		t.Error("two seeds give the same order")
	}
	perRound := (len(cases)-1)*len(subjects) + 1 // in one case, all locks share a cell
	for round := range 3 {
		for _, name := range once[round*perRound : (round+1)*perRound] {
			if want := "round " + string(rune('1'+round)); !strings.HasPrefix(name, want) {
				t.Errorf("%q is among the cells of %s", name, want)
			}
		}
	}
	slices.Sort(once)
	if distinct := len(slices.Compact(once)); distinct != 3*perRound {
		t.Errorf("%d distinct cells, want %d", distinct, 3*perRound)
	}
}
