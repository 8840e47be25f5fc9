package explore

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/traffic"
)

// workload is what the actors ask for.
type workload struct {
	name     string
	title    string
	stock    []int64 // units of each item
	requests []request
	applies  func(s scenario.Strategy, store string) bool // nil: to every strategy
	// claim is what a schedule without a fault tests, if it is another claim than that of all deductions.
	claim claimKind
	// faults can strike: those that can do more here than in the workloads before. So can crashes, with some strategies.
	faults  []string
	crashes func(scenario.Strategy) bool // nil: with none
}

// request is what one actor asks for.
type request struct {
	kind  string         // history.Deduct, Order or Hold
	lines []history.Line // one, unless it is an order; GoodsID is the number of the item, from 0
	ends  string         // what the client of a reservation asks for next: history.Confirm or Cancel; empty: nothing
	limit int64          // units that the buyer may have, who is the same in all requests with a limit
	same  bool           // it is the first request once more, with the same key
	twice bool           // when it is answered, the client asks for the same once more, with another key
}

func buy(count int64) request {
	return request{kind: history.Deduct, lines: []history.Line{{Count: count}}}
}

func order(lines ...history.Line) request { return request{kind: history.Order, lines: lines} }

func hold(count int64, ends string) request {
	return request{kind: history.Hold, lines: []history.Line{{Count: count}}, ends: ends}
}

func limited(r request, units int64) request {
	r.limit = units
	return r
}

func again(r request) request {
	r.same = true
	return r
}

func twice(r request) request {
	r.twice = true
	return r
}

// crashes are the faults after which somebody does not know what became of a request, or is wrong about it.
var crashes = []string{LostRequest, LostReply, ReplicaDies, Promoted}

// workloads are those of a search with two requests. What a fault does to the stock shows where there is enough for
// all. Where the stock is short, what matters is what one request is told while the other one goes on.
var workloads = []workload{
	{
		name: "one", title: "10 units; A buys 1", stock: []int64{10}, requests: []request{buy(1)},
		faults: []string{SentAgain, Restocked, StockSet}, crashes: writesBehind,
	},
	{
		name: "enough", title: "10 units; A buys 1, B buys 2", stock: []int64{10}, requests: []request{buy(1), buy(2)},
		faults:  []string{LeaseEnds, KeyGone},
		crashes: func(s scenario.Strategy) bool { return !writesBehind(s) },
	},
	{
		name: "last", title: "2 units; A buys 1, B buys 2", stock: []int64{2}, requests: []request{buy(1), buy(2)},
		faults:  []string{SentAgain, Restocked},
		crashes: func(s scenario.Strategy) bool { return !writesBehind(s) && !locks(s) },
	},
	{
		name: "too-many", title: "2 units; A buys 1, B asks for 3", stock: []int64{2}, requests: []request{buy(1), buy(3)},
	},
	{
		name: "orders", title: "3 units of item 1, 2 of item 2; A orders 1 of each, B orders 2 of item 2 and 1 of item 1",
		stock: []int64{3, 2}, applies: takesOrders,
		requests: []request{
			order(history.Line{GoodsID: 0, Count: 1}, history.Line{GoodsID: 1, Count: 1}),
			order(history.Line{GoodsID: 1, Count: 2}, history.Line{GoodsID: 0, Count: 1}),
		},
	},
	{
		name: "one-order", title: "10 units of two items; A orders 1 of each", stock: []int64{10, 10},
		requests: []request{order(history.Line{GoodsID: 0, Count: 1}, history.Line{GoodsID: 1, Count: 1})},
		applies:  takesOrders, crashes: func(scenario.Strategy) bool { return true },
	},
	{
		name: "order-late", title: "10 units of two items; A orders 1 of each, B buys 2 of item 2", stock: []int64{10, 10},
		applies: func(s scenario.Strategy, store string) bool {
			return s.Claim.HolderCrash == "blocks-until-lease-ends" && slices.Contains(s.Orders, store)
		},
		requests: []request{
			order(history.Line{GoodsID: 0, Count: 1}, history.Line{GoodsID: 1, Count: 1}),
			{kind: history.Deduct, lines: []history.Line{{GoodsID: 1, Count: 2}}},
		},
		faults: []string{LeaseEnds},
	},
	{
		name: "same-key", title: "10 units; A buys 1, and sends its request to both replicas at once", stock: []int64{10},
		requests: []request{buy(1), again(buy(1))}, applies: takesKeys,
		faults: []string{LostReply, ReplicaDies},
	},
	{
		name: "same-order", title: "10 units of two items; A orders 1 of each, at both replicas at once",
		stock: []int64{10, 10},
		applies: func(s scenario.Strategy, store string) bool {
			return s.Idempotent && slices.Contains(s.Orders, store)
		},
		requests: []request{
			order(history.Line{GoodsID: 0, Count: 1}, history.Line{GoodsID: 1, Count: 1}),
			again(order(history.Line{GoodsID: 0, Count: 1}, history.Line{GoodsID: 1, Count: 1})),
		},
	},
	{
		name: "limit", title: "10 units; a buyer who may have 1 buys 1 twice at once", stock: []int64{10},
		requests: []request{limited(buy(1), 1), limited(buy(1), 1)}, claim: claimLimit,
		faults:  []string{LostReply},
		applies: func(s scenario.Strategy, _ string) bool { return s.Claim.BuyerLimit != "" },
	},
	{
		name: "limit-later", title: "10 units; a buyer who may have 1 buys 1, and then another", stock: []int64{10},
		requests: []request{twice(limited(buy(1), 1))}, claim: claimLimit, faults: []string{StockSet},
		applies: func(s scenario.Strategy, _ string) bool { return s.Claim.BuyerLimit != "" },
	},
	{
		name: "confirm", title: "2 units; A holds 1 and confirms, B holds 2 and confirms", stock: []int64{2},
		requests: []request{hold(1, history.Confirm), hold(2, history.Confirm)}, applies: takesHolds,
		faults: []string{TimeOver, LostReply, ReplicaDies},
	},
	{
		name: "hold", title: "10 units; A holds 1 and cancels", stock: []int64{10},
		requests: []request{hold(1, history.Cancel)}, applies: takesHolds, faults: []string{StockSet},
	},
	{
		name: "cancel", title: "2 units; A holds 1 and cancels, B buys 2", stock: []int64{2},
		requests: []request{hold(1, history.Cancel), buy(2)}, applies: takesHolds,
		faults: []string{TimeOver, LostReply, ReplicaDies},
	},
	{
		name: "same-hold", title: "2 units; A holds 1, and sends its request to both replicas at once",
		stock: []int64{2}, requests: []request{hold(1, ""), again(hold(1, history.Confirm))}, applies: takesHolds,
		faults: []string{TimeOver},
	},
}

