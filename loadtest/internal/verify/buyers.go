package verify

import (
	"cmp"
	"maps"
	"slices"

	"stock/loadtest/internal/history"
)

// purchases are the requests of one buyer for one item, without those that are certain to have changed nothing.
type purchases struct {
	sold    []effect
	unknown []history.Op
	limit   int64 // the highest that the buyer's sales were to keep
}

// purchases returns what each buyer bought of an item, or may have bought.
func (it *item) purchases() map[string]*purchases {
	all := map[string]*purchases{}
	of := func(op history.Op) *purchases {
		if all[op.Buyer] == nil {
			all[op.Buyer] = &purchases{}
		}
		return all[op.Buyer]
	}
	for _, e := range it.sold {
		if e.Buyer != "" {
			p := of(e.Op)
			p.sold = append(p.sold, e)
			p.limit = max(p.limit, e.BuyerLimit)
		}
	}
	for _, op := range it.unknown {
		if op.Buyer != "" {
			p := of(op)
			p.unknown = append(p.unknown, op)
		}
	}
	return all
}

// bounds returns the fewest and the most units that the buyer can have had when a request was decided that was sent and
// answered at the given times.
func (p *purchases) bounds(sent, answered int64) (fewest, most int64) {
	if p == nil {
		return 0, 0
	}
	for _, e := range p.sold {
		if e.until < sent {
			fewest += e.Count
		}
		if e.since < answered {
			most += e.Count
		}
	}
	for _, op := range p.unknown {
		if op.SentNS < answered {
			most += op.Count
		}
	}
	return fewest, most
}

// buyerLimits checks that no buyer was sold more units of an item than the limit, and that none was refused within it.
// An unknown outcome is taken as the one that excuses the service: not sold where there may be too much, and sold where
// there may be too little.
func (it *item) buyerLimits() (r result) {
	bought := it.purchases()
	for _, name := range slices.Sorted(maps.Keys(bought)) {
		p := bought[name]
		var units int64
		for _, e := range p.sold {
			units += e.Count
		}
		if beyond := units - p.limit; len(p.sold) > 0 && beyond > 0 {
			r.figures.BeyondLimit += beyond
			r.findf("item %d: %s was sold %d units, %d beyond the limit of %d", it.id, name, units, beyond, p.limit)
		}
	}
	for _, op := range slices.Concat(it.load, it.again) {
		if op.Outcome != history.BuyerLimit || op.Replayed {
			continue
		}
		fewest, most := bought[op.Buyer].bounds(op.SentNS, op.ReceivedNS)
		switch {
		case op.Bought+op.Count <= op.BuyerLimit || it.finalRead && most+op.Count <= op.BuyerLimit:
			r.figures.RefusedWithinLimit++
			r.findf("item %d: request %s of %s wanted %d and was refused, but with at most %d units bought it kept "+
				"the limit of %d", it.id, name(op), op.Buyer, op.Count, min(op.Bought, most), op.BuyerLimit)
		case op.Bought < fewest || it.finalRead && op.Bought > most:
			r.findf("item %d: request %s was told that %s had bought %d units, but it was from %d to %d",
				it.id, name(op), op.Buyer, op.Bought, fewest, most)
		}
	}
	return r
}

// buyersTested checks that the limits were reached, while requests of one buyer could race.
func (b *books) buyersTested() (r result) {
	if b.outcomes[history.BuyerLimit] == 0 {
		r.findf("no buyer was refused because of the limit: it was not tested")
	}
	if met := b.buyersMet(); met < MinContended {
		r.findf("only %d requests were sent while another one of the same buyer and item was in flight, fewer than %d: "+
			"races for the limit were hardly tested", met, MinContended)
	}
	return r
}

// buyersMet counts the requests that were sent while another one of the same buyer and item was in flight.
func (b *books) buyersMet() (n int64) {
	for _, it := range b.items {
		n += met(it.load, func(op history.Op) string { return op.Buyer })
	}
	return n
}

// met counts the requests that were sent while another one with the same key was in flight.
func met(load []history.Op, key func(history.Op) string) (n int64) {
	load = slices.Clone(load)
	slices.SortFunc(load, func(a, b history.Op) int { return cmp.Compare(a.SentNS, b.SentNS) })
	answered := map[string]int64{} // when all requests with a key so far were answered
	for _, op := range load {
		if last, known := answered[key(op)]; known && op.SentNS < last {
			n++
		}
		answered[key(op)] = max(answered[key(op)], op.ReceivedNS)
	}
	return n
}
