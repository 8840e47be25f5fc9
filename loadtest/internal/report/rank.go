package report

import (
	"cmp"
	"slices"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// compareToBaseline computes each row's share of noop.
func (r *Report) compareToBaseline() {
	for _, row := range r.Rows {
		base := r.baseline(row)
		if base == nil || row.Restock > 0 {
			continue // noop gets no restocks, and a slower strategy gets more units to sell
		}
		if base == row {
			one := 1.0
			row.ShareOfNoop = &one
			continue
		}
		// noop would have sold what it confirmed, as far as there was stock.
		sold := row.perSecond(func(round Cell) int64 { return round.Good })
		possible := base.perSecond(func(round Cell) int64 { return round.Covered })
		if shares := stats.Ratios(sold, possible); len(shares) > 0 {
			share := round3(stats.Median(shares))
			row.ShareOfNoop = &share
		}
	}
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

// rank sorts the rows, and compares the correct strategies with the fastest of them.
func (r *Report) rank() {
	// The load with the most stock comes first: rounds run in random order, so the order of arrival means nothing.
	stock := map[history.Workload]int64{}
	for _, row := range r.Rows {
		stock[row.load()] = max(stock[row.load()], row.Stock)
	}
	slices.SortStableFunc(r.Rows, func(a, b *Row) int {
		return cmp.Or(
			cmp.Compare(a.kind(), b.kind()),
			cmp.Compare(a.Users, b.Users), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.HoldMS, b.HoldMS),
			cmp.Compare(a.Items(), b.Items()),
			cmp.Compare(stock[b.load()], stock[a.load()]), cmp.Compare(a.Workload.Name, b.Workload.Name),
			cmp.Compare(a.class(), b.class()),
			cmp.Compare(b.GoodputPerS, a.GoodputPerS),
			cmp.Compare(a.Strategy, b.Strategy), cmp.Compare(a.Store, b.Store), cmp.Compare(a.Replicas, b.Replicas))
	})

	type group struct {
		workload history.Workload
		replicas int
	}
	fastest := map[group]*Row{} // the first ranked row of each
	for _, row := range r.Rows {
		if !row.Ranked() {
			continue
		}
		g := group{workload: row.load(), replicas: row.Replicas}
		if fastest[g] == nil {
			fastest[g] = row
		}
		row.Relative = relative(row, fastest[g])
	}
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

func relative(row, fastest *Row) *Relative {
	if row == fastest {
		return &Relative{SlowerThanFastestCorrect: 1}
	}
	ratios := stats.Ratios(fastest.rates(), row.rates())
	ratios = slices.DeleteFunc(ratios, func(ratio float64) bool { return ratio == 0 })
	if len(ratios) == 0 {
		return nil
	}
	mean, interval := stats.GeometricMean(ratios)
	rel := &Relative{SlowerThanFastestCorrect: round3(mean), Interval: rounded3(interval)}
	if interval != nil {
		half := round3((interval.High - interval.Low) / 2)
		rel.PlusMinus = &half
		rel.Tied = interval.Low <= 1 && interval.High >= 1
	}
	return rel
}
