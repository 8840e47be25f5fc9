package explore

import (
	"slices"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
)

// workload is what the actors ask for.
type workload struct {
	name     string
	title    string
	stock    []int64 // units of each item
	requests []request
	// special is WithKey if the requests have one: their schedules have cells of their own.
	special string
	// faults can strike: those that can do more here than in the workloads before. So can crashes, with some strategies.
	faults  []string
	crashes func(load.Strategy) bool // nil: with none
	only    func(load.Strategy) bool // the strategies that it is for; nil: all that take its requests
	slow    bool                     // a quick search leaves it out
}

// request is what one actor asks for.
type request struct {
	kind  string         // history.Deduct, Order, Hold or CancelSale
	lines []history.Line // one, unless it is an order; GoodsID is the number of the item, from 0
	ends  string         // what the client asks for next: history.Confirm or Cancel; empty: nothing
	same  bool           // it is the first request once more, with the same key
}

func buy(count int64) request {
	return request{kind: history.Deduct, lines: []history.Line{{Count: count}}}
}

// line returns a line with the number of an item, from 0.
func line(item, count int64) history.Line { return history.Line{GoodsID: item, Count: count} }

func order(lines ...history.Line) request { return request{kind: history.Order, lines: lines} }

var oneOfEach = order(line(0, 1), line(1, 1))

func reserve(count int64, ends string) request {
	return request{kind: history.Hold, lines: []history.Line{{Count: count}}, ends: ends}
}

func cancelled(r request) request {
	r.ends = history.Cancel
	return r
}

var cancelFirst = request{kind: history.CancelSale, lines: []history.Line{{}}, same: true}

func again(r request) request {
	r.same = true
	return r
}

// crashes are the faults after which somebody does not know what became of a request, or is wrong about it.
var crashes = []string{LostRequest, LostReply, ReplicaDies, Promoted}

// workloads are those of all searches. What a fault does to the stock shows where there is enough for
// all. Where the stock is short, what matters is what one request is told while the other one goes on.
var workloads = []workload{
	{
		name: "one", title: "10 units; A buys 1", stock: []int64{10}, requests: []request{buy(1)},
		faults: []string{SentAgain, Restocked, StockSet}, crashes: writesBehind,
	},
	{
		name: "enough", title: "10 units; A buys 1, B buys 2", stock: []int64{10}, requests: []request{buy(1), buy(2)},
		faults:  []string{LeaseEnds, KeyGone},
		crashes: func(s load.Strategy) bool { return !writesBehind(s) },
	},
	{
		name: "last", title: "2 units; A buys 1, B buys 2", stock: []int64{2}, requests: []request{buy(1), buy(2)},
		faults:  []string{SentAgain, Restocked},
		crashes: func(s load.Strategy) bool { return !writesBehind(s) && !locks(s) },
	},
	{
		name: "too-many", title: "2 units; A buys 1, B asks for 3", stock: []int64{2}, requests: []request{buy(1), buy(3)},
	},
	{
		name: "orders", title: "3 units of item 1, 2 of item 2; A orders 1 of each, B orders 2 of item 2 and 1 of item 1",
		stock:    []int64{3, 2},
		requests: []request{oneOfEach, order(line(1, 2), line(0, 1))},
	},
	{
		name: "one-order", title: "10 units of two items; A orders 1 of each", stock: []int64{10, 10},
		requests: []request{oneOfEach}, crashes: func(load.Strategy) bool { return true },
	},
	{
		name: "order-late", title: "10 units of two items; A orders 1 of each, B buys 2 of item 2", stock: []int64{10, 10},
		only:     func(s load.Strategy) bool { return s.Claim.HolderCrash == "blocks-until-lease-ends" },
		requests: []request{oneOfEach, {kind: history.Deduct, lines: []history.Line{line(1, 2)}}},
		faults:   []string{LeaseEnds},
	},
	{
		name: "one-key", title: "10 units; A buys 1, with a key", stock: []int64{10}, requests: []request{buy(1)},
		special: WithKey, faults: []string{SentAgain, StockSet}, slow: true,
	},
	{
		name: "two-keys", title: "2 units; A buys 1, B buys 2, each with a key", stock: []int64{2},
		requests: []request{buy(1), buy(2)}, special: WithKey, slow: true,
	},
	{
		name: "same-key", title: "10 units; A buys 1, and sends its request to both replicas at once", stock: []int64{10},
		requests: []request{buy(1), again(buy(1))}, special: WithKey,
		faults: []string{LostReply, ReplicaDies},
	},
	{
		name: "same-order", title: "10 units of two items; A orders 1 of each, at both replicas at once",
		stock:    []int64{10, 10},
		requests: []request{oneOfEach, again(oneOfEach)}, special: WithKey, slow: true,
	},
	{
		name: "cancel-sale", title: "10 units; A buys 1 and then cancels the sale, which B cancels at any time",
		stock: []int64{10}, requests: []request{cancelled(buy(1)), cancelFirst}, special: WithKey,
		slow:    true,
		crashes: func(s load.Strategy) bool { return !writesBehind(s) && !locks(s) },
	},
	{
		name: "sold-again", title: "10 units; A buys 1 and then cancels the sale, and B sends A's first request at any time",
		stock: []int64{10}, requests: []request{cancelled(buy(1)), again(buy(1))}, special: WithKey,
		slow: true,
	},
	{
		name: "confirm", title: "2 units; A holds 1 and confirms, B holds 2 and confirms", stock: []int64{2},
		requests: []request{reserve(1, history.Confirm), reserve(2, history.Confirm)},
		faults:   []string{TimeOver, LostReply, ReplicaDies},
	},
	{
		name: "hold", title: "10 units; A holds 1 and cancels", stock: []int64{10},
		requests: []request{reserve(1, history.Cancel)}, faults: []string{StockSet},
	},
	{
		name: "cancel", title: "2 units; A holds 1 and cancels, B buys 2", stock: []int64{2},
		requests: []request{reserve(1, history.Cancel), buy(2)},
		faults:   []string{TimeOver, LostReply, ReplicaDies},
	},
	{
		name: "same-hold", title: "2 units; A holds 1, and sends its request to both replicas at once",
		stock: []int64{2}, requests: []request{reserve(1, ""), again(reserve(1, history.Confirm))},
		special: WithKey, faults: []string{TimeOver},
	},
	{
		name: "three", title: "10 units; A buys 1, B buys 2, C buys 3", stock: []int64{10},
		requests: []request{buy(1), buy(2), buy(3)}, faults: append([]string{LeaseEnds, KeyGone}, crashes...),
	},
	{
		name: "three-last", title: "3 units; A buys 1, B buys 2, C buys 3", stock: []int64{3},
		requests: []request{buy(1), buy(2), buy(3)}, faults: crashes,
	},
}

