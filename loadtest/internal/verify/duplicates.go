package verify

// duplicates finds the orders that were deducted more than once: those whose buyer was told of two different sales, and
// those that must exist because more units are gone than all orders together asked for.
func (it *item) duplicates() (r result) {
	sales := map[string][]effect{}
	var orders []string // in the order of their first sale
	for _, e := range it.sold {
		if e.Order == "" {
			continue
		}
		if sales[e.Order] == nil {
			orders = append(orders, e.Order)
		}
		sales[e.Order] = append(sales[e.Order], e)
	}
	var found examples
	for _, order := range orders {
		if s := sales[order]; len(s) > 1 {
			found.add("item %d: order %s was deducted %d times: request %s %s, request %s %s", it.id, order, len(s),
				name(s[0].Op), s[0].left(), name(s[1].Op), s[1].left())
		}
	}
	r.findings = found.findings("item %d: %d orders were deducted more than once", it.id, found.count)
	r.figures.Duplicates = found.count
	if !it.finalRead {
		return r
	}

	accounted, largest := it.accounted(sales)
	gone := it.available() - it.final
	if extra := gone - it.leaked() - accounted; extra > 0 {
		again := (extra + largest - 1) / largest
		r.figures.Duplicates += again
		r.find("item %d: units gone beyond all orders: %d (at least %d orders were deducted again on a retry)",
			it.id, extra, again)
	}
	return r
}

// accounted sums the units that all orders may have taken, each once however often it was tried. It also returns the
// count of the largest request with an unknown outcome, at least 1.
func (it *item) accounted(sales map[string][]effect) (units, largest int64) {
	units, largest = it.soldUnits, 1
	open := map[string]int64{} // by order
	for _, op := range it.unknown {
		switch {
		case op.Order == "":
			units += op.Count
		case sales[op.Order] == nil:
			open[op.Order] = max(open[op.Order], op.Count)
		}
		largest = max(largest, op.Count)
	}
	for _, count := range open {
		units += count
	}
	return units, largest
}
