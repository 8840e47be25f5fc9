package traffic

import (
	"context"
	"slices"
	"sync"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

// pair is a customer with two clients: the first sends the load and what follows an answer, the second what is to be in
// flight together with a request of the first. So only half of Users send the load.
type pair struct {
	ctx             context.Context
	customer, other *user
	op              history.Op   // the request that it has taken
	later           []history.Op // those that it will send again
	held            history.Op   // the hold that was granted
}

// step is one of the things that a customer does with a request.
type step func(*pair)

// byPairs has pairs of clients take requests, and do with each what the customer who takes it does.
func (r *run) byPairs(ctx context.Context, do func(p *pair, n int)) {
	pairs := make([]pair, len(r.users)/2)
	for i := range pairs {
		pairs[i] = pair{ctx: ctx, customer: &r.users[i], other: &r.users[len(pairs)+i]}
	}
	r.loop(ctx, len(pairs), func(i, n int) {
		do(&pairs[i], n)
		r.load.countAnswered()
	})
	for i := range pairs {
		for len(pairs[i].later) > 0 && ctx.Err() == nil {
			pairs[i].sendLater()
		}
	}
}

// follow takes one step after the other until the load is cut off.
func (p *pair) follow(steps []step) {
	for _, step := range steps {
		if p.ctx.Err() == nil {
			step(p)
		}
	}
}

// take makes the n-th deduction or order the one that the steps are about.
func (p *pair) take(n int) {
	p.op = p.customer.op(n)
	p.op.Name = p.customer.run.load.name(n)
}

func deduct(p *pair) { p.customer.send(p.ctx, p.op) }

// together does two things at the same time. The second is the customer's.
func together(others, customers step) step {
	return func(p *pair) {
		var wg sync.WaitGroup
		wg.Go(func() { others(p) })
		customers(p)
		wg.Wait()
	}
}

const (
	// askAgainAfter is how long a client waits that does not know what became of its request.
	askAgainAfter = 50 * time.Millisecond
	// mostAsked is how often it asks.
	mostAsked = 40
)

// insist asks until the client knows what became of its request. ask returns false then.
func insist(ctx context.Context, ask func(try int) bool) {
	for try := range mostAsked {
		if !ask(try) || monotonic.Sleep(ctx, askAgainAfter) != nil {
			return
		}
	}
}

// laterAfter is how many requests of a client wait until it sends the oldest of them again.
const laterAfter = 2

// retryHabits are the ways in which requests are sent again.
var retryHabits = [][]step{
	{deduct, sendAtOnce},
	{together(func(p *pair) { p.other.sendAgain(p.ctx, p.op, history.InFlight) }, deduct)},
	{deduct, func(p *pair) { p.later = append(p.later, p.op) }},
	{deduct},
}

func sendAtOnce(p *pair) { p.customer.sendAgain(p.ctx, p.op, history.AtOnce) }

// retry sends the n-th request, and perhaps again. The way changes with every second request, because every second one
// may be an order.
func (p *pair) retry(n int) {
	p.take(n)
	p.follow(retryHabits[n/2%len(retryHabits)])
	if len(p.later) > laterAfter {
		p.sendLater()
	}
}

// sendLater sends the oldest of the requests that are to be sent again later.
func (p *pair) sendLater() {
	p.customer.sendAgain(p.ctx, p.later[0], history.Later)
	p.later = slices.Delete(p.later, 0, 1)
}

// sendAgain sends a request of a load with Keys once more.
func (u *user) sendAgain(ctx context.Context, op history.Op, how string) {
	u.send(ctx, history.Op{
		Kind:    op.Kind,
		Name:    op.Name,
		GoodsID: op.GoodsID,
		Count:   op.Count,
		Lines:   asked(op.Lines),
		Again:   true,
		How:     how,
	})
}

// asked returns the lines as they were sent, without their answers.
func asked(lines []history.Line) []history.Line {
	unanswered := slices.Clone(lines)
	for i, line := range lines {
		unanswered[i] = history.Line{GoodsID: line.GoodsID, Count: line.Count}
	}
	return unanswered
}
