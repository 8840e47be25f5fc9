package load

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
)

const (
	// leastRounds is how many rounds each row gets, even if the budget is used up.
	leastRounds = 3
	// mostRounds is how many rounds a row gets if its interval does not become narrow.
	mostRounds = 14
	// minRoundsForWidth is how many rounds it takes to tell how wide an interval is. With fewer, it may be narrow by
	// chance.
	minRoundsForWidth = 8
	// maxHalfWidth is half the width of the widest interval that is narrow enough, as a part of its center.
	maxHalfWidth = 0.1
	// rowsPerRound keeps a round so short that the machine is as busy during its baseline as during its other rows.
	rowsPerRound = 8
	// longestCell is the time limit of a cell in such a round.
	longestCell = 400 * time.Millisecond
	// comparedPerUser is how many requests each user sends in a cell of a row that people compare, if that takes no longer
	// than longestCompared.
	comparedPerUser, longestCompared = 25, 6 * time.Second
	// fastest is how many rows of a workload come first if there is too little time for all: who is how fast matters
	// most among these.
	fastest = 10
)

// neededRounds gives each row the rounds that it needs for a narrow interval of its share of the baseline's speed. A
// round has a few rows of one workload and the baseline of that workload.
type neededRounds struct {
	seed  uint64
	rows  []*neededRow // without baselines, unless there is nothing else
	noops map[history.Workload]*neededRow

	current []*neededRow // the rows of the current round, with its baseline
}

// neededRow is a row with what is known about it.
type neededRow struct {
	row
	rounds  int // that it had, with the current one
	goodput float64
	took    time.Duration // all its cells
	last    sample
	shares  []float64 // of the baseline, by round
}

func newNeededRounds(rows []row, seed uint64) *neededRounds {
	n := &neededRounds{seed: seed, noops: map[history.Workload]*neededRow{}}
	compared := slices.ContainsFunc(rows, func(row row) bool { return !row.strategy.Baseline() })
	for _, row := range rows {
		if compared && row.strategy.Baseline() {
			n.noops[row.Workload] = &neededRow{row: row}
		} else {
			n.rows = append(n.rows, &neededRow{row: row})
		}
	}
	return n
}

func (n *neededRounds) plan() (plan []history.Cell) {
	for round := 1; round <= leastRounds; round++ {
		for _, row := range n.rows {
			cell := row.Cell
			cell.Round = round
			plan = append(plan, cell)
		}
	}
	return plan
}

func (n *neededRounds) next(round int, left time.Duration) []row {
	n.endRound()
	generator := rand.New(rand.NewPCG(n.seed, uint64(round)))
	n.current = n.choose(generator, left)
	if len(n.current) == 0 {
		return nil
	}
	shuffle(generator, n.current)
	// In the middle, the baseline is close to all other rows.
	if noop := n.noops[n.current[0].Workload]; noop != nil {
		n.current = slices.Insert(n.current, len(n.current)/2, noop)
	}
	var rows []row
	for _, r := range n.current {
		r.rounds++
		rows = append(rows, r.row)
	}
	return rows
}

// endRound divides what was measured in the current round by the speed of its baseline.
func (n *neededRounds) endRound() {
	for _, row := range n.current {
		if noop := n.noops[row.Workload]; noop != nil && noop != row && noop.last.possible > 0 {
			row.shares = append(row.shares, row.last.goodput/noop.last.possible)
		}
	}
}

// choose returns the rows of the next round: those that lack most of the rounds that they should have, so that each
// row's rounds are spread over the whole run. Time that the least rounds will take is not spent on others.
func (n *neededRounds) choose(generator *rand.Rand, left time.Duration) (chosen []*neededRow) {
	first := n.fastest()
	had := func(row *neededRow) float64 {
		switch {
		case row.rounds == 0: // who is fast is not known yet
			return 0
		case first[row]:
			return (float64(row.rounds) + 0.5) / mostRounds
		}
		return (float64(row.rounds) + 0.5) / leastRounds
	}
	for _, row := range n.rows {
		left -= time.Duration(max(leastRounds-row.rounds, 0)) * n.cost(row)
	}
	waiting := slices.DeleteFunc(slices.Clone(n.rows), func(row *neededRow) bool { return !row.needsMore() })
	shuffle(generator, waiting)
	slices.SortStableFunc(waiting, func(a, b *neededRow) int { return cmp.Compare(had(a), had(b)) })
	for _, row := range waiting {
		if len(chosen) == rowsPerRound || len(chosen) > 0 && row.Workload != chosen[0].Workload {
			continue
		}
		if cost := n.cost(row); row.rounds < leastRounds {
			chosen = append(chosen, row)
		} else if cost <= left {
			chosen = append(chosen, row)
			left -= cost
		}
	}
	return chosen
}

// fastest returns the fastest ranked rows of each workload.
func (n *neededRounds) fastest() map[*neededRow]bool {
	bySpeed := slices.DeleteFunc(slices.Clone(n.rows), func(row *neededRow) bool { return !row.ranked() })
	slices.SortStableFunc(bySpeed, func(a, b *neededRow) int {
		return cmp.Compare(b.goodput*float64(a.rounds), a.goodput*float64(b.rounds)) // their means
	})
	first, of := map[*neededRow]bool{}, map[history.Workload]int{}
	for _, row := range bySpeed {
		of[row.Workload]++
		first[row] = of[row.Workload] <= fastest
	}
	return first
}

// needsMore reports whether the interval of the row is not yet narrow, if it is compared with others.
func (r *neededRow) needsMore() bool {
	switch {
	case r.rounds < leastRounds:
		return true
	case !r.ranked() || r.rounds >= mostRounds:
		return false
	case r.rounds < minRoundsForWidth:
		return true
	}
	mean, interval := stats.Mean(r.shares) // none: it sold nothing in a round, or has no baseline
	return interval != nil && (interval.High-interval.Low)/2 > maxHalfWidth*mean
}

// cost returns how long a row will take in a round, with its part of the baseline's time.
func (n *neededRounds) cost(row *neededRow) time.Duration {
	cost := row.took / time.Duration(max(row.rounds, 1))
	if noop := n.noops[row.Workload]; noop != nil {
		cost += noop.took / time.Duration(max(noop.rounds, 1)) / rowsPerRound
	}
	return cost
}

func (n *neededRounds) learn(of row, s sample) {
	for _, row := range n.current {
		if row.Subject == of.Subject {
			row.last = s
			row.goodput += s.goodput
			row.took += s.took
		}
	}
}

// after returns the rows that run until each has had its least rounds, and the baselines of these rounds.
func (n *neededRounds) after() (rows []row) {
	all, most := map[history.Workload]int{}, map[history.Workload]int{}
	for _, r := range n.rows {
		times := max(leastRounds-r.rounds, 0)
		rows = append(rows, slices.Repeat([]row{r.row}, times)...)
		all[r.Workload] += times
		most[r.Workload] = max(most[r.Workload], times)
	}
	for workload, noop := range n.noops {
		// No row runs twice in a round.
		rounds := max(most[workload], (all[workload]+rowsPerRound-1)/rowsPerRound)
		rows = append(rows, slices.Repeat([]row{noop.row}, rounds)...)
	}
	return rows
}
