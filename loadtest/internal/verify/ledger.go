package verify

import "stock/loadtest/internal/history"

// audit compares the ledger with what the buyers were told, one by one, and with the stock. The sums follow from
// the deductions: confirmed ≤ ledger ≤ confirmed + unknown.
func (it *item) audit() (r result) {
	if !it.ledgerRead {
		return r
	}
	rows := map[string]history.Entry{} // by name
	written := int64(0)
	for _, row := range it.ledger {
		written += row.Count
		if row.Count == 0 {
			continue // sold out
		}
		if _, twice := rows[row.Key]; twice {
			r.findf("item %d: deduction %s is in the ledger more than once", it.id, row.Key)
		}
		rows[row.Key] = row
	}
	it.auditSales(rows, &r)
	it.auditRows(&r)
	r.figures.LedgerGaps = r.findings
	if !it.finalRead {
		return r
	}
	had := it.available()
	if total := written + it.final; total < had || total > had+it.maybeRestocked {
		r.findf("item %d: the ledger's %d and the stock's %d add up to %d instead of %d",
			it.id, written, it.final, total, had)
		r.figures.LedgerGaps += max(had-total, total-had-it.maybeRestocked)
	}
	return r
}

// auditSales looks up every sale in the ledger.
func (it *item) auditSales(rows map[string]history.Entry, r *result) {
	for _, e := range it.sold {
		switch row, written := rows[e.Name]; {
		case !written:
			r.findf("item %d: deduction %s was confirmed but is not in the ledger", it.id, e.Name)
		case row.Count != e.Count || row.Remaining != e.Remaining:
			r.findf("item %d: deduction %s was confirmed with %d units, %d remaining, but the ledger says %d and %d",
				it.id, e.Name, e.Count, e.Remaining, row.Count, row.Remaining)
		}
	}
}

// auditRows looks up every row of the ledger among the sales and the unknown outcomes.
func (it *item) auditRows(r *result) {
	sold := map[string]bool{}
	for _, e := range it.sold {
		sold[e.Name] = true
	}
	for _, row := range it.ledger {
		if row.Count == 0 || sold[row.Key] {
			continue
		}
		switch asked, unknown := it.asked[row.Key]; {
		case !unknown:
			r.findf("item %d: the ledger has %d units for deduction %s, whose buyer was not told of a sale",
				it.id, row.Count, row.Key)
		case row.Count != asked:
			r.findf("item %d: the ledger has %d units for deduction %s, whose outcome is unknown and which asked for %d",
				it.id, row.Count, row.Key, asked)
		}
	}
}
