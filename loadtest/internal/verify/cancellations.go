package verify

import (
	"cmp"
	"maps"
	"slices"

	"stock/loadtest/internal/history"
)

// cancelled is what is known of the cancellations of one sale.
type cancelled struct {
	all    []history.Op
	sold   int64 // units, as the answers tell; 0 if none does
	wholly int64 // when the first answer came that all was cancelled; 0 if none did
	unsold bool  // an answer was that all was cancelled, and nothing had been sold
}

func (b *books) enterCancellations() {
	b.cancelled = map[string]*cancelled{}
	for _, c := range b.ops {
		if c.Kind != history.CancelSale {
			continue
		}
		of := b.cancelled[c.Name]
		if of == nil {
			of = &cancelled{}
			b.cancelled[c.Name] = of
		}
		of.all = append(of.all, c)
		of.sold = max(of.sold, c.Sold)
		if c.Wholly() && (of.wholly == 0 || c.ReceivedNS < of.wholly) {
			of.wholly = c.ReceivedNS
		}
		of.unsold = of.unsold || c.Wholly() && c.Sold == 0
	}
}

// givenBack returns what the cancellations did to the stock, as restocks. Each answer tells how many units were
// cancelled so far, so the same units count once, however often they are reported.
func (c *cancelled) givenBack(sold int64) (restocks []*history.Op) {
	var totals []int64
	for _, one := range c.all {
		totals = append(totals, one.Cancelled)
	}
	slices.Sort(totals)
	before := int64(0)
	for _, total := range slices.Compact(totals) {
		if total > before {
			restocks = append(restocks, c.restock(total, total-before, history.Sold))
			before = total
		}
	}
	asked := int64(0) // by those of unknown outcome
	for _, one := range c.all {
		if one.Outcome == history.Unknown {
			asked = max(asked, cmp.Or(one.Count, sold))
		}
	}
	if asked > before {
		restocks = append(restocks, c.restock(asked, asked-before, history.Unknown))
	}
	return restocks
}

// restock is the restock with which the units cancelled in all became a total.
func (c *cancelled) restock(total, units int64, outcome history.Outcome) *history.Op {
	op := &history.Op{Kind: history.Restock, Count: units, Outcome: outcome}
	for _, one := range c.all {
		if op.SentNS == 0 || (one.Count == 0 || one.Count >= total) && one.SentNS < op.SentNS {
			op.GoodsID, op.SentNS = one.GoodsID, one.SentNS
		}
		if one.Cancelled >= total && (op.ReceivedNS == 0 || one.ReceivedNS < op.ReceivedNS) {
			op.ReceivedNS = one.ReceivedNS
		}
	}
	if op.ReceivedNS == 0 {
		op.ReceivedNS = c.all[len(c.all)-1].ReceivedNS
	}
	return op
}

// cancelledOps returns what all cancellations did, as restocks. A sale whose client was only told that it was cancelled
// may have been made and then given back: it is one of unknown outcome.
func (b *books) cancelledOps() (ops []*history.Op) {
	if len(b.cancelled) == 0 {
		return nil
	}
	told := map[string]bool{}
	for _, op := range b.ops {
		if op.Outcome == history.Sold {
			told[op.Name] = true
		}
	}
	for op := range b.deductions() {
		of := b.cancelled[op.Name]
		if of == nil {
			continue
		}
		ops = append(ops, of.givenBack(op.Count)...)
		if of.sold > 0 && !told[op.Name] && op.Outcome != history.Unknown {
			op.Outcome, op.Again = history.Unknown, true
			ops = append(ops, &op)
		}
	}
	return ops
}

// cancellations checks what clients were told of cancelled sales.
func (b *books) cancellations() (r result) {
	counts := map[string]int64{}
	for op := range b.deductions() {
		counts[op.Name] = op.Count
	}
	for _, name := range slices.Sorted(maps.Keys(b.cancelled)) {
		for _, c := range b.cancelled[name].all {
			switch {
			case c.Outcome != history.Done:
			case c.Cancelled > counts[name] || c.Sold > counts[name]:
				r.findf("item %d: sale %s of %d units was told to be of %d, of which %d were cancelled", c.GoodsID, name,
					counts[name], c.Sold, c.Cancelled)
			case c.GivenBack != c.Cancelled || c.Cancelled < min(c.Count, c.Sold) || c.Count == 0 && c.Cancelled != c.Sold:
				r.findf("item %d: a cancellation of %d units of sale %s, 0 for all, cancelled %d of %d and gave back %d",
					c.GoodsID, c.Count, name, c.Cancelled, c.Sold, c.GivenBack)
			}
		}
	}
	for _, op := range b.ops {
		of := b.cancelled[op.Name]
		switch {
		case op.Outcome == history.Sold && of != nil && of.wholly > 0 && op.SentNS > of.wholly:
			r.findf("%s was told sold after it had been cancelled", inWords(op))
		case op.Outcome == history.Sold && of != nil && of.unsold:
			r.findf("%s was told sold, and a client that cancelled it was told that nothing had been sold", inWords(op))
		case op.Outcome == history.Withdrawn && of == nil:
			r.findf("%s was told that it was cancelled, and nobody had asked for that", inWords(op))
		}
	}
	return r
}

// cancelsTested checks that units of sales were given back, and that sales were cancelled before they were made.
func (b *books) cancelsTested() (r result) {
	back, withdrawn := 0, b.outcomes[history.Withdrawn]
	for _, of := range b.cancelled {
		if of.sold > 0 {
			back++
		}
	}
	if back < minCancelled || withdrawn < minCancelled {
		r.findf("%d sales were cancelled, and %d before they were made, want at least %d of each", back, withdrawn,
			minCancelled)
	}
	return r
}

// minCancelled is how many sales must be cancelled so that a run proves something.
const minCancelled = 10
