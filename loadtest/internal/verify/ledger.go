package verify

import "stock/loadtest/internal/history"

// replays compares the answers to orders that were sent again with the first answers.
func (it *item) replays() (r result) {
	first := map[string]history.Op{}
	for _, op := range it.load {
		if _, known := first[op.Order]; !known && decided(op) {
			first[op.Order] = op
		}
	}
	var unlike examples
	for _, op := range it.again {
		if op.Outcome == history.Rejected {
			unlike.add("item %d: order %s was refused when it was sent again (%d %s)", it.id, op.Order, op.Status, op.Error)
			continue
		}
		if !decided(op) {
			continue // no answer, or the first request is still in progress: that is no contradiction
		}
		switch was, known := first[op.Order]; {
		case !known:
			first[op.Order] = op
		case op.Outcome != was.Outcome || op.Remaining != was.Remaining:
			unlike.add("item %d: order %s was told %s, %d remaining, but when it was sent again %s, %d remaining",
				it.id, op.Order, was.Outcome, was.Remaining, op.Outcome, op.Remaining)
		default:
			r.figures.Replays++
		}
	}
	r.findings = unlike.findings("item %d: %d orders got a different answer when they were sent again",
		it.id, unlike.count)
	r.figures.Unlike = unlike.count
	return r
}

// decided reports whether a request was answered sold or sold out.
func decided(op history.Op) bool { return op.Outcome == history.Sold || op.Outcome == history.SoldOut }

// audit compares the ledger with what the buyers were told, order by order, and with the stock. The sums follow from
// the orders: confirmed ≤ ledger ≤ confirmed + unknown.
func (it *item) audit() (r result) {
	if !it.ledgerRead {
		return r
	}
	var gaps examples
	rows := map[string]history.Entry{} // by order
	written := int64(0)
	for _, row := range it.ledger {
		written += row.Count
		if row.Count == 0 {
			continue // sold out
		}
		if _, twice := rows[row.Order]; twice {
			gaps.add("item %d: order %s is in the ledger more than once", it.id, row.Order)
		}
		rows[row.Order] = row
	}
	it.auditSales(rows, &gaps)
	it.auditRows(&gaps)
	r.findings = gaps.findings("item %d: the ledger differs from the buyers' answers in %d orders", it.id, gaps.count)
	r.figures.LedgerGaps = gaps.count
	if !it.finalRead {
		return r
	}
	had := it.available()
	if total := written + it.final; total < had || total > had+it.maybeRestocked {
		r.find("item %d: the ledger's %d and the stock's %d add up to %d instead of %d", it.id, written, it.final, total, had)
		r.figures.LedgerGaps += max(had-total, total-had-it.maybeRestocked)
	}
	return r
}

// auditSales looks up every sale in the ledger.
func (it *item) auditSales(rows map[string]history.Entry, gaps *examples) {
	for _, e := range it.sold {
		switch row, written := rows[e.Order]; {
		case !written:
			gaps.add("item %d: order %s was sold but is not in the ledger", it.id, e.Order)
		case row.Count != e.Count || row.Remaining != e.Remaining:
			gaps.add("item %d: order %s was sold %d and told %d remaining, but the ledger says %d and %d",
				it.id, e.Order, e.Count, e.Remaining, row.Count, row.Remaining)
		}
	}
}

// auditRows looks up every row of the ledger among the sales and the unknown outcomes.
func (it *item) auditRows(gaps *examples) {
	sold := map[string]bool{}
	for _, e := range it.sold {
		sold[e.Order] = true
	}
	for _, row := range it.ledger {
		if row.Count == 0 || sold[row.Order] {
			continue
		}
		switch asked, unknown := it.asked[row.Order]; {
		case !unknown:
			gaps.add("item %d: the ledger has %d units for order %s, whose buyer was not told of a sale",
				it.id, row.Count, row.Order)
		case row.Count != asked:
			gaps.add("item %d: the ledger has %d units for order %s, whose outcome is unknown and which asked for %d",
				it.id, row.Count, row.Order, asked)
		}
	}
}
