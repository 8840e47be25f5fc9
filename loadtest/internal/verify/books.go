package verify

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"stock/loadtest/internal/history"
)

// books is a history sorted by item.
type books struct {
	run      history.Run
	end      *history.End // nil if the run was interrupted
	ops      []history.Op // requests of any kind
	ledger   []history.Entry
	items    []*item // by id
	byID     map[int64]*item
	requests int // deductions, orders and holds of the load
	outcomes map[history.Outcome]int

	cancelled map[string]*cancelled // by the name of the sale

	// Of a run of reservations.
	reservations []*reservation
	clock        serviceClock
	clockKnown   bool
}

// item is what is known of one item.
type item struct {
	id           int64
	initial      int64
	final        int64
	finalRead    bool
	seller       int64 // units in the store that sells, if final is from a store that is updated afterwards
	sellerRead   bool
	sellsNothing bool // sales are confirmed and, as claimed, not made
	reserves     bool // units are held first: those of a confirmed reservation are sold
	fenced       bool // each sale has a fencing token
	// The strategy does not say what remains. What it says about a restock is an estimate, too.
	omitsRemaining bool

	sold     []effect     // distinct sales: one that is reported twice is here once
	told     []effect     // those that report the remaining stock
	omitting []effect     // the others
	refused  []effect     // sold out
	unknown  []history.Op // deductions that may have happened
	restocks []history.Op // confirmed
	maybe    []history.Op // restocks that may have happened
	load     []history.Op // all deductions of the load, whatever their outcome
	again    []history.Op // deductions that were sent again

	// asked holds the units of each deduction with an unknown outcome, even if the outcome became known later.
	asked map[string]int64

	ledger     []history.Entry
	ledgerRead bool

	// Sums of units.
	soldUnits, unknownUnits, restocked, maybeRestocked int64

	taken   tally // units that may have been taken, by the earliest time
	putBack tally // units that were put back, by the latest time
}

// effect is an answer with the interval in which its cause must have happened. The interval begins when the deduction
// was first sent, because the answer to a retry may report what the first try did.
type effect struct {
	history.Op
	since, until int64
	index        int // of a sale: in item.sold
}

