package main

import (
	"slices"
	"strings"
	"testing"

	"stock/internal/stats"
)

// of returns the samples of a lock in a case, one per round, with the value in every metric that the tests use.
func of(benchCase, lock string, values ...float64) (s samples) {
	for round, v := range values {
		s = append(s, &sample{
			Case: benchCase, Lock: lock, Round: round,
			Locks: v, Longest: v, Median: v, Commands: v, Fairness: v, Trips: v,
		})
	}
	return s
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	t.Parallel()
	// Every round is slower than the one before, for both.
	s := append(of(crowd, redisQueue, 600, 300, 150, 75, 36, 18), of(crowd, "redsync", 100, 50, 25, 12.5, 6, 3)...)
	six := stats.Interval{Low: 6, High: 6}
	if got := s.ratio(rate, crowd, redisQueue, "redsync"); got.Median != 6 || *got.Interval != six {
		t.Errorf("the ratio is %s, want 6 in every round", got.Span())
	}
}

func TestATargetIsMetWithItsWholeInterval(t *testing.T) {
	t.Parallel()
	library := func(v float64) samples { return of(crowd, "redsync", v, v, v, v, v, v) }
	for name, c := range map[string]struct {
		queue []float64
		want  string
	}{
		"above":  {[]float64{510, 520, 530, 540, 550, 560}, "met"},
		"below":  {[]float64{410, 420, 430, 440, 450, 460}, "not met"},
		"across": {[]float64{490, 500, 510, 520, 530, 540}, "open"},
	} {
		verdicts := judge(append(of(crowd, redisQueue, c.queue...), library(100)...), nil)
		if len(verdicts) != 1 || verdicts[0].Outcome != c.want || !strings.HasSuffix(verdicts[0].Measured, "× redsync") {
			t.Errorf("%s 5 ×: %+v, want %q", name, verdicts, c.want)
		}
	}
}

func TestNoSlowerIsMetByATie(t *testing.T) {
	t.Parallel()
	library := of(uncontended, "redislock", 100, 100, 100, 100, 100, 100)
	for want, queue := range map[string][]float64{
		"met":     {105, 104, 103, 102, 101, 99},
		"not met": {107, 106, 105, 104, 103, 102},
	} {
		verdicts := judge(append(of(uncontended, redisQueue, queue...), library...), nil)
		if got := verdicts[len(verdicts)-1]; got.Outcome != want {
			t.Errorf("%v against 100: %+v, want %q", queue, got, want)
		}
	}
}

func TestBestLibraryIsNotOneOfOurLocks(t *testing.T) {
	t.Parallel()
	s := slices.Concat(
		of(crowd, "redis-lua", 900), of(crowd, "redsync", 300), of(crowd, "redislock", 200), of(crowd, "rueidislock", 250),
	)
	if best, ok := s.bestLibrary(rate, crowd, highest); best != "redsync" || !ok {
		t.Errorf("the fastest library is %q, want redsync", best)
	}
	if best, ok := s.bestLibrary(longest, crowd, lowest); best != "redislock" || !ok {
		t.Errorf("the library with the shortest of the longest waits is %q, want redislock", best)
	}
	if _, ok := s.bestLibrary(rate, uncontended, highest); ok {
		t.Error("found a best library in a case that was not run")
	}
}

func TestIdleLeasesAreJudgedByTheirShareOfACore(t *testing.T) {
	t.Parallel()
	for cpu, want := range map[float64]string{0.049: "met", 0.05: "not met"} {
		if got := judge(nil, &idle{Leases: 10_000, CPU: cpu}); len(got) != 1 || got[0].Outcome != want {
			t.Errorf("%v: %+v, want %q", cpu, got, want)
		}
	}
}
