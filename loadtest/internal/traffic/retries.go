package traffic

import (
	"context"
	"slices"
	"sync"

	"stock/loadtest/internal/history"
)

// laterAfter is how many requests of a client wait until it sends the oldest of them again.
const laterAfter = 2

// howAgain says how the n-th request is sent again; empty: it is not. It changes with every second request, because
// every second one may be an order.
func howAgain(n int) string {
	return [...]string{history.AtOnce, history.InFlight, history.Later, ""}[n/2%4]
}

// closedLoopOfPairs is a closed loop of pairs of clients. In each, one client sends the load, and what follows an
// answer. The other sends what is to be in flight together with a request of the first. So only half of Users send the
// load.
func (r *run) closedLoopOfPairs(ctx context.Context, send func(*pair, context.Context)) {
	pairs := len(r.users) / 2
	var wg sync.WaitGroup
	for i := range pairs {
		p := pair{customer: &r.users[i], other: &r.users[pairs+i]}
		wg.Go(func() { send(&p, ctx) })
	}
	wg.Wait()
}

// pair is two clients, and the requests that they will send again later.
type pair struct {
	customer, other *user
	later           []history.Op
}

func (p *pair) send(ctx context.Context) {
	r := p.customer.run
	for {
		n, ok := r.take(ctx)
		if !ok {
			break
		}
		op := p.customer.op(n)
		op.Name = r.load.name(n)
		p.sendOne(ctx, op, howAgain(n))
		r.load.countAnswered()
		if len(p.later) > laterAfter {
			p.sendLater(ctx)
		}
	}
	for len(p.later) > 0 && ctx.Err() == nil {
		p.sendLater(ctx)
	}
}

// sendOne sends a request, and again as how says.
func (p *pair) sendOne(ctx context.Context, op history.Op, how string) {
	var wg sync.WaitGroup
	if how == history.InFlight {
		wg.Go(func() { p.other.sendAgain(ctx, op, how) })
	}
	p.customer.deduct(ctx, op)
	wg.Wait()
	switch how {
	case history.AtOnce:
		p.customer.sendAgain(ctx, op, how)
	case history.Later:
		p.later = append(p.later, op)
	}
}

// sendLater sends the oldest of the requests that are to be sent again later.
func (p *pair) sendLater(ctx context.Context) {
	p.customer.sendAgain(ctx, p.later[0], history.Later)
	p.later = slices.Delete(p.later, 0, 1)
}

// sendAgain sends a request of a load with Keys once more.
func (u *user) sendAgain(ctx context.Context, op history.Op, how string) {
	u.again++
	u.deduct(ctx, history.Op{
		Kind:       op.Kind,
		Client:     u.number,
		Name:       op.Name,
		GoodsID:    op.GoodsID,
		Count:      op.Count,
		Buyer:      op.Buyer,
		BuyerLimit: op.BuyerLimit,
		Lines:      asked(op.Lines),
		Again:      true,
		How:        how,
	})
}

// asked returns the lines as they were sent, without their answers.
func asked(lines []history.Line) []history.Line {
	if lines == nil {
		return nil
	}
	unanswered := make([]history.Line, len(lines))
	for i, line := range lines {
		unanswered[i] = history.Line{GoodsID: line.GoodsID, Count: line.Count}
	}
	return unanswered
}
