package stats_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"stock/internal/stats"
)

func round3(v float64) float64 { return math.Round(v*1000) / 1000 }

func TestMeanOfAFewHasStudentsIntervalOverLogarithms(t *testing.T) {
	t.Parallel()
	mean, interval := stats.Mean([]float64{1, 2, 4})
	// ln: 0, 0.693, 1.386; s = 0.6931, t(2) = 4.3027, half width 1.7218
	if round3(mean) != 2 || interval == nil || round3(interval.Low) != 0.357 || round3(interval.High) != 11.19 {
		t.Errorf("got %v %+v", mean, interval)
	}
	for _, values := range [][]float64{{3}, {3, 0, 5}} {
		if mean, interval := stats.Mean(values); round3(mean) != 3 || interval != nil {
			t.Errorf("%v: got %v %+v, want the median without an interval", values, mean, interval)
		}
	}
}

func TestMeanTrimsOutliers(t *testing.T) {
	t.Parallel()
	// ln: 1 to 7 and an outlier. Of the six kept the mean is 4.5. The winsorized sample is 2 2 3 4 5 6 7 7, whose
	// variance is 4.286; of the mean, that is 4.286·7/(6·5) = 1.0, and t(5) = 2.571.
	values := []float64{math.E, math.Exp(2), math.Exp(3), math.Exp(4), math.Exp(5), math.Exp(6), math.Exp(7), 1e9}
	mean, interval := stats.Mean(values)
	if round3(math.Log(mean)) != 4.5 || interval == nil ||
		round3(math.Log(interval.Low)) != 1.929 || round3(math.Log(interval.High)) != 7.071 {
		t.Errorf("got e^%v %+v", math.Log(mean), interval)
	}
}

// slowRounds returns ratios to 1 of a row and a baseline, of which some rounds are slowed down by another process.
func slowRounds(r *rand.Rand, n int) []float64 {
	speed := func() float64 {
		log := 0.07 * r.NormFloat64()
		if r.Float64() < 0.15 {
			log -= 0.5 * r.ExpFloat64()
		}
		return math.Exp(log)
	}
	ratios := make([]float64, n)
	for i := range ratios {
		ratios[i] = speed() / speed()
	}
	return ratios
}

func TestIntervalsOfNoisyRoundsCoverTheTruth(t *testing.T) {
	t.Parallel()
	const samples = 4000
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{3, 4, 5, 6, 8, 12} {
		covered, differ := 0, 0
		for range samples {
			a, b := slowRounds(r, n), slowRounds(r, n)
			if _, interval := stats.Mean(a); interval.Low <= 1 && 1 <= interval.High {
				covered++
			}
			if stats.Compare(a, b).P <= 0.05 {
				differ++
			}
		}
		if covered < 0.94*samples || differ > 0.05*samples {
			t.Errorf("%d rounds: %d of %d intervals cover the truth, %d equal pairs differ", n, covered, samples, differ)
		}
	}
}

func TestCompareIsWelchsTestForAFew(t *testing.T) {
	t.Parallel()
	// ln 2 apart; s² = 0.000400 both, standard error 0.01633, t(4) = 2.776: the half width is 0.04534.
	got := stats.Compare([]float64{200, 204, 196}, []float64{100, 102, 98})
	if round3(got.Ratio) != 2 || got.P > 1e-5 || round3(got.Interval.Low) != 1.911 || round3(got.Interval.High) != 2.093 {
		t.Errorf("got %+v %+v", got, got.Interval)
	}
	for _, values := range [][]float64{{200}, {200, 0, 196}, nil} {
		if got := stats.Compare(values, []float64{100, 102, 98}); got.P != 1 || got.Interval != nil {
			t.Errorf("%v: got %+v, want no difference", values, got)
		}
	}
}

func TestFalseDiscoveryRateAdjustsPValues(t *testing.T) {
	t.Parallel()
	// Sorted: 0.005·4/1, 0.01·4/2, 0.03·4/3 and 0.04·4/4, each at most the next.
	p := []float64{0.01, 0.04, 0.03, 0.005}
	stats.FalseDiscoveryRate(p)
	for i := range p {
		p[i] = round3(p[i])
	}
	if want := []float64{0.02, 0.04, 0.04, 0.02}; !slices.Equal(p, want) {
		t.Errorf("got %v, want %v", p, want)
	}
}

func TestSummaryHasAnIntervalFromSixRoundsOn(t *testing.T) {
	t.Parallel()
	if got := stats.Summarize([]float64{5, 1, 4, 2, 3}); got.Median != 3 || got.Interval != nil {
		t.Errorf("five rounds: %+v, want the median 3 and no interval", got)
	}
	got := stats.Summarize([]float64{100, 104, 96, 101, 99, 90})
	if got.Median != 99.5 || got.Interval == nil || *got.Interval != (stats.Interval{Low: 90, High: 104}) {
		t.Errorf("six rounds: %v %v, want 99.5 (90 to 104)", got.Median, got.Interval)
	}
	if text := got.String(); text != "99.5 ±10%" {
		t.Errorf("written as %q, want the farther end", text)
	}
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	t.Parallel()
	series := func(rounds ...[2]float64) func(func(int, float64) bool) {
		return func(yield func(int, float64) bool) {
			for _, round := range rounds {
				if !yield(int(round[0]), round[1]) {
					return
				}
			}
		}
	}
	a := series([2]float64{1, 600}, [2]float64{2, 300}, [2]float64{3, 5}, [2]float64{4, 9})
	b := series([2]float64{2, 50}, [2]float64{1, 100}, [2]float64{4, 0})
	if got := stats.Ratios(a, b); !slices.Equal(got, []float64{6, 6}) {
		t.Errorf("got %v, want 6 in both rounds that can be compared", got)
	}
}
