package verify

import (
	"cmp"
	"slices"

	"stock/loadtest/internal/history"
)

// Sales are the sales of one item, with what the judge finds in them that can be shown on a time axis.
type Sales struct {
	Item int64
	// Ops holds each sale once, even if it was reported twice. An order is a sale of each of its items.
	Ops []history.Op
	// Foreign holds the replicas whose clocks are not the lab's. Their critical sections cannot be compared with others.
	Foreign map[string]bool

	// Overlaps has, for each critical section that began while others had not ended, the one of these that ended last. The
	// pairs are in the sequence in which the sections began. They convict only a strategy that claims exclusion.
	Overlaps []Pair
	// SameStock has the sales that left the same stock behind as an earlier one, in the sequence of the answers. One sale
	// of each pair was overwritten.
	SameStock []Pair
	// Twice has, for each deduction that was made more than once, its first two sales.
	Twice []Pair
}

// Pair is two sales as indexes in Sales.Ops. The first one began, or was answered, before the other.
type Pair [2]int

// SalesByItem returns the sales of each item, by item.
func SalesByItem(h *history.History) (all []Sales) {
	b := openBooks(h)
	foreign := b.foreignReplicas()
	for _, it := range b.items {
		s := Sales{Item: it.id, Foreign: foreign, SameStock: it.sameStockPairs()}
		for _, e := range it.sold {
			s.Ops = append(s.Ops, e.Op)
		}
		for o := range it.overlapping(foreign) {
			s.Overlaps = append(s.Overlaps, Pair{o.first.index, o.second.index})
		}
		deductions, sales := it.byDeduction()
		for _, deduction := range deductions {
			if made := sales[deduction]; len(made) > 1 {
				s.Twice = append(s.Twice, Pair{made[0].index, made[1].index})
			}
		}
		all = append(all, s)
	}
	return all
}

// sameStockPairs returns the sales that left the same stock behind, sorted by the time of the later answer.
func (it *item) sameStockPairs() (pairs []Pair) {
	for e, other := range it.sameStock() {
		if other.ReceivedNS < e.ReceivedNS {
			e, other = other, e
		}
		pairs = append(pairs, Pair{e.index, other.index})
	}
	slices.SortStableFunc(pairs, func(a, b Pair) int {
		return cmp.Compare(it.sold[a[1]].ReceivedNS, it.sold[b[1]].ReceivedNS)
	})
	return pairs
}