// threeRequests are the workloads of a search with three requests.
var threeRequests = []workload{
	{
		name: "three", title: "10 units; A buys 1, B buys 2, C buys 3", stock: []int64{10},
		requests: []request{buy(1), buy(2), buy(3)}, faults: append([]string{LeaseEnds, KeyGone}, crashes...),
	},
	{
		name: "three-last", title: "3 units; A buys 1, B buys 2, C buys 3", stock: []int64{3},
		requests: []request{buy(1), buy(2), buy(3)}, faults: crashes,
	},
}

func takesHolds(s scenario.Strategy, store string) bool {
	return slices.Contains(s.Reservations, store)
}

func takesOrders(s scenario.Strategy, store string) bool { return slices.Contains(s.Orders, store) }

// writesBehind reports whether it takes seconds until another replica finds the sales of one that has died. So crashes
// strike with one request only.
func writesBehind(s scenario.Strategy) bool { return s.WriteBehind }

// locks reports whether a request has a lock for itself. Nobody reads the stock meanwhile, so a crash is the same
// whether the stock is short or not.
func locks(s scenario.Strategy) bool {
	return slices.Contains([]string{"blocks-until-lease-ends", "blocks-forever", "unlocks"}, s.Claim.HolderCrash)
}

func takesKeys(s scenario.Strategy, _ string) bool { return s.Idempotent }

// workloadsOf lists the workloads of a search for a number of requests.
func workloadsOf(requests int) []workload {
	if requests > 2 {
		return threeRequests
	}
	return workloads
}

// known returns the workload with a name.
func known(name string) (w workload, ok bool) {
	all := slices.Concat(workloads, threeRequests)
	at := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
	if at < 0 {
		return w, false
	}
	return all[at], true
}

// strikes returns the faults of the table that can strike.
func (w workload) strikes(s scenario.Strategy) (faults []fault) {
	for _, f := range faultTable {
		crash := w.crashes != nil && w.crashes(s) && slices.Contains(crashes, f.name)
		if crash || slices.Contains(w.faults, f.name) {
			faults = append(faults, f)
		}
	}
	return faults
}

// answers are what clients were told.
type answers struct {
	ops   []history.Op
	calls []history.Call
}

// client sends the request of an actor, and tells each answer.
type client func(ctx context.Context, tell func(string)) (answers, error)

// holdTime is longer than a schedule takes. What ends it earlier is a fault.
const holdTime = 60_000 // milliseconds

