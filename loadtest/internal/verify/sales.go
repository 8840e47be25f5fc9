package verify

import (
	"math"

	"stock/loadtest/internal/history"
)

// Sales are the sales of one item, with what the judge finds in them that can be shown on a time axis.
type Sales struct {
	Item int64
	// Ops holds each sale once, even if it was reported twice. An order is a sale of each of its items.
	Ops []history.Op
	// Foreign holds the replicas whose clocks are not the lab's. Their critical sections cannot be compared with others.
	Foreign map[string]bool

	// Each of these is the first of its kind, as indexes in Ops; nil if there is none.
	Overlap   *Pair // two critical sections that overlap. It convicts only a strategy that claims exclusion
	SameStock *Pair // two sales that left the same stock behind: one of them was overwritten
	Twice     *Pair // one deduction that was made twice
}

// Pair is two sales by their indexes, the one that came first before the other.
type Pair [2]int

// SalesByItem returns the sales of each item that was sold, by item.
func SalesByItem(h *history.History) (all []Sales) {
	b := openBooks(h)
	foreign := b.foreignReplicas()
	for _, it := range b.items {
		if len(it.sold) == 0 {
			continue
		}
		s := Sales{Item: it.id, Foreign: foreign, SameStock: it.firstSameStock(), Twice: it.firstTwice()}
		for _, e := range it.sold {
			s.Ops = append(s.Ops, e.Op)
		}
		for o := range it.overlapping(foreign) {
			s.Overlap = &Pair{o.first.index, o.second.index}
			break
		}
		all = append(all, s)
	}
	return all
}

// firstSameStock returns the first two sales, by the time of the later answer, that left the same stock behind.
func (it *item) firstSameStock() (first *Pair) {
	found := int64(math.MaxInt64)
	for e, other := range it.sameStock() {
		if other.ReceivedNS < e.ReceivedNS {
			e, other = other, e
		}
		if other.ReceivedNS < found {
			found, first = other.ReceivedNS, &Pair{e.index, other.index}
		}
	}
	return first
}

// firstTwice returns the first two sales of one deduction.
func (it *item) firstTwice() *Pair {
	deductions, sales := it.byDeduction()
	for _, deduction := range deductions {
		if s := sales[deduction]; len(s) > 1 {
			return &Pair{s[0].index, s[1].index}
		}
	}
	return nil
}
