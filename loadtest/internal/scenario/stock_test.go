package scenario

import (
	"maps"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/traffic"
)

func TestUnitsFollowTheWorkload(t *testing.T) {
	t.Parallel()
	single := mixOf(t, traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
	unequal := mixOf(t, traffic.MixConfig{Seed: 9, Goods: 4, Skew: traffic.Zipf, MinCount: 1, MaxCount: 3})

	if got := unitsFor(Plenty, single, 6000, 0); !maps.Equal(got, map[int64]int64{1: 6000}) {
		t.Errorf("plenty: %v, want 6000 units of item 1", got)
	}
	if got := unitsFor(FlashSale, single, 6000, 0); !maps.Equal(got, map[int64]int64{1: 1000}) {
		t.Errorf("flash sale: %v, want 1000 units of item 1", got)
	}
	if got, want := unitsFor(Plenty, unequal, 6000, 0), unequal.Demand(6000); !maps.Equal(got, want) {
		t.Errorf("plenty: %v, want the demand for each item, %v", got, want)
	}
	got, demand := unitsFor(FlashSale, unequal, 6000, 0), unequal.Demand(6000)
	for id := range demand {
		if got[id] != demand[id]/6 {
			t.Errorf("flash sale: %d units of item %d for a demand of %d, want a sixth", got[id], id, demand[id])
		}
	}
	if got := unitsFor(GivenStock, unequal, 6000, 10); total(got) != 10 || got[1] != 3 || got[4] != 2 {
		t.Errorf("given stock: %v, want 10 units split evenly", got)
	}
}

// A bounded flash sale must still sell out, so its units shrink with the requests.
func TestBoundedFlashSaleHasFewerUnits(t *testing.T) {
	t.Parallel()
	mix := mixOf(t, traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
	requests, _ := fit(6000, 130, 4*time.Second)
	units := total(unitsFor(FlashSale, mix, requests, 0))
	if units < 50 || units > int64(requests)/6 {
		t.Errorf("%d units for %d requests, want a sixth", units, requests)
	}
}

func mixOf(t *testing.T, config traffic.MixConfig) *traffic.Mix {
	t.Helper()
	mix, err := traffic.NewMix(config)
	must.Succeed(t, err)
	return mix
}

func total(units map[int64]int64) (sum int64) {
	for _, n := range units {
		sum += n
	}
	return sum
}
