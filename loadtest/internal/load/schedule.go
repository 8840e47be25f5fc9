package load

import (
	"slices"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// schedule decides which rows run in which round.
type schedule interface {
	// plan returns the cells that a complete run has at least. If rows run in different rounds, the cells of a row are
	// numbered from 1.
	plan() []history.Cell
	// next returns the rows of a round in the order in which they run, or none at the end. left is what is left of the
	// budget.
	next(round int, left time.Duration) []row
	// learn takes what was measured in the current round.
	learn(row, sample)
	// after returns the rows that run after the current round even if time runs out; before the first one, all.
	after() []row
}

// sample is what a schedule learns from a cell.
type sample struct {
	goodput  float64 // units sold correctly per second
	possible float64 // what it would have been if all that was confirmed had been sold, as far as there was stock
	took     time.Duration
}

func newSample(m Measured, took time.Duration) sample {
	seconds := float64(m.History.End.EndedNS-m.History.End.StartedNS) / float64(time.Second)
	if seconds <= 0 {
		return sample{took: took}
	}
	return sample{goodput: float64(m.Verdict.Good) / seconds, possible: float64(m.Verdict.Covered) / seconds, took: took}
}

// fixedRounds runs every row in each of a number of rounds.
type fixedRounds struct {
	rows   []row
	rounds int
	seed   uint64
	round  int // the current one
}

func (f *fixedRounds) plan() (plan []history.Cell) {
	for round := 1; round <= f.rounds; round++ {
		for _, row := range shuffled(f.rows, f.seed, round) {
			row.Round = round
			plan = append(plan, row.Cell)
		}
	}
	return plan
}

func (f *fixedRounds) next(round int, _ time.Duration) []row {
	if f.round = round; round > f.rounds {
		return nil
	}
	return shuffled(f.rows, f.seed, round)
}

func (f *fixedRounds) learn(row, sample) {}

func (f *fixedRounds) after() []row { return slices.Repeat(f.rows, f.rounds-f.round) }

// ranked reports whether the speed of the row will be compared with that of others.
func (r row) ranked() bool {
	return r.strategy.ClaimFor(r.Replicas, r.Restock > 0) == verify.ClaimCorrect && r.Restock == 0
}
