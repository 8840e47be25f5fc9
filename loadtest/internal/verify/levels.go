package verify

import (
	"cmp"
	"slices"
	"sort"
)

// refusedTruly checks that each buyer who was refused was told what was left at some time during the request: not
// before the sale that left it was sent, and not after the next sale was answered. If the answers do not tell all
// sales, or the stock may have risen, nobody knows what was left.
func (it *item) refusedTruly() (r result) {
	if !it.neverRestocked() || !it.finalRead || len(it.unknown)+len(it.omitting) > 0 {
		return r
	}
	sales, stock := it.byRemaining(), it.initial
	for _, e := range sales {
		if stock != e.Remaining+e.Count {
			return r // the sales contradict each other, which other checks find
		}
		stock = e.Remaining
	}
	for _, e := range it.refused {
		if e.OmitsRemaining {
			continue
		}
		next := sort.Search(len(sales), func(i int) bool { return sales[i].Remaining < e.Remaining })
		left := it.initial
		impossible := next < len(sales) && sales[next].until < e.since
		if next > 0 {
			left = sales[next-1].Remaining
			impossible = impossible || sales[next-1].since > e.until
		}
		if left != e.Remaining || impossible {
			r.findf("item %d: request %s was refused and told that %d were left, which was not so during the request",
				it.id, name(e.Op), e.Remaining)
		}
	}
	return r
}

// risingTokens checks that each sale has a greater fencing token than those that were answered before it was sent, and
// that it has one if it should.
func (it *item) risingTokens() (r result) {
	var before effect // of those that were answered, the sale with the greatest token
	sent := slices.SortedFunc(slices.Values(it.sold), func(a, b effect) int { return cmp.Compare(a.since, b.since) })
	answered := slices.SortedFunc(slices.Values(it.sold), func(a, b effect) int { return cmp.Compare(a.until, b.until) })
	for _, e := range sent {
		if it.fenced && e.Token == 0 && !e.Replayed { // a repeated answer has none: its lock is free again
			r.findf("item %d: request %s was sold without a fencing token", it.id, name(e.Op))
		}
		for ; len(answered) > 0 && answered[0].until < e.since; answered = answered[1:] {
			if answered[0].Token > before.Token {
				before = answered[0]
			}
		}
		if e.Token > 0 && e.Token <= before.Token {
			r.findf("item %d: request %s has token %d, and request %s after it has token %d, which is not greater",
				it.id, name(before.Op), before.Token, name(e.Op), e.Token)
		}
	}
	return r
}
