package verify

import (
	"stock/loadtest/internal/history"
)

// oldNews says that an answer tells of nothing that is not in the books: a sale again that is there already, or once more
// that nothing was deducted.
func (b *books) oldNews(op history.Op, answered map[order]bool) bool {
	switch {
	case op.Outcome == history.Sold:
		return op.Replayed && answered[order{op.GoodsID, op.Order}]
	case op.Outcome == history.Unknown:
		return false
	}
	return op.Again || op.Replayed
}

// resolve takes those requests off the unknown ones whose order got its first answer later: it is known what they did.
func (b *books) resolve() {
	known := map[string]bool{}
	for _, op := range b.again {
		if op.Replayed && (op.Outcome == history.Sold || op.Outcome == history.SoldOut) {
			known[op.Order] = true
		}
	}
	var open []history.Op
	for _, op := range b.unknown {
		if !known[op.Order] {
			open = append(open, op)
		}
	}
	b.unknown = open
}

// limited adds findings of one kind, the first few in full.
type limited struct {
	wrong *findings
	found int64
}

func (l *limited) add(format string, args ...any) {
	if l.found++; l.found <= examples {
		l.wrong.add(format, args...)
	}
}

// rest tells of the findings that were not shown.
func (l *limited) rest(format string, args ...any) {
	if l.found > examples {
		l.wrong.add(format, args...)
	}
}

// replays compares what orders were answered when they were sent again with their first answer.
func (b *books) replays(v *Verdict, wrong *findings) {
	first := map[string]history.Op{}
	note := func(op history.Op) {
		if _, known := first[op.Order]; !known && (op.Outcome == history.Sold || op.Outcome == history.SoldOut) {
			first[op.Order] = op
		}
	}
	for _, op := range b.flights {
		note(op)
	}
	unlike := limited{wrong: wrong}
	for _, op := range b.again {
		was, known := first[op.Order]
		switch {
		case op.Outcome == history.Rejected:
			unlike.add("goods %d: order %s was refused when it was sent again (%d %s)", b.id, op.Order, op.Status, op.Error)
		case op.Outcome != history.Sold && op.Outcome != history.SoldOut:
			// No answer, or that the first request is not through: that is no contradiction.
		case !known:
			note(op)
		case op.Outcome != was.Outcome || op.Remaining != was.Remaining:
			unlike.add("goods %d: order %s was told %s, %d remaining, and when it was sent again %s, %d remaining", b.id, op.Order,
				was.Outcome, was.Remaining, op.Outcome, op.Remaining)
		default:
			v.Replays++
		}
	}
	unlike.rest("goods %d: %d orders got another answer when they were sent again", b.id, unlike.found)
	v.Unlike += unlike.found
}

// audit compares the ledger with what the buyers were told, order by order, and with the stock. From the orders follow the
// sums: acknowledged ≤ ledger ≤ acknowledged + unknown.
func (b *books) audit(v *Verdict, wrong *findings) {
	if !b.ledgerRead {
		return
	}
	gaps := limited{wrong: wrong}
	taken := map[string]history.Entry{}
	sum := int64(0)
	for _, entry := range b.ledger {
		sum += entry.Count
		if entry.Count == 0 {
			continue // sold out
		}
		if _, twice := taken[entry.Order]; twice {
			gaps.add("goods %d: order %s is in the ledger more than once", b.id, entry.Order)
		}
		taken[entry.Order] = entry
	}
	sold := map[string]bool{}
	for _, e := range b.sold {
		sold[e.Order] = true
		switch entry, written := taken[e.Order]; {
		case !written:
			gaps.add("goods %d: order %s was sold, and is not in the ledger", b.id, e.Order)
		case entry.Count != e.Count || entry.Remaining != e.Remaining:
			gaps.add("goods %d: order %s was sold %d and told %d remaining, but the ledger says %d and %d", b.id, e.Order,
				e.Count, e.Remaining, entry.Count, entry.Remaining)
		}
	}
	for _, entry := range b.ledger {
		if entry.Count == 0 || sold[entry.Order] {
			continue
		}
		switch asked, unsure := b.unsure[entry.Order]; {
		case !unsure:
			gaps.add("goods %d: the ledger has %d units of order %s, which nobody was told to be sold", b.id, entry.Count, entry.Order)
		case entry.Count != asked:
			gaps.add("goods %d: the ledger has %d units of order %s, whose outcome is unknown, and which asked for %d", b.id,
				entry.Count, entry.Order, asked)
		}
	}
	gaps.rest("goods %d: %d orders are not in the ledger as their buyers were told", b.id, gaps.found)
	if b.read {
		had := b.initial + units(b.restocks, ofOp)
		if total, maybe := sum+b.final, units(b.maybe, ofOp); total < had || total > had+maybe {
			wrong.add("goods %d: the ledger's %d and the stock's %d are %d, and not the %d that there were", b.id, sum, b.final, total, had)
			gaps.found += max(had-total, total-had-maybe)
		}
	}
	v.LedgerGaps += gaps.found
}
