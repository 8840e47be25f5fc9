package report

import "testing"

func TestPercentilesAreTheNearestRank(t *testing.T) {
	t.Parallel()
	var s measurements
	for v := int64(1000); v > 0; v-- {
		s = append(s, v)
	}
	s = s.sorted()
	for part, want := range map[float64]int64{0: 1, 0.5: 500, 0.9: 900, 0.99: 990, 0.999: 999, 1: 1000} {
		if got, none := s.percentile(part), measurements(nil).percentile(part); got != want || none != 0 {
			t.Errorf("the percentile %v is %d, want %d; without values, it is %d", part, got, want, none)
		}
	}
	if got := s.mean(); got != 500.5 {
		t.Errorf("the mean is %v, want 500.5", got)
	}
}
