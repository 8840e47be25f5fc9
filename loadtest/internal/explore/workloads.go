package explore

import (
	"slices"

	"stock/internal/contract"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/verify"
)

// workload is what the actors ask for.
type workload struct {
	name  string
	title string
	text  string // in the words of package contract
	// faults are those that can strike, without those that do no more here than in an earlier workload. crashes says
	// with which strategies crashes can strike, too.
	faults  []string
	crashes func(load.Strategy) bool // nil: with none
	only    func(load.Strategy) bool // the strategies that it is for; nil: all that take its requests
	slow    bool                     // a quick search leaves it out

	// What the text says.
	race     *contract.Race
	stock    []int64   // units of each item, at first
	requests []request // the race, if each client buys once; else nil
	// modelled reports whether the model of the API judges the schedules. Others are judged as a load is, which names
	// the damage of a strategy that is wrong.
	modelled bool
	special  string // WithKey if requests have one, or InARace: their schedules have cells of their own
}

// request is what one actor buys.
type request struct {
	kind  string         // history.Deduct or Order
	lines []history.Line // one, unless it is an order; GoodsID is the number of the item, from 0
	same  bool           // it is the first request once more, with the same key
}

func buy(count int64) request {
	return request{kind: history.Deduct, lines: []history.Line{{Count: count}}}
}

func again(r request) request {
	r.same = true
	return r
}

// read returns the workload with what its text says.
func (w workload) read() (workload, error) {
	r, err := contract.ParseRace(w.text)
	if err != nil {
		return w, err
	}
	w.race, w.modelled = &r, len(r.Clients) < 2
	for _, q := range r.Requests() {
		if q.Key != "" {
			w.special, w.modelled = WithKey, true
		}
		for _, l := range q.Lines {
			for n := len(w.stock); n <= int(l.Item-'a') && l.Item != 0; n++ {
				w.stock = append(w.stock, 0)
			}
			if q.Verb == contract.Set && w.stock[l.Item-'a'] == 0 {
				w.stock[l.Item-'a'] = l.Count
			}
		}
	}
	for _, client := range r.Clients {
		q := client[0]
		if len(client) > 1 || q.Verb != contract.Sell && q.Verb != contract.Order {
			w.requests, w.modelled = nil, true
			break
		}
		bought := request{kind: history.Deduct, same: w.requests != nil && q.Key != "" && q.Key == r.Clients[0][0].Key}
		if q.Verb == contract.Order {
			bought.kind = history.Order
		}
		for _, l := range q.Lines {
			bought.lines = append(bought.lines, history.Line{GoodsID: int64(l.Item - 'a'), Count: l.Count})
		}
		w.requests = append(w.requests, bought)
	}
	return w, nil
}

// race returns the workload of a race that was made up, or is the user's.
func race(text string) (w workload, err error) {
	w, err = workload{name: text, title: text, text: text, faults: []string{LostRequest, LostReply, ReplicaDies}}.read()
	w.special, w.modelled = InARace, true
	return w, err
}

// crashes are the faults after which somebody does not know what became of a request, or is wrong about it.
var crashes = []string{LostRequest, LostReply, ReplicaDies, Promoted}

