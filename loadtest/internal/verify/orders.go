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

// refusalsNameItems checks that an order that was refused as sold out names one of its items.
func (b *books) refusalsNameItems() (r result) {
	var found examples
	for _, op := range b.ops {
		if op.Kind == history.Order && op.Outcome == history.SoldOut && !namesItem(op) {
			found.addf("order %s was told that an item is sold out that it did not ask for", op.Name)
		}
	}
	r.findings = found.findings("%d orders were told that an item is sold out that they did not ask for", found.count)
	return r
}

func namesItem(op history.Op) bool {
	for _, line := range op.Lines {
		if line.Short {
			return true
		}
	}
	return false
}

// wholeOrders checks that the ledger has every line of an order or none.
func (b *books) wholeOrders() (r result) {
	if b.end == nil || !b.end.LedgerRead {
		return r
	}
	written := map[string]int{} // lines in the ledger, by order
	for _, row := range b.ledger {
		if row.Count > 0 {
			written[row.Key]++
		}
	}
	var found examples
	for op := range b.deductions() {
		if n := written[op.Name]; op.Kind == history.Order && n > 0 && n < len(op.Lines) {
			found.addf("order %s: %d of its %d lines are in the ledger, want all or none", op.Name, n, len(op.Lines))
		}
	}
	r.findings = found.findings("%d orders are in the ledger with some of their lines", found.count)
	r.figures.PartialOrders = found.count
	return r
}
