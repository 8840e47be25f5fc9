package verify

import "stock/loadtest/internal/history"

// undeducted is the outcome of a line if its order was refused because of another item: nothing was deducted, and
// nothing is known of the line's own item.
const undeducted history.Outcome = "undeducted"

// lineByLine splits an order into a deduction from each of its items. Any other request is returned unchanged.
func lineByLine(op *history.Op) []*history.Op {
	if op.Kind != history.Order {
		return []*history.Op{op}
	}
	lines := make([]*history.Op, len(op.Lines))
	for i, line := range op.Lines {
		one := *op
		one.Kind, one.Lines = history.Deduct, nil
		one.GoodsID, one.Count = line.GoodsID, line.Count
		one.Remaining, one.OmitsRemaining, one.Token = line.Remaining, line.OmitsRemaining, line.Token
		if op.Outcome == history.SoldOut && !line.Short {
			one.Outcome = undeducted
		}
		lines[i] = &one
	}
	return lines
}

// wholeOrders checks that every order was deducted as a whole or not at all. Where there is a ledger, it has every line
// of an order or none. Without one, an order with an unknown outcome can still be found to be deducted in part, by the
// stock of its items.
func (b *books) wholeOrders() (r result) {
	written := b.linesInLedger()
	for op := range b.deductions() {
		if op.Kind != history.Order {
			continue
		}
		if n := written[op.Name]; n > 0 && n < len(op.Lines) {
			r.findf("order %s: %d of its %d lines are in the ledger, want all or none", op.Name, n, len(op.Lines))
			continue
		}
		if taken, left := b.takenInPart(op); taken != nil && left != nil {
			r.findf("order %s, whose outcome is unknown: units of item %d are gone that only it can have taken, "+
				"but it did not take its units of item %d", op.Name, taken.id, left.id)
		}
	}
	r.figures.PartialOrders = r.findings
	return r
}

// linesInLedger counts the lines of each request that are in the ledger.
func (b *books) linesInLedger() map[string]int {
	written := map[string]int{}
	if b.end == nil || !b.end.LedgerRead || !b.run.Ledger {
		return written
	}
	for _, row := range b.ledger {
		if row.Count > 0 {
			written[row.Key]++
		}
	}
	return written
}

// takenInPart returns an item from which an order with an unknown outcome must have taken its units, and one from which
// it cannot have; nil if there is none.
func (b *books) takenInPart(op history.Op) (taken, left *item) {
	if op.Outcome != history.Unknown || op.Name == "" {
		return nil, nil
	}
	for _, line := range op.Lines {
		it := b.byID[line.GoodsID]
		asked := it.unknownUnitsOf(op.Name)
		least, most := it.takenByUnknown()
		switch {
		case asked == 0: // its outcome became known when it was sent again
			return nil, nil
		case most < line.Count:
			left = it
		case least > it.unknownUnits-asked:
			taken = it // even if all others took effect
		}
	}
	return taken, left
}

// takenByUnknown returns the least and the most units that requests with an unknown outcome can have taken.
func (it *item) takenByUnknown() (least, most int64) {
	if !it.finalRead {
		return 0, it.unknownUnits
	}
	least = it.available() - it.final - it.soldUnits
	return least, least + it.maybeRestocked
}

// unknownUnitsOf returns the units that a request asked for, once for each try with an unknown outcome.
func (it *item) unknownUnitsOf(name string) (sum int64) {
	for _, op := range it.unknown {
		if op.Name == name {
			sum += op.Count
		}
	}
	return sum
}
