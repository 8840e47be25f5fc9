package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"stock/loadtest/internal/history"
)

// books are what is known of one goods.
type books struct {
	id             int64
	initial, final int64
	read           bool // whether somebody read final
	seller         int64
	sellerRead     bool // whether another store sold than the one of final, and somebody read it

	sold     []effect     // every distinct sale; an answer told again is not a second one
	refused  []effect     // sold out
	busy     []effect     // gave up waiting: nothing happened
	unknown  []history.Op // deductions that may have happened
	restocks []history.Op // put back for certain
	maybe    []history.Op // restocks that may have happened
	flights  []history.Op // every deduction, whatever its outcome, but for those that were sent again on purpose

	again      []history.Op     // what became of orders that were sent again on purpose
	unsure     map[string]int64 // units of orders with a request whose outcome is unknown, also where it became known later
	ledger     []history.Entry  // of this goods
	ledgerRead bool

	// sellsNothing says that sales are confirmed and not made, as promised: no stock has to answer for them.
	sellsNothing bool

	lost, leaked int64 // units; known after balance
}

// effect is an answer with the time in which what it tells of must have happened. A client that tries an order again may
// be told what the first try did, so this time begins when the order was first sent.
type effect struct {
	history.Op
	since, until int64
}

// order is one buyer's wish, however often it is sent.
type order struct {
	goods int64
	name  string
}

// sale is what makes a sale the same one when a buyer is told of it again.
type sale struct {
	order            order
	count, remaining int64
	untold           bool
	token            uint64
	enteredNS        int64
	leftNS           int64
}

// openBooks sorts a history into the books of its goods, in ascending order.
func openBooks(h *history.History) []*books {
	first := map[order]int64{} // when an order was first sent
	for _, op := range h.Ops {
		if op.Kind != history.Deduct || op.Order == "" {
			continue
		}
		o := order{op.GoodsID, op.Order}
		if at, ok := first[o]; !ok || op.SentNS < at {
			first[o] = op.SentNS
		}
	}

	byGoods := map[int64]*books{}
	book := func(id int64) *books {
		b := byGoods[id]
		if b == nil {
			b = &books{id: id, unsure: map[string]int64{}, initial: h.Run.Initial[id], sellsNothing: h.Run.Promise == PromiseSellsNothing}
			if h.End != nil {
				b.final, b.read = h.End.Final[id], has(h.End.Final, id)
				b.seller, b.sellerRead = h.End.Seller[id], has(h.End.Seller, id)
			}
			byGoods[id] = b
		}
		return b
	}
	for id := range h.Run.Initial {
		book(id)
	}
	if h.End != nil {
		for id, b := range byGoods {
			b.ledgerRead = h.End.LedgerRead && has(h.Run.Initial, id)
		}
	}
	for _, entry := range h.Ledger {
		b := book(entry.GoodsID)
		b.ledger = append(b.ledger, entry)
	}
	answered := map[order]bool{} // orders whose first answer is known
	for _, op := range h.Ops {
		if op.Kind == history.Deduct && !op.Replayed && op.Outcome == history.Sold {
			answered[order{op.GoodsID, op.Order}] = true
		}
	}
	told := map[sale]int{} // index of the sale among those of its goods
	for _, op := range h.Ops {
		if op.Outcome == history.Rejected && !op.Again {
			continue // the goods may not even exist
		}
		b := book(op.GoodsID)
		if op.Kind == history.Restock {
			switch op.Outcome {
			case history.Sold:
				b.restocks = append(b.restocks, op)
			case history.Unknown:
				b.maybe = append(b.maybe, op)
			}
			continue
		}
		if !op.Again {
			b.flights = append(b.flights, op)
		}
		if op.Again {
			b.again = append(b.again, op)
		}
		if b.oldNews(op, answered) {
			continue
		}
		e := effect{Op: op, since: op.SentNS, until: op.ReceivedNS}
		o := order{op.GoodsID, op.Order}
		if op.Order != "" {
			e.since = first[o]
		}
		switch op.Outcome {
		case history.Sold:
			s := sale{o, op.Count, op.Remaining, op.Untold, op.Token, op.EnteredNS, op.LeftNS}
			if i, again := told[s]; again && op.Order != "" {
				b.sold[i].until = min(b.sold[i].until, op.ReceivedNS)
				continue
			}
			told[s] = len(b.sold)
			b.sold = append(b.sold, e)
		case history.SoldOut:
			b.refused = append(b.refused, e)
		case history.Busy:
			b.busy = append(b.busy, e)
		case history.Unknown:
			b.unknown = append(b.unknown, op)
			b.unsure[op.Order] = op.Count
		}
	}
	for _, b := range byGoods {
		b.resolve()
	}

	all := make([]*books, 0, len(byGoods))
	for _, id := range sorted(byGoods) {
		all = append(all, byGoods[id])
	}
	return all
}