// openBooks sorts a history by item. An order is entered line by line, as a deduction from each of its items.
func openBooks(h *history.History) *books {
	b := &books{
		run: h.Run, end: h.End, ops: h.Ops, ledger: h.Ledger,
		byID: map[int64]*item{}, outcomes: map[history.Outcome]int{},
	}
	b.enterReservations()
	b.enterCancellations()
	for op := range b.deductions() {
		if op.Kind != history.Confirm && op.Kind != history.Cancel && op.Kind != history.Inspect {
			b.requests++
			b.outcomes[op.Outcome]++
		}
	}

	known := map[int64]bool{}
	for id := range h.Run.Initial {
		known[id] = true
	}
	ops, entries := map[int64][]*history.Op{}, map[int64][]history.Entry{}
	for i := range h.Ops {
		if one := &h.Ops[i]; !one.Sells() && one.Kind != history.Restock {
			continue
		}
		for _, op := range lineByLine(&h.Ops[i]) {
			ops[op.GoodsID] = append(ops[op.GoodsID], op)
			if !isRejected(op) {
				known[op.GoodsID] = true
			}
		}
	}
	for _, op := range slices.Concat(b.asOps(), b.cancelledOps()) {
		ops[op.GoodsID] = append(ops[op.GoodsID], op)
		known[op.GoodsID] = true
	}
	for _, entry := range h.Ledger {
		if entry.GoodsID == 0 {
			continue // a key that was cancelled before anything was known of it
		}
		entries[entry.GoodsID] = append(entries[entry.GoodsID], entry)
		known[entry.GoodsID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		it := newItem(id, h.Run, h.End)
		it.ledger = entries[id]
		it.enter(ops[id])
		b.items = append(b.items, it)
		b.byID[id] = it
	}
	return b
}

// deductions yields the deductions and orders of the load, and what was asked about reservations, without what was sent
// again.
func (b *books) deductions() iter.Seq[history.Op] { return b.sent(false) }

// again yields those that were sent again.
func (b *books) again() iter.Seq[history.Op] { return b.sent(true) }

func (b *books) sent(again bool) iter.Seq[history.Op] {
	return func(yield func(history.Op) bool) {
		for _, op := range b.ops {
			if op.Kind != history.Restock && op.Kind != history.CancelSale && op.Again == again && !yield(op) {
				return
			}
		}
	}
}

// isRejected reports whether the service rejected a request of the load: its item may not exist.
func isRejected(op *history.Op) bool { return op.Outcome == history.Rejected && !op.Again }

func newItem(id int64, run history.Run, end *history.End) *item {
	it := &item{
		id: id, sellsNothing: sellsNothing(run), reserves: reserves(run), fenced: run.Fenced,
		omitsRemaining: run.OmitsRemaining, asked: map[string]int64{},
	}
	var known bool
	it.initial, known = run.Initial[id]
	if end != nil {
		it.final, it.finalRead = end.Final[id]
		it.seller, it.sellerRead = end.Seller[id]
		it.ledgerRead = end.LedgerRead && known
	}
	return it
}

// enter sorts the item's requests by what they did.
func (it *item) enter(ops []*history.Op) {
	first := firstSent(ops)
	answered := firstAnswered(ops)
	entered := map[sale]int{} // index in it.sold
	for _, op := range ops {
		switch {
		case isRejected(op):
			continue
		case op.Kind == history.Restock:
			it.enterRestock(op)
			continue
		case op.Again:
			it.again = append(it.again, *op)
		default:
			it.load = append(it.load, *op)
		}
		if isRepeated(op, answered) {
			continue
		}
		e := effect{Op: *op, since: op.SentNS, until: op.ReceivedNS}
		if op.Name != "" {
			e.since = first[op.Name]
		}
		switch op.Outcome {
		case history.Sold:
			s := saleOf(op)
			if i, repeated := entered[s]; repeated && op.Name != "" {
				it.sold[i].until = min(it.sold[i].until, op.ReceivedNS)
				continue
			}
			e.index = len(it.sold)
			entered[s] = e.index
			it.sold = append(it.sold, e)
		case history.SoldOut:
			it.refused = append(it.refused, e)
		case history.Unknown:
			it.unknown = append(it.unknown, *op)
			it.asked[op.Name] = op.Count
		}
	}
	it.unknown = stillUnknown(it.unknown, it.again)
	it.total()
}

func (it *item) enterRestock(op *history.Op) {
	switch op.Outcome {
	case history.Sold:
		restock := *op
		if it.omitsRemaining { // it has counted the stock while others sold
			restock.Remaining = 0
		}
		it.restocks = append(it.restocks, restock)
	case history.Unknown:
		it.maybe = append(it.maybe, *op)
	}
}

// total derives what several checks need.
func (it *item) total() {
	for _, e := range it.sold {
		it.soldUnits += e.Count
		if e.OmitsRemaining {
			it.omitting = append(it.omitting, e)
		} else {
			it.told = append(it.told, e)
		}
	}
	it.unknownUnits, it.restocked, it.maybeRestocked = units(it.unknown), units(it.restocks), units(it.maybe)

	for _, e := range it.sold {
		it.taken.add(e.since, e.Count)
	}
	for _, op := range it.unknown {
		it.taken.add(op.SentNS, op.Count)
	}
	for _, op := range it.restocks {
		it.putBack.add(op.ReceivedNS, op.Count)
	}
	it.taken.sort()
	it.putBack.sort()
}

// firstSent returns when each deduction was first sent.
func firstSent(ops []*history.Op) map[string]int64 {
	first := map[string]int64{}
	for _, op := range ops {
		if op.Kind != history.Deduct || op.Name == "" {
			continue
		}
		if at, ok := first[op.Name]; !ok || op.SentNS < at {
			first[op.Name] = op.SentNS
		}
	}
	return first
}

// firstAnswered returns the deductions whose first answer, that they were sold, is on record.
func firstAnswered(ops []*history.Op) map[string]bool {
	answered := map[string]bool{}
	for _, op := range ops {
		if op.Kind == history.Deduct && !op.Replayed && op.Outcome == history.Sold {
			answered[op.Name] = true
		}
	}
	return answered
}

// isRepeated reports whether an answer repeats one that is on record, or repeats that nothing was deducted. The answer
// to a request that was sent again may be the first one.
func isRepeated(op *history.Op, answered map[string]bool) bool {
	switch op.Outcome {
	case history.Sold:
		return op.Replayed && answered[op.Name]
	case history.SoldOut:
		return op.Replayed
	}
	return false
}

// sale identifies a sale: equal answers for one deduction report the same sale.
type sale struct {
	deduction        string
	count, remaining int64
	omitting         bool
	token            uint64
	enteredNS        int64
	leftNS           int64
}

func saleOf(op *history.Op) sale {
	return sale{deduction: op.Name, count: op.Count, remaining: op.Remaining, omitting: op.OmitsRemaining, token: op.Token,
		enteredNS: op.EnteredNS, leftNS: op.LeftNS}
}

// stillUnknown returns the unknown requests whose deduction did not get its first answer when it was sent again.
func stillUnknown(unknown, again []history.Op) []history.Op {
	known := map[string]bool{}
	for _, op := range again {
		if op.Replayed && (decided(op) || op.Outcome == undeducted) {
			known[op.Name] = true
		}
	}
	var open []history.Op
	for _, op := range unknown {
		if !known[op.Name] {
			open = append(open, op)
		}
	}
	return open
}

func units(ops []history.Op) (sum int64) {
	for _, op := range ops {
		sum += op.Count
	}
	return sum
}

// neverRestocked reports whether the stock can only have fallen.
func (it *item) neverRestocked() bool { return len(it.restocks) == 0 && len(it.maybe) == 0 }

// left describes what a sale left behind.
func (e effect) left() string {
	if e.OmitsRemaining {
		return "does not say what it left"
	}
	return fmt.Sprintf("left %d", e.Remaining)
}

// name identifies a request in a finding, after the word "request".
func name(op history.Op) string {
	switch {
	case op.RequestID != "":
		return op.RequestID
	case op.Name != "":
		return op.Name
	}
	return fmt.Sprintf("of client %d", op.Client)
}
