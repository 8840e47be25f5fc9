package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"stock/loadtest/internal/history"
)

// sell sends a load of sales, and cancels some of them. Then it sends the sale again.
func (p *pair) sell(ctx context.Context) {
	r := p.customer.run
	for {
		n, ok := r.take(ctx)
		if !ok {
			return
		}
		op := p.customer.op(n)
		op.Name = r.load.name(n)
		cancelHabits[n%len(cancelHabits)](p, ctx, op)
		p.customer.sendAgain(ctx, op, history.AtOnce)
		r.load.countAnswered()
	}
}

// everything stands for all units of a sale.
const everything = 0

// cancelHabits are what clients do with a sale, beside sending it twice.
var cancelHabits = []func(p *pair, ctx context.Context, op history.Op){
	func(p *pair, ctx context.Context, op history.Op) { p.customer.deduct(ctx, op) },
	func(p *pair, ctx context.Context, op history.Op) {
		p.customer.deduct(ctx, op)
		p.customer.cancel(ctx, op, everything)
		p.other.cancel(ctx, op, everything)
	},
	func(p *pair, ctx context.Context, op history.Op) {
		p.customer.deduct(ctx, op)
		p.customer.cancel(ctx, op, 1)
		p.other.cancel(ctx, op, 1)
	},
	func(p *pair, ctx context.Context, op history.Op) { // before there is an answer
		together(func() { p.other.cancel(ctx, op, everything) }, func() { p.customer.deduct(ctx, op) })
	},
	func(p *pair, ctx context.Context, op history.Op) {
		p.customer.cancel(ctx, op, everything)
		p.customer.deduct(ctx, op)
	},
	func(p *pair, ctx context.Context, op history.Op) {
		p.customer.deduct(ctx, op)
		together(func() { p.other.cancel(ctx, op, everything) }, func() { p.customer.cancel(ctx, op, 1) })
	},
	func(p *pair, ctx context.Context, op history.Op) {
		p.customer.deduct(ctx, op)
		p.customer.cancel(ctx, op, op.Count+1) // more than was sold
		together(func() { p.other.cancel(ctx, op, everything) }, func() { p.customer.cancel(ctx, op, everything) })
	},
}

func together(first, second func()) {
	var wg sync.WaitGroup
	wg.Go(first)
	second()
	wg.Wait()
}

// cancel cancels so many units of a sale in all, and asks until it knows that they are.
func (u *user) cancel(ctx context.Context, op history.Op, units int64) {
	for range mostAsked {
		answer := u.cancelOnce(ctx, op, units)
		if answer.Outcome != history.Busy && answer.Outcome != history.Unknown || !pause(ctx, askAgainAfter) {
			return
		}
	}
}

func (u *user) cancelOnce(ctx context.Context, op history.Op, units int64) history.Cancellation {
	c := history.Cancellation{Client: u.number, Name: op.Name, GoodsID: op.GoodsID, Asked: units}
	body := fmt.Appendf(nil, `%s"goods_id":%d`, u.run.body, op.GoodsID)
	if units != everything {
		body = fmt.Appendf(body, `,"cancelled":%d`, units)
	}
	id := fmt.Appendf(nil, "%s-cancel-%d-%d", op.Name, u.number, len(u.cancellations))
	header := u.connection.server.header(http.MethodPost, "/stock/sales/"+url.PathEscape(op.Name)+"/cancel")
	var sent history.Op
	request := appendRequest(nil, header, id, nil, append(body, '}'))
	replied := u.connection.exchange(ctx, request, u.run.load.Timeout, &sent)
	c.SentNS, c.ReceivedNS, c.Status = sent.SentNS, sent.ReceivedNS, sent.Status
	c.Outcome, c.Error = sent.Outcome, sent.Error
	if replied {
		readCancelled(&c, u.connection.reply.Body())
	}
	u.cancellations = append(u.cancellations, c)
	return c
}

// readCancelled records the answer to a cancellation.
func readCancelled(c *history.Cancellation, body []byte) {
	var reply struct {
		Type, Key, State string
		Lines            []struct {
			GoodsID   int64 `json:"goods_id"`
			Count     int64 `json:"count"`
			Cancelled int64 `json:"cancelled"`
			GivenBack int64 `json:"given_back"`
		}
	}
	malformed := json.Unmarshal(body, &reply) != nil
	switch {
	case c.Status == http.StatusOK && (malformed || reply.Key != c.Name || len(reply.Lines) > 1 ||
		len(reply.Lines) == 1 && reply.Lines[0].GoodsID != c.GoodsID):
		c.Outcome, c.Error = history.Unknown, history.Mismatch
	case c.Status == http.StatusOK:
		c.Outcome, c.State = history.Done, reply.State
		for _, line := range reply.Lines {
			c.Sold, c.Cancelled, c.GivenBack = line.Count, line.Cancelled, line.GivenBack
		}
	case reply.Type == history.ProblemMoreThanSold || reply.Type == history.ProblemUnknownSale:
		c.Outcome, c.Error = history.Refused, reply.Type
	default:
		c.Outcome, c.Error = classifyFailure(c.Status, reply.Type), cmp.Or(reply.Type, http.StatusText(c.Status))
	}
}

func (r *run) collectCancellations() (all []history.Cancellation) {
	for i := range r.users {
		all = append(all, r.users[i].cancellations...)
	}
	slices.SortStableFunc(all, func(a, b history.Cancellation) int { return cmp.Compare(a.SentNS, b.SentNS) })
	return all
}
