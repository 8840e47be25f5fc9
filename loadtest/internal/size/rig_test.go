package size

import (
	"testing"
	"time"
)

func TestARigSlowsRoundTripsAndFlushesAndLimitsCPUTime(t *testing.T) {
	rig, noQuotas, err := NewRig(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.Close(); err != nil {
			t.Error(err)
		}
	}()
	rig.Time = 300 * time.Millisecond
	base := Setting{Users: 8, Items: 1, Replicas: 2}
	// What one sale of update needs at least: a round trip, and a commit with a flush, which others wait for.
	for name, test := range map[string]struct {
		slower func(*Setting)
		most   float64 // sales per second
	}{
		"round trips": {func(s *Setting) { s.AddedRTT = 100 * time.Millisecond }, 8 / 0.1},
		"flushes":     {func(s *Setting) { s.AddedFlush = 100 * time.Millisecond }, 1 / 0.1},
	} {
		s := base
		test.slower(&s)
		sample, err := rig.Measure(t.Context(), "update", s)
		if err != nil {
			t.Fatal(err)
		}
		if sample.Goodput > test.most {
			t.Errorf("slower %s: %.0f sales/s, which is more than %.0f", name, sample.Goodput, test.most)
		}
	}
	if noQuotas != nil {
		t.Skip(noQuotas)
	}
	rig.Time = time.Second // many periods of the quota
	s := base
	s.Cores = map[Station]float64{Service: 0.1}
	sample, err := rig.Measure(t.Context(), "noop", s)
	if err != nil {
		t.Fatal(err)
	}
	if used := sample.Goodput * sample.CPU[Service]; used > 0.15 {
		t.Errorf("the service used %.2f cores, and may use 0.1", used)
	}
}
