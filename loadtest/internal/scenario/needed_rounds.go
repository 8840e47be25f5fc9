package scenario

import (
	"cmp"
	"math"
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
	// fastest is how many rows of a workload come first if there is too little time for all: who is how fast matters
	// most among these.
	fastest = 10
)

// neededRounds gives each row the rounds that it needs for a narrow interval of its share of the baseline's speed. A
// round has a few rows of one workload and the baseline of that workload.
type neededRounds struct {
	seed   uint64
	expect func(row) (speed float64, cost time.Duration) // of a cell, before the row was measured
	rows   []*neededRow                                  // without baselines, unless there is nothing else
	noops  map[history.Workload]*neededRow

	current []*neededRow // the rows of the current round, with its baseline
}

// neededRow is a row with what is known about it.
type neededRow struct {
	row
	rounds  int       // that it had, with the current one
	needs   int       // rounds that it needs for a narrow interval
	goal    int       // rounds that it should have in the end
	samples []sample  // of its cells
	shares  []float64 // of the baseline, by round
}

func newNeededRounds(
	rows []row, seed uint64, expect func(row) (speed float64, cost time.Duration),
) *neededRounds {
	n := &neededRounds{seed: seed, expect: expect, noops: map[history.Workload]*neededRow{}}
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
	n.setGoals(left)
	generator := rand.New(rand.NewPCG(n.seed, uint64(round)))
	n.current = n.choose(generator)
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
		noop := n.noops[row.Workload]
		if noop == nil || noop == row {
			continue
		}
		if possible := noop.samples[len(noop.samples)-1].possible; possible > 0 {
			row.shares = append(row.shares, row.samples[len(row.samples)-1].goodput/possible)
		}
	}
}

// setGoals decides how many rounds each row should have, so that all of them fit into the time left.
func (n *neededRounds) setGoals(left time.Duration) {
	for _, row := range n.rows {
		row.needs, row.goal = row.estimateNeeds(), max(row.rounds, leastRounds)
		left -= time.Duration(row.goal-row.rounds) * n.cost(row)
	}
	first, others := n.byImportance()
	left = n.share(left, first)
	n.share(left, others)
}

// byImportance returns the ranked rows, the fastest of each workload separately.
func (n *neededRounds) byImportance() (first, others []*neededRow) {
	bySpeed := slices.DeleteFunc(slices.Clone(n.rows), func(row *neededRow) bool { return !row.ranked() })
	slices.SortStableFunc(bySpeed, func(a, b *neededRow) int { return cmp.Compare(n.speed(b), n.speed(a)) })
	of := map[history.Workload]int{}
	for _, row := range bySpeed {
		if of[row.Workload]++; of[row.Workload] <= fastest {
			first = append(first, row)
		} else {
			others = append(others, row)
		}
	}
	return first, others
}

// share increases the goals of the rows evenly, up to what they need, as long as there is time left. It returns the
// time that is left then.
func (n *neededRounds) share(left time.Duration, rows []*neededRow) time.Duration {
	for goal := leastRounds + 1; goal <= mostRounds; goal++ {
		for _, row := range rows {
			if cost := n.cost(row); row.goal < goal && row.needs >= goal && left >= cost {
				row.goal = goal
				left -= cost
			}
		}
	}
	return left
}

// speed returns the mean goodput of the row's cells.
func (n *neededRounds) speed(row *neededRow) float64 {
	if len(row.samples) == 0 {
		speed, _ := n.expect(row.row)
		return speed
	}
	sum := 0.0
	for _, s := range row.samples {
		sum += s.goodput
	}
	return sum / float64(len(row.samples))
}

// cost returns how long a row will take in a round, with its part of the baseline's time.
func (n *neededRounds) cost(row *neededRow) time.Duration {
	cost := n.cellTime(row)
	if noop := n.noops[row.Workload]; noop != nil {
		cost += n.cellTime(noop) / rowsPerRound
	}
	return cost
}

// cellTime returns the mean of what the row's cells took.
func (n *neededRounds) cellTime(row *neededRow) time.Duration {
	if len(row.samples) == 0 {
		_, cost := n.expect(row.row)
		return cost
	}
	sum := time.Duration(0)
	for _, s := range row.samples {
		sum += s.took
	}
	return sum / time.Duration(len(row.samples))
}

// estimateNeeds returns how many rounds the row needs in all until its interval is narrow.
func (r *neededRow) estimateNeeds() int {
	if r.rounds < minRoundsForWidth {
		return mostRounds
	}
	mean, interval := stats.Mean(r.shares)
	if interval == nil {
		return leastRounds // it sold nothing in a round, or has no baseline
	}
	// The width is inversely proportional to the square root of the number of rounds.
	times := (interval.High - interval.Low) / 2 / mean / maxHalfWidth
	return min(int(math.Ceil(float64(r.rounds)*times*times)), mostRounds)
}

// choose returns the rows of the next round. Rows with a higher goal come more often, so that each row's rounds are
// spread over the whole run.
func (n *neededRounds) choose(generator *rand.Rand) []*neededRow {
	waiting := slices.DeleteFunc(slices.Clone(n.rows), func(row *neededRow) bool { return row.rounds >= row.goal })
	if len(waiting) == 0 {
		return nil
	}
	shuffle(generator, waiting)
	due := func(row *neededRow) float64 { return (float64(row.rounds) + 0.5) / float64(row.goal) }
	slices.SortStableFunc(waiting, func(a, b *neededRow) int { return cmp.Compare(due(a), due(b)) })
	workload := waiting[0].Workload
	waiting = slices.DeleteFunc(waiting, func(row *neededRow) bool { return row.Workload != workload })
	return waiting[:min(len(waiting), rowsPerRound)]
}

func (n *neededRounds) learn(of row, s sample) {
	for _, row := range n.current {
		if row.Subject == of.Subject {
			row.samples = append(row.samples, s)
		}
	}
}

func (n *neededRounds) after(left time.Duration) (certain, expected []row) {
	if len(n.current) == 0 { // before the first round
		n.setGoals(left)
	}
	certain = n.until(func(*neededRow) int { return leastRounds })
	expected = n.until(func(row *neededRow) int { return row.goal })
	return certain, expected
}

// until returns the rows that run until each has had as many rounds as goal says, and the baselines of these rounds.
func (n *neededRounds) until(goal func(*neededRow) int) (rows []row) {
	all, most := map[history.Workload]int{}, map[history.Workload]int{}
	for _, r := range n.rows {
		times := max(goal(r)-r.rounds, 0)
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
