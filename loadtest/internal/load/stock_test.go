package load

import (
	"maps"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/traffic"
)

func TestUnitsFollowTheWorkload(t *testing.T) {
	t.Parallel()
	single := mixOf(t, traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
	unequal := mixOf(t, traffic.MixConfig{Seed: 9, Goods: 4, Skew: traffic.Zipf, MinCount: 1, MaxCount: 3})

	demand, sixth := unequal.Demand(6000), map[int64]int64{}
	for id, units := range demand {
		sixth[id] = units / 6
	}
	for name, c := range map[string]struct {
		workload string
		mix      *traffic.Mix
		want     map[int64]int64
	}{
		"plenty":                      {Plenty, single, map[int64]int64{1: 6000}},
		"plenty of several items":     {Plenty, unequal, demand},
		"flash sale":                  {FlashSale, single, map[int64]int64{1: 1000}},
		"flash sale of several items": {FlashSale, unequal, sixth},
	} {
		if got := unitsFor(c.workload, c.mix, 6000, 0); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := unitsFor(GivenStock, unequal, 6000, 10); total(got) != 10 || got[1] != 3 || got[4] != 2 {
		t.Errorf("given stock: %v, want 10 units split evenly", got)
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
