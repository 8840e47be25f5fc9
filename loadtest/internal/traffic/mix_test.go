package traffic

import (
	"math"
	"slices"
	"testing"

	"stock/internal/must"
)

func newMix(t testing.TB, config MixConfig) *Mix {
	t.Helper()
	mix, err := NewMix(config)
	must.Succeed(t, err)
	return mix
}

func TestMixFollowsItsSkew(t *testing.T) {
	t.Parallel()
	const n = 100_000
	for _, test := range []struct {
		skew string
		want [4]float64 // shares of items 1 to 4
	}{
		{Uniform, [4]float64{0.25, 0.25, 0.25, 0.25}},
		{Zipf, [4]float64{0.48, 0.24, 0.16, 0.12}},
	} {
		mix := newMix(t, MixConfig{Seed: 1, Goods: 4, Skew: test.skew, MinCount: 1, MaxCount: 3})
		var goods [4]float64
		var counts [3]float64
		for i := range n {
			goodsID, count := mix.At(i)
			goods[goodsID-1] += 1.0 / n
			counts[count-1] += 1.0 / n
		}
		for k, want := range test.want {
			if math.Abs(goods[k]-want) > 0.01 {
				t.Errorf("%s: item %d has a share of %.3f, want %.2f", test.skew, k+1, goods[k], want)
			}
		}
		for k, share := range counts {
			if math.Abs(share-1.0/3) > 0.01 {
				t.Errorf("%s: count %d has a share of %.3f, want a third", test.skew, k+1, share)
			}
		}
	}
}

func TestMixOfOrders(t *testing.T) {
	t.Parallel()
	config := MixConfig{Seed: 9, Goods: 20, Skew: Zipf, MinCount: 1, MaxCount: 3, OrderEvery: 2, MaxLines: 5}
	mix, same := newMix(t, config), newMix(t, config)
	var lengths, asked [21]int
	demand := mix.Demand(1000)
	for i := range 1000 {
		lines := mix.Order(i)
		if !slices.Equal(lines, same.Order(i)) {
			t.Fatalf("order %d differs between two mixes of one seed", i)
		}
		if (lines != nil) != (i%2 == 1) {
			t.Fatalf("request %d has lines %v, want every second request to be an order", i, lines)
		}
		if lines == nil {
			goodsID, count := mix.At(i)
			if otherID, other := same.At(i); otherID != goodsID || other != count {
				t.Fatalf("request %d differs between two mixes of one seed", i)
			}
			demand[goodsID] -= count
			continue
		}
		lengths[len(lines)]++
		items := map[int64]bool{}
		for _, line := range lines {
			if items[line.GoodsID] || line.Count < 1 || line.Count > 3 {
				t.Fatalf("order %d is %v, want different items and 1 to 3 units of each", i, lines)
			}
			items[line.GoodsID] = true
			asked[line.GoodsID]++
			demand[line.GoodsID] -= line.Count
		}
	}
	for n, orders := range lengths {
		if (orders > 0) != (n >= 1 && n <= 5) {
			t.Errorf("%d orders have %d lines, want 1 to 5", orders, n)
		}
	}
	if asked[1] < 3*asked[20] {
		t.Errorf("item 1 is in %d orders and item 20 in %d, want it to follow the skew", asked[1], asked[20])
	}
	for goodsID, units := range demand {
		if units != 0 {
			t.Errorf("item %d: the demand differs from the requests by %d", goodsID, units)
		}
	}
}

func TestNewMixChecksItsConfig(t *testing.T) {
	t.Parallel()
	for _, config := range []MixConfig{
		{Goods: 0, MinCount: 1, MaxCount: 1},
		{Goods: 1, MinCount: 0, MaxCount: 1},
		{Goods: 1, MinCount: 3, MaxCount: 1},
		{Goods: 1, MinCount: 1, MaxCount: 1, Skew: "pareto"},
		{Goods: 1, MinCount: 1, MaxCount: 1, OrderEvery: -1},
		{Goods: 3, MinCount: 1, MaxCount: 1, OrderEvery: 1},
		{Goods: 3, MinCount: 1, MaxCount: 1, OrderEvery: 1, MaxLines: 4},
	} {
		if _, err := NewMix(config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}
