package size

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"stock/internal/stats"
)

// UsualStrategies are the strategies of all kinds that are tested by default.
var UsualStrategies = []string{
	"update", "for-update", "optimistic-version", "units", "slots", "escrow", "batch", "redis-script", "redis-stream",
	"lock-mysql-getlock", "lock-redis-queue", "lock-redis-rlock",
}

// TestSettings lists the settings that predictions are tested with. None of them is a calibration.
func TestSettings(quotas bool) (all []Setting) {
	base := Setting{Users: 64, Items: 1, Replicas: usualReplicas}
	add := func(change func(*Setting)) {
		s := base
		change(&s)
		all = append(all, s)
	}
	for _, users := range []int{3, 16, 64, 256} {
		add(func(s *Setting) { s.Users = users })
	}
	for _, items := range []int{4, 16, 64} {
		add(func(s *Setting) { s.Items = items })
	}
	for _, replicas := range []int{1, 4} {
		add(func(s *Setting) { s.Replicas = replicas })
	}
	for _, rtt := range []time.Duration{100 * time.Microsecond, 500 * time.Microsecond, 2 * time.Millisecond} {
		add(func(s *Setting) { s.AddedRTT = rtt })
	}
	for _, flush := range []time.Duration{500 * time.Microsecond, 4 * time.Millisecond} {
		add(func(s *Setting) { s.AddedFlush = flush })
	}
	if !quotas {
		return all
	}
	for _, station := range []Station{Nginx, Service, MySQL} {
		for _, cores := range []float64{0.25, 0.5} {
			add(func(s *Setting) { s.Cores = map[Station]float64{station: cores} })
		}
	}
	add(func(s *Setting) { s.Items, s.Cores = 16, map[Station]float64{MySQL: 0.5} })
	return all
}

// A Test is a prediction and, once it is known, what was measured.
type Test struct {
	Strategy string `json:"strategy"`
	Setting
	Predicted  float64   `json:"predicted"` // sales per second
	Bottleneck string    `json:"bottleneck"`
	Measured   float64   `json:"measured,omitempty"` // sales per second: the median of Rounds
	Rounds     []float64 `json:"rounds,omitempty"`
}

// Error is how far the prediction is from what was measured, as a share of the latter.
func (t Test) Error() float64 { return t.Predicted/t.Measured - 1 }

// PredictAll makes all predictions about a strategy on this machine.
func PredictAll(p *Profile, quotas bool) (all []Test) {
	for _, s := range TestSettings(quotas) {
		predicted := p.Predict(Host(), s)
		all = append(all, Test{
			Strategy: p.Strategy, Setting: s, Predicted: predicted.Goodput, Bottleneck: predicted.Bottleneck,
		})
	}
	return all
}

// MeasureTests measures what was predicted of a strategy.
func (r *Rig) MeasureTests(ctx context.Context, strategy string, tests []Test, progress func(Setting)) error {
	var settings []Setting
	for _, t := range tests {
		settings = append(settings, t.Setting)
	}
	samples, err := r.MeasureAll(ctx, strategy, settings, progress)
	for i, s := range samples {
		tests[i].Measured, tests[i].Rounds = s.Goodput, s.Rounds
	}
	return err
}

// Errors sums up the tests of a strategy.
type Errors struct {
	Tests         int
	Median, Worst float64 // of the absolute errors
	WorstTest     Test
}

// ErrorsOf returns the errors of a strategy; ok is false if it was not tested.
func ErrorsOf(tests []Test, strategy string) (e Errors, ok bool) {
	var of []Test
	for _, t := range tests {
		if t.Strategy == strategy && t.Measured > 0 {
			of = append(of, t)
		}
	}
	if len(of) == 0 {
		return e, false
	}
	size := func(t Test) float64 { return math.Abs(t.Error()) }
	e.Tests = len(of)
	e.WorstTest = slices.MaxFunc(of, func(a, b Test) int { return cmp.Compare(size(a), size(b)) })
	e.Worst = size(e.WorstTest)
	var all []float64
	for _, t := range of {
		all = append(all, size(t))
	}
	e.Median = stats.Median(all)
	return e, true
}
