package load

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// simulation runs a schedule on a machine that exists only as numbers.
type simulation struct {
	random *rand.Rand
	noise  float64 // standard deviation of the logarithm of a cell's speed
	spoilt float64 // part of the cells that something else slows down
	budget time.Duration

	clock   time.Duration
	rounds  [][]row
	starts  map[history.Subject][]time.Duration // of each row's cells
	created *neededRounds
}

const (
	simulatedNoop     = 20_000 // requests per second
	simulatedOverhead = 120 * time.Millisecond
)

// simulatedRows are 36 strategies under two workloads, as fast as those of the catalogue, and a baseline. The last six
// are wrong.
func simulatedRows() (all []row, speeds map[history.Subject]float64) {
	speeds = map[history.Subject]float64{}
	for i := range 37 {
		claim, speed := verify.ClaimCorrect, 17_000*math.Exp(-0.25*float64(i))
		switch {
		case i == 36:
			claim, speed = verify.ClaimSellsNothing, simulatedNoop
		case i >= 30:
			claim = verify.ClaimLosesUpdates
		}
		strategy := Strategy{Name: string(rune('A' + i)), Claim: Claim{OneReplica: claim, TwoReplicas: claim}}
		for _, workload := range []string{Plenty, FlashSale} {
			r := row{strategy: strategy, Cell: history.Cell{Subject: history.Subject{
				Strategy: strategy.Name, Replicas: 2, Workload: history.Workload{Name: workload},
			}}}
			all, speeds[r.Subject] = append(all, r), max(speed, 300)
		}
	}
	return all, speeds
}

// takes returns how long a cell of this speed takes.
func takes(speed float64) time.Duration {
	return min(time.Duration(6000/speed*float64(time.Second)), longestCell) + simulatedOverhead
}

func (s *simulation) run(seed uint64) {
	rows, speeds := simulatedRows()
	s.created = newNeededRounds(rows, seed)
	s.clock, s.rounds, s.starts = 0, nil, map[history.Subject][]time.Duration{}
	for round := 1; ; round++ {
		next := s.created.next(round, s.budget-s.clock)
		if len(next) == 0 {
			return
		}
		s.rounds = append(s.rounds, next)
		for _, r := range next {
			log := s.noise * s.random.NormFloat64()
			if s.random.Float64() < s.spoilt {
				log -= 0.5 * s.random.ExpFloat64()
			}
			speed := speeds[r.Subject] * math.Exp(log)
			s.starts[r.Subject] = append(s.starts[r.Subject], s.clock)
			s.clock += takes(speed)
			s.created.learn(r, sample{goodput: speed, possible: speed, took: takes(speed)})
		}
	}
}

// fastest returns the ten fastest rows of a workload.
func (s *simulation) fastest(workload string) []*neededRow {
	_, speeds := simulatedRows()
	rows := slices.DeleteFunc(slices.Clone(s.created.rows), func(r *neededRow) bool { return r.Workload.Name != workload })
	slices.SortFunc(rows, func(a, b *neededRow) int { return cmp.Compare(speeds[b.Subject], speeds[a.Subject]) })
	return rows[:10]
}

func halfWidth(t *testing.T, r *neededRow) float64 {
	t.Helper()
	mean, interval := stats.Mean(r.shares)
	if interval == nil {
		t.Fatalf("%s has no interval after %d rounds", r.Label(), r.rounds)
	}
	return (interval.High - interval.Low) / 2 / mean
}

func newSimulation(noise, spoilt float64) *simulation {
	return &simulation{random: rand.New(rand.NewPCG(1, 2)), noise: noise, spoilt: spoilt, budget: 250 * time.Second}
}

func TestWhatRunsInAnyCaseIsKnownBeforeTheFirstRound(t *testing.T) {
	t.Parallel()
	all, _ := simulatedRows()
	for _, strategies := range []int{0, 1, 3, 36} { // in addition to the baseline
		n := newNeededRounds(all[len(all)-2*(strategies+1):], 7)
		got, want := map[history.Subject]int{}, map[history.Subject]int{}
		for _, r := range n.after() {
			got[r.Subject]++
		}
		for round := 1; ; round++ {
			next := n.next(round, 0)
			if len(next) == 0 {
				break
			}
			for _, r := range next {
				n.learn(r, sample{goodput: 1, possible: 1, took: time.Second})
				want[r.Subject]++
			}
		}
		if len(want) != 2*(strategies+1) || !maps.Equal(got, want) {
			t.Errorf("%d strategies: %v were certain, %v ran, want all, and the baselines", strategies, got, want)
		}
	}
}

func TestEachRowGetsItsLeastRoundsWithoutTime(t *testing.T) {
	t.Parallel()
	s := newSimulation(0.3, 0.2)
	s.budget = 0
	s.run(7)
	ran := map[history.Subject]int{}
	for _, cell := range s.created.plan() {
		ran[cell.Subject]++
	}
	for _, r := range s.created.rows {
		if got := len(s.starts[r.Subject]); got != leastRounds || ran[r.Subject] != leastRounds {
			t.Errorf("%s: %d rounds, %d planned, want %d", r.Label(), got, ran[r.Subject], leastRounds)
		}
	}
}

