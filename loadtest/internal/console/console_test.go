package console

import (
	"math"
	"testing"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

// add adds samples to a cell and returns it.
func add(samples ...Sample) *CellLive {
	var live CellLive
	for _, s := range samples {
		live.add(s)
	}
	return &live
}

func TestTheRateOfASampleIsThatSinceTheOneBefore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given []Sample
		want  []float64
	}{
		"a cell shorter than an interval": {[]Sample{{AtS: 0.2, Sold: 3000}}, []float64{15_000}},
		"the first sample comes at once":  {[]Sample{{AtS: 0.01}, {AtS: 0.25, Sold: 500}}, []float64{2000}},
		"several samples": {
			[]Sample{{AtS: 0.25, Sold: 500}, {AtS: 0.5, Sold: 500}, {AtS: 1, Sold: 1000}}, []float64{2000, 0, 1000},
		},
		"the cell ends shortly after a sample": {
			[]Sample{{AtS: 0.25, Sold: 500}, {AtS: 0.5, Sold: 700}, {AtS: 0.55, Sold: 1100}}, []float64{2000, 2000},
		},
		"the cell ended before the last samples": {
			[]Sample{{AtS: 0.25, Sold: 500}, {AtS: 0.5, Sold: 600}, {AtS: 0.75, Sold: 600}, {AtS: 0.45, Sold: 600}},
			[]float64{2000, 500},
		},
		"no time has passed": {[]Sample{{Sold: 5}}, []float64{0}},
	} {
		live := add(test.given...)
		var got []float64
		for _, s := range live.Samples {
			got = append(got, math.Round(s.PerS))
		}
		if len(got) != len(test.want) {
			t.Errorf("%s: the rates are %v, want %v", name, got, test.want)
			continue
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s: the rates are %v, want %v", name, got, test.want)
			}
		}
	}
}

func TestALockThatLosesALateWriteIsNotSimplyCorrect(t *testing.T) {
	t.Parallel()
	correct := report.Cell{Verdict: verify.Verdict{Result: verify.Correct}}
	got := cellRow(&history.History{Run: history.Run{LateLosesUpdate: true}}, correct)
	if got.Result != report.LateLosesUpdate {
		t.Errorf("got %+v, want %s", got, report.LateLosesUpdate)
	}
}

func TestASampleKeepsTheMostTogetherOfThoseItReplaces(t *testing.T) {
	t.Parallel()
	live := add(Sample{AtS: 0.5, Inside: 20})
	if inside := live.add(Sample{AtS: 0.55, Inside: 6}); inside != 20 || live.Samples[0].Inside != 20 {
		t.Errorf("%d were together, and the samples are %+v; want 20", inside, live.Samples)
	}
}