// workloads are those of all searches. What a fault does to the stock shows where there is enough for
// all. Where the stock is short, what matters is what one request is told while the other one goes on.
var workloads = read([]workload{
	{
		name: "one", title: "10 units; A buys 1",
		text:   "set 10a / sell 1a",
		faults: []string{SentAgain, Restocked, StockSet}, crashes: writesBehind,
	},
	{
		name: "enough", title: "10 units; A buys 1, B buys 2",
		text:    "set 10a / sell 1a / sell 2a",
		faults:  []string{LeaseEnds, KeyGone},
		crashes: func(s load.Strategy) bool { return !writesBehind(s) },
	},
	{
		name: "last", title: "2 units; A buys 1, B buys 2",
		text:    "set 2a / sell 1a / sell 2a",
		faults:  []string{SentAgain, Restocked},
		crashes: func(s load.Strategy) bool { return !writesBehind(s) && !locks(s) },
	},
	{
		name: "too-many", title: "2 units; A buys 1, B asks for 3",
		text: "set 2a / sell 1a / sell 3a",
	},
	{
		name: "orders", title: "3 units of item 1, 2 of item 2; A orders 1 of each, B orders 2 of item 2 and 1 of item 1",
		text: "set 3a; set 2b / order 1a,1b / order 2b,1a",
	},
	{
		name: "one-order", title: "10 units of two items; A orders 1 of each",
		text: "set 10a; set 10b / order 1a,1b", crashes: func(load.Strategy) bool { return true },
	},
	{
		name: "order-late", title: "10 units of two items; A orders 1 of each, B buys 2 of item 2",
		text:   "set 10a; set 10b / order 1a,1b / sell 2b",
		only:   func(s load.Strategy) bool { return s.Claim.HolderCrash == "blocks-until-lease-ends" },
		faults: []string{LeaseEnds},
	},
	{
		name: "one-key", title: "10 units; A buys 1, with a key",
		text: "set 10a / sell 1a k", faults: []string{SentAgain, StockSet}, slow: true,
	},
	{
		name: "two-keys", title: "2 units; A buys 1, B buys 2, each with a key",
		text: "set 2a / sell 1a k / sell 2a l", slow: true,
	},
	{
		name: "same-key", title: "10 units; A buys 1, and sends its request to both replicas at once",
		text: "set 10a / sell 1a k / sell 1a k", faults: []string{LostReply, ReplicaDies},
	},
	{
		name: "same-order", title: "10 units of two items; A orders 1 of each, at both replicas at once",
		text: "set 10a; set 10b / order 1a,1b k / order 1a,1b k", slow: true,
	},
	{
		name: "cancel-sale", title: "10 units; A buys 1 and then cancels the sale, which B cancels at any time",
		text: "set 10a / sell 1a k; cancel k / cancel k", slow: true,
		crashes: func(s load.Strategy) bool { return !writesBehind(s) && !locks(s) },
	},
	{
		name: "sold-again", title: "10 units; A buys 1 and then cancels the sale, and B sends A's first request at any time",
		text: "set 10a / sell 1a k; cancel k / sell 1a k", slow: true,
	},
	{
		name: "confirm", title: "2 units; A holds 1 and confirms, B holds 2 and confirms",
		text: "set 2a / hold 1a x; confirm x / hold 2a y; confirm y", faults: []string{TimeOver, LostReply, ReplicaDies},
	},
	{
		name: "hold", title: "10 units; A holds 1 and cancels",
		text: "set 10a / hold 1a x; release x", faults: []string{StockSet},
	},
	{
		name: "cancel", title: "2 units; A holds 1 and cancels, B buys 2",
		text: "set 2a / hold 1a x; release x / sell 2a", faults: []string{TimeOver, LostReply, ReplicaDies},
	},
	{
		name: "same-hold", title: "2 units; A holds 1, and sends its request to both replicas at once",
		text: "set 2a / hold 1a x k / hold 1a x k; confirm x", faults: []string{TimeOver},
	},
	{
		name: "three", title: "10 units; A buys 1, B buys 2, C buys 3",
		text: "set 10a / sell 1a / sell 2a / sell 3a", faults: append([]string{LeaseEnds, KeyGone}, crashes...),
	},
	{
		name: "three-last", title: "3 units; A buys 1, B buys 2, C buys 3",
		text: "set 3a / sell 1a / sell 2a / sell 3a", faults: crashes,
	},
})

// read reads the texts of the workloads above.
func read(all []workload) []workload {
	for i, w := range all {
		var err error
		if all[i], err = w.read(); err != nil {
			panic(err)
		}
	}
	return all
}

// clients is how many requests begin at the same time.
func (w workload) clients() int { return len(w.race.Clients) }

// suits reports whether a strategy takes the requests.
func (w workload) suits(s load.Strategy, store string) bool {
	for _, q := range w.race.Requests() {
		if q.Key != "" && !s.Idempotent || q.Verb == contract.Hold && !takesHolds(s, store) ||
			q.Verb == contract.Order && !takesOrders(s, store) {
			return false
		}
	}
	restocks := slices.ContainsFunc(slices.Concat(w.race.Clients...), func(q contract.Request) bool {
		return q.Verb == contract.Restock
	})
	if restocks && (s.ClaimFor(2, true) != verify.ClaimCorrect || s.WriteThrough || s.WriteBehind) {
		return false
	}
	return w.only == nil || w.only(s)
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
		return (w.clients() > 2) != (requests > 2)
	})
}

// known returns the workload with a name, or the race that it describes.
func known(name string) (w workload, ok bool) {
	at := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if at >= 0 {
		return workloads[at], true
	}
	w, err := race(name)
	return w, err == nil && w.race.Clients != nil
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
	if w.special == InARace && writesBehind(s) {
		return nil // it would take seconds each time
	}
	for _, f := range faultTable {
		crash := w.crashes != nil && w.crashes(s) && slices.Contains(crashes, f.name)
		if crash || slices.Contains(w.faults, f.name) {
			faults = append(faults, f)
		}
	}
	return faults
}
