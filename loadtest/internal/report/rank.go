package report

import (
	"cmp"
	"slices"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// leastLoad is how long the rounds of a row must last together, in seconds, so that its speed can be compared. Then a
// pause of the machine of 30 ms changes it by a tenth.
const leastLoad = 0.3

// notRanked says why rows have no share of noop.
const notRanked = `Rows are not ranked, and have no × noop, if their load or that of noop took less than 0.3 s in all
rounds together: a pause of the machine could decide.`

// seconds returns how long the rounds took together.
func (r *Row) seconds() (sum float64) {
	for _, round := range r.Rounds {
		sum += round.ElapsedS
	}
	return sum
}

// compareToBaseline computes each row's share of noop, round by round: noop runs seconds before or after the row, so
// that a machine which is busy with something else slows both.
func (r *Report) compareToBaseline() {
	for _, row := range r.Rows {
		base := r.baseline(row)
		row.Short = row.seconds() < leastLoad || base != nil && base.seconds() < leastLoad
		if base == nil || row.Restock > 0 || row.Short && base != row {
			continue // noop gets no restocks, and a slower strategy gets more units to sell
		}
		if base == row {
			one := 1.0
			row.ShareOfNoop = &one
			continue
		}
		row.addShares(base)
	}
}

func (r *Row) addShares(base *Row) {
	of := map[int]Cell{}
	for _, round := range base.Rounds {
		of[round.Round] = round
	}
	var shares []float64
	for i := range r.Rounds {
		round := &r.Rounds[i]
		if possible := of[round.Round].possible(); possible > 0 {
			share := rounded(round.GoodputPerS / possible)
			round.ShareOfNoop, shares = &share, append(shares, share)
		}
	}
	if len(shares) > 0 {
		share, interval := stats.Mean(shares)
		share = rounded(share)
		r.ShareOfNoop, r.ShareInterval = &share, roundedEnds(interval)
	}
}

// possible returns the goodput that noop would have had: it sells what it confirmed, as far as there was stock.
func (c Cell) possible() float64 {
	if c.ElapsedS == 0 {
		return 0
	}
	return float64(c.Covered) / c.ElapsedS
}

// baseline finds the baseline under the row's load, preferably with as many replicas.
func (r *Report) baseline(row *Row) *Row {
	var found *Row
	for _, other := range r.Rows {
		if other.Baseline && other.load() == row.load() && (found == nil || other.Replicas == row.Replicas) {
			found = other
		}
	}
	return found
}

// sort puts the rows into their order.
func (r *Report) sort() {
	// The load with the most stock comes first: rounds run in random order, so the order of arrival means nothing.
	stock := map[history.Workload]int64{}
	for _, row := range r.Rows {
		stock[row.load()] = max(stock[row.load()], row.Stock)
	}
	goodput := func(r *Row) float64 {
		if r.Short {
			return 0 // by name
		}
		return r.GoodputPerS
	}
	slices.SortStableFunc(r.Rows, func(a, b *Row) int {
		return cmp.Or(
			cmp.Compare(a.kind(), b.kind()),
			cmp.Compare(a.Users, b.Users), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.HoldMS, b.HoldMS),
			cmp.Compare(a.Items(), b.Items()),
			cmp.Compare(stock[b.load()], stock[a.load()]), cmp.Compare(a.Workload.Name, b.Workload.Name),
			cmp.Compare(a.class(), b.class()),
			cmp.Compare(b.share(), a.share()), cmp.Compare(goodput(b), goodput(a)),
			cmp.Compare(a.Strategy, b.Strategy), cmp.Compare(a.Store, b.Store), cmp.Compare(a.Replicas, b.Replicas))
	})
}

// kind is 0 for rows that are measured, which come first, and 1 for those that are judged only.
func (r *Row) kind() int {
	if r.JudgedOnly {
		return 1
	}
	return 0
}

// class is the row's place among those of the same load: ranked rows first, the baseline last.
func (r *Row) class() int {
	switch {
	case r.Baseline:
		return 4
	case r.Ranked():
		return 0
	case r.Result == verify.Correct:
		return 1
	case r.Result == verify.Inconclusive:
		return 2
	}
	return 3
}

// share is the row's share of noop, or 0 if there is none.
func (r *Row) share() float64 {
	if r.ShareOfNoop == nil {
		return 0
	}
	return *r.ShareOfNoop
}
