package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSmallPercentilesAreTheNearestRank(t *testing.T) {
	t.Parallel()
	var h histogram
	for v := int64(1000); v > 0; v-- {
		h.add(v)
	}
	parts := []float64{0.5, 0.9, 0.99, 0.999, 1}
	if got, want := h.percentiles(parts...), []int64{500, 900, 990, 999, 1000}; !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
	if got := (&histogram{}).percentiles(0.5); !slices.Equal(got, []int64{0}) {
		t.Errorf("without values: got %d, want 0", got)
	}
}

func TestMergedPercentilesAreCloseToTheExactOnes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() int64{
		"a few ms with a tail": func() int64 { return int64(2e6 * math.Exp(random.NormFloat64())) },
		"two peaks":            func() int64 { return 300_000 + random.Int64N(2)*5e9 + random.Int64N(1000) },
		"any length":           func() int64 { return random.Int64() >> random.IntN(63) },
		"all the same":         func() int64 { return 123_456_789 },
	} {
		var merged histogram
		var all []int64
		var sum float64
		for range 3 {
			var round histogram
			for range 7001 {
				v := draw()
				round.add(v)
				all = append(all, v)
				sum += float64(v)
			}
			merged.merge(round)
		}
		slices.Sort(all)
		for _, part := range []float64{0.5, 0.9, 0.95, 0.99, 0.999, 1} {
			exact := all[int(math.Ceil(part*float64(len(all))))-1]
			if got := merged.percentiles(part)[0]; math.Abs(float64(got-exact)) > float64(exact)/2048 {
				t.Errorf("%s: the percentile %v is %d, want %d within 0.05 %%", name, part, got, exact)
			}
		}
		if merged.lowest != all[0] || merged.greatest != all[len(all)-1] || merged.n != int64(len(all)) {
			t.Errorf("%s: %d values from %d to %d, want %d from %d to %d",
				name, merged.n, merged.lowest, merged.greatest, len(all), all[0], all[len(all)-1])
		}
		if mean := sum / float64(len(all)); math.Abs(merged.mean()-mean) > 1e-9*mean {
			t.Errorf("%s: the mean is %v, want %v", name, merged.mean(), mean)
		}
	}
}
