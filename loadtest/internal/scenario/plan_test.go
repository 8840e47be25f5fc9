package scenario

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"stock/loadtest/internal/traffic"
)

func TestShareGivesTheFastOnesAllTheyNeedAndTheRestToTheSlow(t *testing.T) {
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
		if got := Share(test.budget, test.wanted); got != test.want {
			t.Errorf("%s: share %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSharesKeepToTheBudget(t *testing.T) {
	t.Parallel()
	wanted := []time.Duration{300, 700, 46_000, 8_000, 5, 12_000}
	for budget := time.Duration(1); budget < 80_000; budget += 997 {
		share := Share(budget, wanted)
		var spent time.Duration
		for _, want := range wanted {
			spent += min(want, share)
		}
		if spent > budget && share > 0 {
			t.Fatalf("budget %d: shares of %d add up to %d", budget, share, spent)
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
		{1990, 3 * time.Second, 6000, ""}, // not worth a different sample size
		{342.86, 3500 * time.Millisecond, 1200, "1 200 of 6 000 requests: 3.5 s limit"},
		{10, time.Second, leastRequests, "300 of 6 000 requests: 1.0 s limit"},
	} {
		got, bounded := Fit(6000, test.rate, test.limit)
		if got != test.want || bounded != test.bounded {
			t.Errorf("%g/s in %v: %d requests, %q, want %d, %q", test.rate, test.limit, got, bounded, test.want, test.bounded)
		}
	}
	if got, bounded := Fit(100, 1, time.Second); got != 100 || bounded != "" {
		t.Errorf("100 requests become %d, %q: a small run is never cut below what shows a race", got, bounded)
	}
}

func mixOf(t *testing.T, config traffic.MixConfig) *traffic.Mix {
	t.Helper()
	mix, err := traffic.NewMix(config)
	if err != nil {
		t.Fatal(err)
	}
	return mix
}

func total(units map[int64]int64) (sum int64) {
	for _, n := range units {
		sum += n
	}
	return sum
}

func TestUnitsFollowTheWorkload(t *testing.T) {
	t.Parallel()
	single := mixOf(t, traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
	unequal := mixOf(t, traffic.MixConfig{Seed: 9, Goods: 4, Skew: traffic.Zipf, MinCount: 1, MaxCount: 3})

	if got := Units(Plenty, single, 6000, 0); !maps.Equal(got, map[int64]int64{1: 6000}) {
		t.Errorf("plenty: %v, want 6000 units of goods 1", got)
	}
	if got := Units(FlashSale, single, 6000, 0); !maps.Equal(got, map[int64]int64{1: 1000}) {
		t.Errorf("flash sale: %v, want 1000 units of goods 1", got)
	}
	if got, want := Units(Plenty, unequal, 6000, 0), unequal.Demand(6000); !maps.Equal(got, want) {
		t.Errorf("plenty: %v, want the demand for each goods, %v", got, want)
	}
	got, demand := Units(FlashSale, unequal, 6000, 0), unequal.Demand(6000)
	for id := range demand {
		if got[id] != demand[id]/6 {
			t.Errorf("flash sale: %d units of goods %d on a demand of %d, want a sixth", got[id], id, demand[id])
		}
	}
	if got := Units(GivenStock, unequal, 6000, 10); total(got) != 10 || got[1] != 3 || got[4] != 2 {
		t.Errorf("given stock: %v, want 10 units split evenly", got)
	}
}

// A bounded flash sale must sell out all the same: units shrink with the requests.
func TestBoundedFlashSaleStillReachesItsTail(t *testing.T) {
	t.Parallel()
	mix := mixOf(t, traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
	requests, _ := Fit(6000, 130, 4*time.Second)
	units := total(Units(FlashSale, mix, requests, 0))
	if units < 50 || units > int64(requests)/6 {
		t.Errorf("%d units for %d requests, want a sixth", units, requests)
	}
}

func TestAffordableStopsBeforeTheFirstOrderThatFindsTooLittle(t *testing.T) {
	t.Parallel()
	mix := mixOf(t, traffic.MixConfig{Seed: 2, Goods: 3, MinCount: 1, MaxCount: 3})
	demand := mix.Demand(500)
	affordable := func(n int, units map[int64]int64) int {
		t.Helper()
		got, err := Affordable(t.Context(), mix, n, units)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := affordable(500, demand); got != 500 {
		t.Errorf("%d orders are affordable with the stock of 500", got)
	}
	if got := affordable(1000, demand); got < 500 || got >= 510 {
		t.Errorf("%d orders of 1000 are affordable with the stock of 500", got)
	}
	if got := affordable(10, map[int64]int64{}); got != 0 {
		t.Errorf("%d orders are affordable without stock", got)
	}
}

// To count what billions of units are good for takes half a minute: nobody who pressed Ctrl-C waits for that.
func TestAffordableEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	mix := mixOf(t, traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
	if n, err := Affordable(ctx, mix, math.MaxInt, map[int64]int64{1: math.MaxInt64}); !errors.Is(err, context.Canceled) {
		t.Errorf("%d orders, %v: want the end of the context", n, err)
	}
}

var catalogue = []Strategy{
	{Name: "noop", Stores: []string{"none"}, Claim: Claim{OneReplica: "sells-nothing", TwoReplicas: "sells-nothing"}},
	{Name: "mutex", Stores: []string{"mysql"}, Claim: Claim{OneReplica: "correct", TwoReplicas: "loses-updates"}},
	{Name: "update", Stores: []string{"mysql"}, Claim: Claim{OneReplica: "correct", TwoReplicas: "correct"}},
	{Name: "lock", Stores: []string{"mysql", "redis"}, Claim: Claim{OneReplica: "correct", TwoReplicas: "correct"}},
	{Name: "redlock", Stores: []string{"mysql", "redis"}, Unavailable: map[string]string{"mysql": "no masters", "redis": "no masters"}},
}

func TestStrategyWhoseClaimsDifferRunsOnOneReplicaToo(t *testing.T) {
	t.Parallel()
	choices, _, err := Choose(catalogue, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	workloads := []string{Plenty, FlashSale}
	alone := 0
	for _, cell := range Cells(choices, workloads, []Setting{{Replicas: 2}}, true) {
		if cell.Replicas == 1 {
			alone++
			if cell.Strategy.Name != "mutex" {
				t.Errorf("%v runs on one replica", cell)
			}
		}
	}
	if alone != 2 {
		t.Errorf("mutex has %d cells on one replica, want one for each workload", alone)
	}
	if got := len(Cells(choices, workloads, []Setting{{Replicas: 2}}, false)); got != 8 {
		t.Errorf("%d cells without a way to one replica, want 8", got)
	}
	if got := len(Cells(choices, workloads, []Setting{{Replicas: 1}}, true)); got != 8 {
		t.Errorf("%d cells on one replica, want 8", got)
	}
}

func TestOrderIsTheSeedsAndDiffersBetweenRounds(t *testing.T) {
	t.Parallel()
	choices, _, _ := Choose(catalogue, nil, "")
	cells := Cells(choices, []string{Plenty, FlashSale}, []Setting{{Replicas: 2}}, true)
	names := func(round int) (names []string) {
		for _, cell := range Order(cells, 42, round) {
			names = append(names, cell.String())
		}
		return names
	}
	if !slices.Equal(names(1), names(1)) {
		t.Error("the same seed and round give two orders")
	}
	if slices.Equal(names(1), names(2)) {
		t.Error("two rounds have the same order")
	}
	sorted := func(names []string) []string { return slices.Sorted(slices.Values(names)) }
	if !slices.Equal(sorted(names(1)), sorted(names(2))) {
		t.Error("two rounds run different cells")
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		names   []string
		store   string
		want    string // name:store
		leftOut int
		err     string
	}{
		{"all", nil, "", "noop:none mutex:mysql update:mysql lock:mysql", 1, ""},
		{"by name, the baseline beside", []string{"update"}, "", "noop:none update:mysql", 0, ""},
		{"on Redis", nil, "redis", "noop:none lock:redis", 3, ""},
		{"unknown", []string{"updaet"}, "", "", 0, `no strategy is named "updaet"; there are noop, mutex, update, lock, redlock`},
		{"asked for, not available", []string{"redlock"}, "", "", 0, "strategy redlock cannot run here: no masters"},
		{"asked for, wrong store", []string{"mutex"}, "redis", "", 0, "strategy mutex cannot run here: it works on mysql, not on redis"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			choices, leftOut, err := Choose(catalogue, test.names, test.store)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("error %v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range choices {
				got = append(got, c.Strategy.Name+":"+c.Store)
			}
			if strings.Join(got, " ") != test.want || len(leftOut) != test.leftOut {
				t.Errorf("chosen %v, left out %v, want %s and %d left out", got, leftOut, test.want, test.leftOut)
			}
		})
	}
}