func TestNarrowRowsGetNoMoreTime(t *testing.T) {
	t.Parallel()
	s := newSimulation(0.005, 0)
	s.run(7)
	for _, r := range s.created.rows {
		if r.rounds > minRoundsForWidth {
			t.Errorf("%s: %d rounds, want at most %d, because its interval is ±%.1f %%",
				r.Label(), r.rounds, minRoundsForWidth, 100*halfWidth(t, r))
		}
	}
}

func TestBudgetIsSpentOnTheFastestRows(t *testing.T) {
	t.Parallel()
	s := newSimulation(0.3, 0.2)
	s.run(7)
	if s.clock < s.budget*95/100 || s.clock > s.budget*102/100 {
		t.Errorf("the run took %v, want the budget of %v", s.clock, s.budget)
	}
	for _, workload := range []string{Plenty, FlashSale} {
		for _, r := range s.fastest(workload) {
			if r.rounds < mostRounds/2 {
				t.Errorf("%s: %d rounds, want at least %d", r.Label(), r.rounds, mostRounds/2)
			}
		}
	}
	for _, r := range s.created.rows {
		if !r.ranked() && r.rounds != leastRounds {
			t.Errorf("%s is not ranked and had %d rounds, want %d", r.Label(), r.rounds, leastRounds)
		}
	}
}

func TestFastestRowsGetNarrowIntervals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ noise, spoilt, want float64 }{
		"quiet machine": {0.08, 0.05, 0.15},
		"busy machine":  {0.2, 0.15, 0.3},
	} {
		s := newSimulation(test.noise, test.spoilt)
		s.run(7)
		for _, workload := range []string{Plenty, FlashSale} {
			var halves []float64
			for _, r := range s.fastest(workload) {
				halves = append(halves, halfWidth(t, r))
			}
			if got := stats.Median(halves); got > test.want {
				t.Errorf("%s, %s: median half-width ±%.0f %%, want at most ±%.0f %%", name, workload, 100*got, 100*test.want)
			}
		}
	}
}

// To stop as soon as an interval is narrow favours intervals that are narrow by chance.
func TestStoppingEarlyHardlyAffectsTheIntervals(t *testing.T) {
	t.Parallel()
	s := newSimulation(0.08, 0.05)
	_, speeds := simulatedRows()
	covered, intervals := 0, 0
	for seed := range uint64(20) {
		s.run(seed)
		for _, r := range s.created.rows {
			_, interval := stats.Mean(r.shares)
			intervals++
			if truth := speeds[r.Subject] / simulatedNoop; interval.Low <= truth && truth <= interval.High {
				covered++
			}
		}
	}
	if covered < intervals*93/100 {
		t.Errorf("%d of %d intervals cover the truth, want at least 93 %%", covered, intervals)
	}
}

func TestRoundIsShortAndHasItsBaselineInTheMiddle(t *testing.T) {
	t.Parallel()
	s := newSimulation(0.1, 0.1)
	s.run(7)
	for i, round := range s.rounds {
		middle := (len(round) - 1) / 2
		if len(round) > rowsPerRound+1 {
			t.Errorf("round %d has %d rows, want at most %d", i+1, len(round), rowsPerRound+1)
		}
		for k, r := range round {
			if r.Workload != round[0].Workload || r.strategy.Baseline() != (k == middle) {
				t.Errorf("round %d: row %d is %s, want rows of one workload and its baseline at %d", i+1, k, r.Label(), middle)
			}
		}
	}
}

func TestRunnerRunsWhatItNeeds(t *testing.T) {
	t.Parallel()
	s := &shop{}
	template := s.open(t, Config{Requests: 300})
	config := template.config
	config.Rounds, config.Budget = 0, 3*time.Second
	noop := Strategy{
		Name: "noop", Stores: []string{"mysql"},
		Claim: Claim{OneReplica: verify.ClaimSellsNothing, TwoReplicas: verify.ClaimSellsNothing},
	}
	config.Choices = append(config.Choices, Choice{noop, "mysql"})
	runner, err := New(template.target, config, time.Now())
	must.Succeed(t, err)
	ran := map[string]map[int]bool{}
	err = runner.Run(t.Context(), func(m Measured) error {
		key := m.History.Run.Strategy + " " + m.History.Run.Workload.Name
		if ran[key] == nil {
			ran[key] = map[int]bool{}
		}
		ran[key][m.History.Run.Round] = true
		return nil
	})
	must.Succeed(t, err)
	for _, workload := range []string{Plenty, FlashSale} {
		rounds := ran["any "+workload]
		if len(rounds) < leastRounds || len(rounds) > mostRounds || !maps.Equal(rounds, ran["noop "+workload]) {
			t.Errorf("%s: rounds %v, and %v of the baseline, want from %d to %d, and the same",
				workload, rounds, ran["noop "+workload], leastRounds, mostRounds)
		}
	}
	if got := runner.Progress(); got.Cells != 0 || !strings.HasPrefix(got.Heading(), fmt.Sprintf("[%d runs, ", got.Done)) {
		t.Errorf("the progress is %q", got.Heading())
	}
}