func has(m map[int64]int64, key int64) bool {
	_, ok := m[key]
	return ok
}

func units[T any](ops []T, count func(T) int64) (sum int64) {
	for _, op := range ops {
		sum += count(op)
	}
	return sum
}

func ofOp(op history.Op) int64 { return op.Count }
func ofEffect(e effect) int64  { return e.Count }

// onlyFell says that nothing was put back, so that the stock can only have fallen.
func (b *books) onlyFell() bool { return len(b.restocks) == 0 && len(b.maybe) == 0 }

// told returns the sales that tell what they left behind, untold the others.
func (b *books) told() []effect {
	return slices.DeleteFunc(slices.Clone(b.sold), func(e effect) bool { return e.Untold })
}

func (b *books) untold() []effect {
	return slices.DeleteFunc(slices.Clone(b.sold), func(e effect) bool { return !e.Untold })
}

// left is how evidence speaks of what a sale left behind.
func (e effect) left() string {
	if e.Untold {
		return "does not say what it left"
	}
	return fmt.Sprintf("left %d", e.Remaining)
}

// balance does the arithmetic: initial + restocked - sold must be final, give or take what is unknown.
func (b *books) balance(v *Verdict, wrong *findings) {
	sold, unknown := units(b.sold, ofEffect), units(b.unknown, ofOp)
	restocked, maybe := units(b.restocks, ofOp), units(b.maybe, ofOp)
	had := b.initial + restocked

	v.Initial += b.initial
	v.Sold += sold
	v.UnknownUnits += unknown
	v.Restocked += restocked
	below, lowest := b.soldBelowZero()
	v.DemandExceeded = v.DemandExceeded || sold+units(b.refused, ofEffect) > had || below > 0

	// What is put back later does not make up for it: those units were not there when they were sold.
	oversold := max(0, sold-had-maybe, below)
	v.Covered += sold - oversold
	if b.read {
		v.Final += b.final
	}
	v.Untouched = v.Untouched && b.read && b.final == b.initial
	if b.sellsNothing {
		if b.read && b.final != b.initial {
			wrong.add("goods %d: nothing was to be sold, but the stock of %d is %d now", b.id, b.initial, b.final)
		}
		return
	}
	v.Oversold += oversold
	if oversold > 0 {
		wrong.add("goods %d: units sold beyond the stock: %d (%d were sold out of %d)", b.id, oversold, sold, had+maybe)
	}
	if below > 0 {
		wrong.add("goods %d: request %s was told %d remaining", b.id, name(lowest.Op), lowest.Remaining)
	}
	if !b.read {
		return
	}
	if b.sellerRead && b.seller != b.final {
		wrong.add("goods %d: the store that sold has %d units, and the one that is told afterwards has %d", b.id, b.seller, b.final)
	}
	v.Good += max(0, min(sold-oversold, had-max(b.final, 0)))
	b.lost = max(0, b.final-(had+maybe-sold))
	b.leaked = max(0, had-b.final-sold-unknown)
	v.LostUpdates += b.lost
	v.Leaked += b.leaked
	if b.lost > 0 {
		wrong.add("goods %d: units sold but still in stock: %d (%d - %d should have left %d, but %d are there)",
			b.id, b.lost, had+maybe, sold, had+maybe-sold, b.final)
	}
	if b.leaked > 0 {
		wrong.add("goods %d: units gone that nobody was sold: %d (%d are gone, %d were sold, at most %d more may have been)",
			b.id, b.leaked, had-b.final, sold, unknown)
	}
}

