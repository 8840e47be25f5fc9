package verify

import (
	"cmp"
	"iter"
	"slices"
	"sort"

	"stock/loadtest/internal/history"
)

// undersold finds the buyers who were refused although, in any sequence of the requests, stock was left for them.
func (b *books) undersold() result {
	return eachItem(func(it *item) (r result) {
		for _, e := range it.refused {
			left := it.least(e)
			if reserves(b.run) {
				left = b.free(it, e)
			}
			if it.neverRestocked() {
				left = max(left, e.Remaining) // by its own answer
			}
			if left >= e.Count {
				r.findf("item %d: request %s wanted %d and was refused while at least %d were left",
					it.id, name(e.Op), e.Count, left)
			}
		}
		r.figures.Undersold = r.findings
		return r
	})(b)
}

// turnedAway yields the requests that were answered busy although stock was left for them. Their buyers were told the
// truth, but could have been served.
func (b *books) turnedAway() iter.Seq[history.Op] {
	answered := map[string]bool{} // requests that were sold in the end
	for _, op := range b.ops {
		if op.Outcome == history.Sold {
			answered[op.Name] = op.Name != ""
		}
	}
	return func(yield func(history.Op) bool) {
		for op := range b.deductions() {
			if op.Outcome == history.Busy && !answered[op.Name] && b.foundEnough(op) && !yield(op) {
				return
			}
		}
	}
}

// refusesNobodyIdly checks that a strategy does not turn most buyers away while it serves nobody. A buyer who has
// waited for others is turned away for a reason.
func (b *books) refusesNobodyIdly() (r result) {
	served := map[int64][]int64{} // by item, when a request was answered that was served, or may have been
	for _, it := range b.items {
		for _, e := range it.sold {
			served[it.id] = append(served[it.id], e.until)
		}
		for _, op := range slices.Concat(it.unknown, it.restocks, it.maybe) {
			served[it.id] = append(served[it.id], op.ReceivedNS)
		}
		slices.Sort(served[it.id])
	}
	idle := 0
	for op := range b.turnedAway() {
		waited := slices.ContainsFunc(lineByLine(&op), func(line *history.Op) bool {
			of := served[line.GoodsID]
			next, _ := slices.BinarySearch(of, line.SentNS)
			return next < len(of) && of[next] <= line.ReceivedNS
		})
		if op.Error == history.BusyProblem && !waited {
			idle++
		}
	}
	if b.exceeds(int64(idle), MaxIdle) {
		r.findf("%d of %d buyers were turned away as busy while stock was left and nobody else was served, more than %.0f %%",
			idle, b.requests, 100*MaxIdle)
	}
	return r
}

// foundEnough reports whether there was certainly enough stock for a request, for every line of an order.
func (b *books) foundEnough(op history.Op) bool {
	for _, line := range lineByLine(&op) {
		e := effect{Op: *line, since: line.SentNS, until: line.ReceivedNS}
		if b.byID[line.GoodsID].least(e) < line.Count {
			return false
		}
	}
	return true
}

// least returns the least stock that there can have been during a request.
//
// It is all that had been put back before the request was sent, less every unit that may have been taken before its
// answer came. If nothing was put back, it is also at least the final stock.
func (it *item) least(e effect) int64 {
	if !it.finalRead {
		return 0 // requests that the interruption cut off are not on record, so nobody knows what they took
	}
	left := it.initial + it.putBack.until(e.since-1) - it.taken.until(e.until) - it.leaked()
	if it.neverRestocked() && it.lost() == 0 {
		left = max(left, it.final)
	}
	return left
}

// tally sums units by time.
type tally struct{ entries []entry }

type entry struct{ at, units int64 }

func (t *tally) add(at, units int64) { t.entries = append(t.entries, entry{at, units}) }

// sort must be called between the last add and the first until.
func (t *tally) sort() {
	slices.SortFunc(t.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(t.entries); i++ {
		t.entries[i].units += t.entries[i-1].units
	}
}

// until returns the units up to and including a time.
func (t *tally) until(at int64) int64 {
	i := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].at > at })
	if i == 0 {
		return 0
	}
	return t.entries[i-1].units
}
