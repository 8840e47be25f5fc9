package verify

import (
	"maps"
	"slices"

	"stock/loadtest/internal/history"
)

// available is how many units there were to sell, as far as that is certain.
func (it *item) available() int64 { return it.initial + it.restocked }

// oversold is how many units were sold that were not there. What is put back later does not compensate for them.
func (it *item) oversold() int64 {
	below, _ := it.soldBelowZero()
	return max(0, it.soldUnits-it.available()-it.maybeRestocked, below)
}

// lost is how many units were sold but are still in stock.
func (it *item) lost() int64 {
	if !it.finalRead {
		return 0
	}
	return max(0, it.final-(it.available()+it.maybeRestocked-it.soldUnits))
}

// leaked is how many units are gone beyond all that was sold or may have been.
func (it *item) leaked() int64 {
	if !it.finalRead {
		return 0
	}
	return max(0, it.available()-it.final-it.soldUnits-it.unknownUnits)
}

// soldBelowZero counts the units that were sold when there were none, according to the answers to their buyers, and
// finds the sale with the lowest remaining stock.
func (it *item) soldBelowZero() (units int64, lowest effect) {
	if it.sellsNothing {
		return 0, effect{} // its answers report no real stock
	}
	for _, e := range it.told {
		if e.Remaining < 0 {
			units += min(e.Count, -e.Remaining)
		}
		if e.Remaining < lowest.Remaining {
			lowest = e
		}
	}
	return units, lowest
}

// demandExceeded reports whether buyers who were answered asked for more units than there were.
func (it *item) demandExceeded() bool {
	asked := it.soldUnits
	for _, e := range it.refused {
		asked += e.Count
	}
	below, _ := it.soldBelowZero()
	return asked > it.available() || below > 0
}

func (b *books) demandExceeded() bool { return slices.ContainsFunc(b.items, (*item).demandExceeded) }

// setAsAsked checks that the stock before the run was what the lab had set, also in the store that sells.
func (b *books) setAsAsked() (r result) {
	for _, id := range slices.Sorted(maps.Keys(b.run.Set)) {
		set := b.run.Set[id]
		check := func(read map[int64]int64, where string) {
			if found, known := read[id]; known && found != set {
				r.findf("item %d: the stock was set to %d, but before the run there were %d%s", id, set, found, where)
				r.figures.SetWrong += max(found-set, set-found)
			}
		}
		check(b.run.Initial, "")
		check(b.run.InitialSeller, " in the store that sells")
	}
	return r
}

// sums counts what every verdict shows. It finds nothing.
func (it *item) sums() (r result) {
	r.figures = Figures{
		Initial:      it.initial,
		Final:        it.final,
		Sold:         it.soldUnits,
		UnknownUnits: it.unknownUnits,
		Restocked:    it.restocked,
		Covered:      it.soldUnits - it.oversold(),
	}
	return r
}

// balance checks that initial + restocked - sold is final, except for what is unknown.
func (it *item) balance() (r result) {
	oversold, lost, leaked := it.oversold(), it.lost(), it.leaked()
	had, most := it.available(), it.available()+it.maybeRestocked
	r.figures = Figures{Oversold: oversold, LostUpdates: lost, Leaked: leaked}
	if it.reserves {
		r.figures.Reservations.GhostUnits = leaked
	}
	if it.finalRead {
		r.figures.Good = max(0, min(it.soldUnits-oversold, had-max(it.final, 0)))
	}
	if oversold > 0 {
		r.findf("item %d: units sold beyond the stock: %d (%d sold, of %d)",
			it.id, oversold, it.soldUnits, most)
	}
	if below, lowest := it.soldBelowZero(); below > 0 {
		r.findf("item %d: request %s was told %d remaining", it.id, name(lowest.Op), lowest.Remaining)
	}
	if it.finalRead && it.sellerRead && it.seller != it.final {
		r.findf("item %d: the store that sells has %d units, the store that is updated afterwards has %d",
			it.id, it.seller, it.final)
	}
	if lost > 0 {
		r.findf("item %d: units sold but still in stock: %d (%d - %d = %d should be left, not %d)",
			it.id, lost, most, it.soldUnits, most-it.soldUnits, it.final)
	}
	if leaked > 0 {
		r.findf("item %d: units gone that nobody bought: %d (%d gone, %d sold, at most %d more in doubt)",
			it.id, leaked, had-it.final, it.soldUnits, it.unknownUnits)
	}
	return r
}

// stockUnchanged checks that the stock of a strategy that claims to sell nothing did not change.
func (it *item) stockUnchanged() (r result) {
	if it.finalRead && it.final != it.initial {
		r.findf("item %d: nothing should be sold, but the stock changed from %d to %d", it.id, it.initial, it.final)
	}
	return r
}

// confirmsSales checks that a strategy that claims to sell nothing confirms sales all the same.
func (b *books) confirmsSales() (r result) {
	if confirmed := b.outcomes[history.Sold]; b.answered() >= MinAnswered && confirmed < MinAnswered {
		r.findf("only %d of %d requests were confirmed, fewer than %d", confirmed, b.requests, MinAnswered)
	}
	return r
}