// soldBelowZero counts the units that were sold while there were none, by what their buyers were told, and finds the sale that
// left the least. The baseline has no stock to speak of.
func (b *books) soldBelowZero() (units int64, lowest effect) {
	if b.sellsNothing {
		return 0, effect{}
	}
	for _, e := range b.told() {
		if e.Remaining < 0 {
			units += min(e.Count, -e.Remaining)
		}
		if e.Remaining < lowest.Remaining {
			lowest = e
		}
	}
	return units, lowest
}

// undersold finds the buyers who were refused although stock was certainly left for them, whatever the order of events. It
// also counts those who were turned away busy meanwhile, which is no lie, but no sale either.
func (b *books) undersold(v *Verdict, wrong *findings) {
	least := b.leastStock()
	found := 0
	for _, e := range b.refused {
		left := least(e)
		if b.onlyFell() {
			left = max(left, e.Remaining) // by its own answer
		}
		if left < e.Count {
			continue
		}
		v.Undersold++
		if found++; found <= examples {
			wrong.add("goods %d: request %s wanted %d and was refused while at least %d were left", b.id, name(e.Op), e.Count, left)
		}
	}
	if found > examples {
		wrong.add("goods %d: %d requests were refused while stock was left for them", b.id, found)
	}

	served := map[string]bool{} // orders that were sold in the end
	for _, e := range b.sold {
		served[e.Order] = e.Order != ""
	}
	for _, e := range b.busy {
		if !served[e.Order] && least(e) >= e.Count {
			v.TurnedAway++
		}
	}
}

// leastStock returns what tells the least stock that can have been there while a request was under way.
//
// It is all that had been put back before the request was sent, less every unit that may have been taken before its answer
// came. Where nothing was put back, it is also what is left in the end.
func (b *books) leastStock() func(effect) int64 {
	if !b.read {
		// Requests that the interruption cut off are not on record, and neither is what they took.
		return func(effect) int64 { return 0 }
	}
	var taken, back tally
	for _, e := range b.sold {
		taken.add(e.since, e.Count)
	}
	for _, op := range b.unknown {
		taken.add(op.SentNS, op.Count)
	}
	for _, op := range b.restocks {
		back.add(op.ReceivedNS, op.Count)
	}
	taken.sort()
	back.sort()
	return func(e effect) int64 {
		left := b.initial + back.until(e.since-1) - taken.until(e.until) - b.leaked
		if b.onlyFell() && b.lost == 0 {
			left = max(left, b.final)
		}
		return left
	}
}

// tally answers how many units there were up to a time.
type tally struct{ entries []entry }

type entry struct{ at, units int64 }

func (t *tally) add(at, units int64) { t.entries = append(t.entries, entry{at, units}) }

// sort makes the tally ready to be asked.
func (t *tally) sort() {
	slices.SortFunc(t.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(t.entries); i++ {
		t.entries[i].units += t.entries[i-1].units
	}
}

// until returns the units up to and including a time.
func (t *tally) until(at int64) int64 {
	i := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].at > at })
	if i == 0 {
		return 0
	}
	return t.entries[i-1].units
}