// actors returns those of a schedule: first the requests, then what faults start.
func (x *session) actors(items []int64) (actors []*actor) {
	for n, r := range x.workload.requests {
		actors = append(actors, &actor{name: string(rune('A' + n)), replica: n, first: true, send: x.client(items, n, n, r)})
	}
	late := x.lane.late()
	return append(actors,
		&actor{name: againName, replica: late, send: x.client(items, 0, late, again(x.workload.requests[0]))},
		&actor{name: restockName, replica: late, send: x.restock(items[0])},
		&actor{name: setName, replica: late, send: x.setAnew(items[0])})
}

// client returns that of the n-th request, which it sends to a replica.
func (x *session) client(items []int64, n, at int, r request) client {
	if x.lane.subject != nil {
		return x.lane.subject.client(x.lane, items, n, at, r)
	}
	load := traffic.Load{
		Strategy: x.strategy.Name, Store: x.store, Keys: x.strategy.Idempotent, Timeout: clientTimeout,
	}
	if r.same {
		n = 0
	}
	url, name := x.lane.replicas[at].URL, fmt.Sprintf("%s-%c", requestPrefix(items[0]), 'A'+n)
	var lines []history.Line
	for _, line := range r.lines {
		lines = append(lines, history.Line{GoodsID: items[line.GoodsID], Count: line.Count})
	}
	first := lines[0]
	if r.kind == history.Hold {
		return holder(url, load, r.ends, history.Call{
			Kind: history.Hold, Name: name, GoodsID: first.GoodsID, Count: first.Count, TTLMS: holdTime,
			Keyed: x.workload.name == "same-hold", Again: r.same,
		})
	}
	op := history.Op{Kind: r.kind, Name: name, Client: n, Again: r.same && x.strategy.Idempotent, BuyerLimit: r.limit}
	if op.Again {
		op.How = history.InFlight
	}
	if r.limit > 0 {
		op.Buyer = requestPrefix(items[0])
	}
	if r.kind == history.Order {
		op.Lines = lines
	} else {
		op.GoodsID, op.Count = first.GoodsID, first.Count
	}
	return func(ctx context.Context, tell func(string)) (answers, error) {
		first, err := traffic.SendOne(ctx, url, load, op)
		tell(inWords(first.Outcome, first.Error))
		got := answers{ops: []history.Op{first}}
		if err == nil && r.twice {
			next := op
			next.Name += "-next"
			next, err = traffic.SendOne(ctx, url, load, next)
			tell(inWords(next.Outcome, next.Error))
			got.ops = append(got.ops, next)
		}
		return got, err
	}
}

// requestPrefix begins the names of all requests of a schedule.
func requestPrefix(item int64) string { return fmt.Sprintf("explore-%d", item) }

// holder returns a client who holds units, and then ends the reservation.
func holder(url string, load traffic.Load, ends string, call history.Call) client {
	return func(ctx context.Context, tell func(string)) (got answers, err error) {
		held, err := traffic.CallOne(ctx, url, load, call)
		tell(inWords(held.Outcome, held.Error))
		got.calls = append(got.calls, held)
		if err != nil || held.Outcome != history.Done || ends == "" {
			return got, err
		}
		ended, err := traffic.CallOne(ctx, url, load, traffic.About(held, ends, false))
		tell(ends + ": " + inWords(ended.Outcome, ended.Error))
		got.calls = append(got.calls, ended)
		return got, err
	}
}

func inWords(outcome history.Outcome, problem string) string {
	text := strings.ReplaceAll(string(outcome), "_", " ")
	if problem != "" {
		text += ": " + problem
	}
	return text
}

// restock returns a client who puts a unit back.
func (x *session) restock(item int64) client {
	return func(ctx context.Context, tell func(string)) (answers, error) {
		op := history.Op{Kind: history.Restock, Name: requestPrefix(item) + "-restock", GoodsID: item, Count: 1}
		op, err := traffic.RestockOne(ctx, x.lane.replicas[x.lane.late()].AdminURL, x.store, clientTimeout, op)
		tell(inWords(op.Outcome, op.Error))
		return answers{ops: []history.Op{op}}, err
	}
}

// Of a stock that is set during a schedule.
const (
	stockSet = "set" // the kind of the Op
	setTo    = 5     // units
)

// setAnew returns a client who sets the stock.
func (x *session) setAnew(item int64) client {
	return func(ctx context.Context, tell func(string)) (answers, error) {
		op := history.Op{Kind: stockSet, GoodsID: item, Count: setTo, SentNS: monotonic.Now(), Outcome: history.Sold}
		service := x.desk()
		service.Client = &http.Client{Timeout: clientTimeout}
		if err := service.SetStock(ctx, map[int64]int64{item: setTo}); err != nil {
			op.Outcome, op.Error = history.Unknown, err.Error()
		}
		op.ReceivedNS = monotonic.Now()
		tell(inWords(op.Outcome, op.Error))
		return answers{ops: []history.Op{op}}, nil
	}
}