// suits reports whether a strategy takes the requests.
func (w workload) suits(s load.Strategy, store string) bool {
	for _, r := range w.requests {
		if r.kind == history.Hold && !takesHolds(s, store) || r.kind == history.Order && !takesOrders(s, store) ||
			r.same && !s.Idempotent {
			return false
		}
	}
	return (w.special != WithKey || s.Idempotent) && (w.only == nil || w.only(s))
}

func takesHolds(s load.Strategy, store string) bool {
	return slices.Contains(s.Reservations, store)
}

func takesOrders(s load.Strategy, store string) bool { return slices.Contains(s.Orders, store) }

// writesBehind reports whether it takes seconds until another replica finds the sales of one that has died. So crashes
// strike with one request only.
func writesBehind(s load.Strategy) bool { return s.WriteBehind }

// locks reports whether a request has a lock for itself. Nobody reads the stock meanwhile, so a crash is the same
// whether the stock is short or not.
func locks(s load.Strategy) bool {
	return slices.Contains([]string{"blocks-until-lease-ends", "blocks-forever", "unlocks"}, s.Claim.HolderCrash)
}

// workloadsOf lists the workloads of a search for a number of requests: with three, all have three.
func workloadsOf(requests int) []workload {
	return slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool {
		return (len(w.requests) > 2) != (requests > 2)
	})
}

// known returns the workload with a name.
func known(name string) (w workload, ok bool) {
	at := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if at < 0 {
		return w, false
	}
	return workloads[at], true
}

// Names lists the names of the workloads.
func Names() []string { return namesOf(func(workload) bool { return true }) }

// QuickNames lists the names of those of a quick search.
func QuickNames() []string { return namesOf(func(w workload) bool { return !w.slow }) }

func namesOf(wanted func(workload) bool) (names []string) {
	for _, w := range workloads {
		if wanted(w) {
			names = append(names, w.name)
		}
	}
	return names
}

// strikes returns the faults of the table that can strike.
func (w workload) strikes(s load.Strategy) (faults []fault) {
	for _, f := range faultTable {
		crash := w.crashes != nil && w.crashes(s) && slices.Contains(crashes, f.name)
		if crash || slices.Contains(w.faults, f.name) {
			faults = append(faults, f)
		}
	}
	return faults
}