// duplicates finds the orders that were deducted more than once: those whose buyer was told of two different sales, and
// those that must exist because more units are gone than all orders together asked for.
func (b *books) duplicates(v *Verdict, wrong *findings) {
	sales := map[string][]effect{}
	var names []string // in the order in which they are met
	for _, e := range b.sold {
		if e.Order == "" {
			continue
		}
		if sales[e.Order] == nil {
			names = append(names, e.Order)
		}
		sales[e.Order] = append(sales[e.Order], e)
	}
	found := 0
	for _, order := range names {
		twice := sales[order]
		if len(twice) < 2 {
			continue
		}
		v.Duplicates++
		if found++; found <= examples {
			wrong.add("goods %d: order %s was deducted %d times: request %s %s, request %s %s", b.id, order,
				len(twice), name(twice[0].Op), twice[0].left(), name(twice[1].Op), twice[1].left())
		}
	}
	if found > examples {
		wrong.add("goods %d: %d orders were deducted more than once", b.id, found)
	}
	if !b.read {
		return
	}

	// An order that was tried again after an unknown outcome may account for its units once, not once a try.
	accounted := units(b.sold, ofEffect)
	open := map[string]int64{}
	largest := int64(1)
	for _, op := range b.unknown {
		switch {
		case op.Order == "":
			accounted += op.Count
		case sales[op.Order] == nil:
			open[op.Order] = max(open[op.Order], op.Count)
		}
		largest = max(largest, op.Count)
	}
	for _, count := range open {
		accounted += count
	}
	gone := b.initial + units(b.restocks, ofOp) - b.final
	if extra := gone - b.leaked - accounted; extra > 0 {
		orders := (extra + largest - 1) / largest
		v.Duplicates += orders
		wrong.add("goods %d: units gone beyond all orders: %d (at least %d orders were deducted again when they were tried again)",
			b.id, extra, orders)
	}
}

// clockSlack is by how much a critical section may seem to lie outside its own request: clocks are read one after the other.
const clockSlack = int64(time.Millisecond)

// entered says whether a critical section is on record.
func (e effect) entered() bool { return e.EnteredNS > 0 && e.LeftNS > e.EnteredNS }

// foreign adds the replicas that tell of critical sections outside of the requests that they belong to: their clock is not the
// lab's, as on another host. What such clocks read cannot be compared.
func (b *books) foreign(replicas map[string]bool) {
	for _, e := range b.sold {
		if e.entered() && (e.EnteredNS < e.since-clockSlack || e.LeftNS > e.until+clockSlack) {
			replicas[e.Replica] = true
		}
	}
}

// overlaps counts the pairs of critical sections that overlap in time, by sweeping over their ends. Touching is not
// overlapping, and a section without length overlaps nothing. Those of replicas with a foreign clock are left out.
func (b *books) overlaps(v *Verdict, foreign map[string]bool, found *findings) {
	type end struct {
		at      int64
		entered bool
		of      effect
	}
	var ends []end
	for _, e := range b.sold {
		if e.entered() && !foreign[e.Replica] {
			ends = append(ends, end{e.EnteredNS, true, e}, end{e.LeftNS, false, e})
		}
	}
	slices.SortStableFunc(ends, func(a, b end) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return cmp.Compare(side(a.entered), side(b.entered)) // who leaves goes first
	})
	var inside, pairs int64
	var last effect // the one that leaves last of all that have entered
	for _, e := range ends {
		if !e.entered {
			inside--
			continue
		}
		if pairs += inside; inside > 0 && len(*found) < examples {
			both := time.Duration(min(last.LeftNS, e.of.LeftNS) - e.at)
			found.add("goods %d: the critical sections of requests %s (%s) and %s (%s) overlap by %v",
				b.id, name(last.Op), last.Replica, name(e.of.Op), e.of.Replica, both)
		}
		inside++
		if e.of.LeftNS > last.LeftNS {
			last = e.of
		}
	}
	v.Overlaps += pairs
	if pairs > int64(len(*found)) {
		found.add("goods %d: %d pairs of critical sections overlap", b.id, pairs)
	}
}

func side(entered bool) int {
	if entered {
		return 1
	}
	return 0
}

// contended counts the requests that were sent while another one for the goods was in flight.
func (b *books) contended() int {
	flights := slices.Clone(b.flights)
	slices.SortFunc(flights, func(a, b history.Op) int { return cmp.Compare(a.SentNS, b.SentNS) })
	landed, n := int64(math.MinInt64), 0
	for _, op := range flights {
		if op.SentNS < landed {
			n++
		}
		landed = max(landed, op.ReceivedNS)
	}
	return n
}
