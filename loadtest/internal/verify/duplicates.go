package verify

// duplicates finds deductions that were made more than once: those whose buyer was told of two different sales, and
// those that must exist because more units are gone than all deductions together asked for.
func (it *item) duplicates() (r result) {
	deductions, sales := it.byDeduction()
	for _, deduction := range deductions {
		if s := sales[deduction]; len(s) > 1 {
			r.findf("item %d: deduction %s was made %d times: request %s %s, request %s %s", it.id, deduction, len(s),
				name(s[0].Op), s[0].left(), name(s[1].Op), s[1].left())
		}
	}
	r.figures.Duplicates = r.findings
	if !it.finalRead {
		return r
	}

	accounted, largest := it.accounted(sales)
	gone := it.available() - it.final
	if extra := gone - it.leaked() - accounted; extra > 0 {
		again := (extra + largest - 1) / largest
		r.figures.Duplicates += again
		r.findf("item %d: units gone beyond all deductions: %d (at least %d deductions were made again on a retry)",
			it.id, extra, again)
	}
	return r
}

// byDeduction returns the sales by deduction, and the deductions in the order of their first sale.
func (it *item) byDeduction() (deductions []string, sales map[string][]effect) {
	sales = map[string][]effect{}
	for _, e := range it.sold {
		if e.Name == "" {
			continue
		}
		if sales[e.Name] == nil {
			deductions = append(deductions, e.Name)
		}
		sales[e.Name] = append(sales[e.Name], e)
	}
	return deductions, sales
}

// accounted sums the units that all deductions may have taken, each once however often it was tried. It also returns
// the count of the largest request with an unknown outcome, at least 1.
func (it *item) accounted(sales map[string][]effect) (units, largest int64) {
	units, largest = it.soldUnits, 1
	open := map[string]int64{} // by name
	for _, op := range it.unknown {
		switch {
		case op.Name == "":
			units += op.Count
		case sales[op.Name] == nil:
			open[op.Name] = max(open[op.Name], op.Count)
		}
		largest = max(largest, op.Count)
	}
	for _, count := range open {
		units += count
	}
	return units, largest
}
