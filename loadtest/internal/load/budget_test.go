package load

import (
	"testing"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

func TestShareGivesFastCellsWhatTheyNeedAndSlowCellsTheRest(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, test := range []struct {
		name   string
		budget time.Duration
		wanted []time.Duration
		want   time.Duration
	}{
		{"enough for all", 10 * s, []time.Duration{1 * s, 2 * s, 3 * s}, 3 * s},
		{"all too slow", 9 * s, []time.Duration{10 * s, 20 * s, 30 * s}, 3 * s},
		{"one slow", 10 * s, []time.Duration{1 * s, 46 * s, 2 * s}, 7 * s},
		{"nothing left", -5 * s, []time.Duration{1 * s}, 0},
		{"nothing wanted", 5 * s, nil, 5 * s},
	} {
		if got := share(test.budget, test.wanted); got != test.want {
			t.Errorf("%s: share %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSharesKeepToTheBudget(t *testing.T) {
	t.Parallel()
	wanted := []time.Duration{300, 700, 46_000, 8_000, 5, 12_000}
	for budget := time.Duration(1); budget < 80_000; budget += 997 {
		limit := share(budget, wanted)
		var spent time.Duration
		for _, want := range wanted {
			spent += min(want, limit)
		}
		if spent > budget && limit > 0 {
			t.Fatalf("budget %d: shares of %d add up to %d", budget, limit, spent)
		}
	}
}

func TestFitScalesRequestsAndSaysSo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rate    float64
		limit   time.Duration
		want    int
		bounded string
	}{
		{3000, 3 * time.Second, 6000, ""},
		{1990, 3 * time.Second, 6000, ""}, // not worth changing the sample size
		{342.86, 3500 * time.Millisecond, 1200, "1 200 of 6 000 requests: its time limit was 3.5 s"},
		{10, time.Second, minRequests, "200 of 6 000 requests: its time limit was 1.0 s"},
	} {
		got, bounded := fit(6000, test.rate, test.limit)
		if got != test.want || bounded != test.bounded {
			t.Errorf("%g/s for %v: %d requests, %q, want %d, %q", test.rate, test.limit, got, bounded, test.want, test.bounded)
		}
	}
	if got, bounded := fit(100, 1, time.Second); got != 100 || bounded != "" {
		t.Errorf("%d of 100 requests, bounded %q: want all, because fewer than minRequests are never cut", got, bounded)
	}
}

func TestComparedRowsAreMeasuredLonger(t *testing.T) {
	t.Parallel()
	named := func(strategy, workload string) row {
		return row{
			strategy: Strategy{Claim: Claim{OneReplica: verify.ClaimCorrect, TwoReplicas: verify.ClaimCorrect}},
			Cell: history.Cell{Subject: history.Subject{
				Strategy: strategy, Workload: history.Workload{Name: workload},
			}},
		}
	}
	lock, other, flash := named("lock", Plenty), named("other", Plenty), named("lock", FlashSale)
	r := &Runner{
		config:  Config{Requests: 6000, Users: 100, Budget: time.Minute, Compared: []string{"lock"}},
		longest: longestCell, began: time.Now(),
		rates: map[history.Subject]float64{lock.Subject: 500, other.Subject: 500, flash.Subject: 500},
	}
	for want, ahead := range map[time.Duration][]row{5 * time.Second: {lock, other}, longestCell: {other, lock}} {
		if got := r.limit(ahead); got != want {
			t.Errorf("%s: the limit is %v, want %v", ahead[0].Label(), got, want)
		}
	}
	if got := r.limit([]row{flash, lock}); got != longestCell {
		t.Errorf("a flash sale: the limit is %v, want %v", got, longestCell)
	}
}

func TestOneSlowRunChangesTheRateOnlyInPart(t *testing.T) {
	t.Parallel()
	for requests, want := range map[int]float64{6000: 200, 0: 100} { // 0: runs by duration
		run := &cellRun{Runner: &Runner{config: Config{Requests: requests}, rates: map[history.Subject]float64{}}}
		run.learnRate(400)
		run.learnRate(100)
		if got := run.rates[run.row.Subject]; got != want {
			t.Errorf("runs of %d requests at 400 and 100 per second: the rate is %v, want %v", requests, got, want)
		}
	}
}
