package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"stock/loadtest/internal/history"
)

// everything stands for all units of a sale.
const everything = 0

func cancelAll(p *pair)       { p.customer.cancel(p.ctx, p.op, everything) }
func cancelOne(p *pair)       { p.customer.cancel(p.ctx, p.op, 1) }
func otherCancelsAll(p *pair) { p.other.cancel(p.ctx, p.op, everything) }

// cancelHabits are what clients do with a sale, before they send it once more.
var cancelHabits = [][]step{
	{deduct},
	{deduct, cancelAll, otherCancelsAll},
	{deduct, cancelOne, func(p *pair) { p.other.cancel(p.ctx, p.op, 1) }},
	{together(otherCancelsAll, deduct)}, // before there is an answer
	{cancelAll, deduct},
	{deduct, together(otherCancelsAll, cancelOne)},
	{
		deduct, func(p *pair) { p.customer.cancel(p.ctx, p.op, p.op.Count+1) }, // more than was sold
		together(otherCancelsAll, cancelAll),
	},
}

// sellAndCancel sends the n-th sale, cancels some of it, and sends it again.
func (p *pair) sellAndCancel(n int) {
	p.take(n)
	p.follow(cancelHabits[n%len(cancelHabits)])
	sendAtOnce(p)
}

// cancel cancels so many units of a sale in all, and asks until it knows that they are.
func (u *user) cancel(ctx context.Context, op history.Op, units int64) {
	insist(ctx, func(int) bool {
		answer := u.cancelOnce(ctx, op, units)
		return answer.Outcome == history.Busy || answer.Outcome == history.Unknown
	})
}

func (u *user) cancelOnce(ctx context.Context, op history.Op, units int64) history.Cancellation {
	c := history.Cancellation{Client: u.number, Name: op.Name, GoodsID: op.GoodsID, Asked: units}
	body := fmt.Appendf(nil, `%s"goods_id":%d`, u.run.body, op.GoodsID)
	if units != everything {
		body = fmt.Appendf(body, `,"cancelled":%d`, units)
	}
	id := fmt.Appendf(nil, "%s-cancel-%d-%d", op.Name, u.number, len(u.cancellations))
	header := u.connection.server.header(http.MethodPost, "/stock/sales/"+url.PathEscape(op.Name)+"/cancel")
	sent, replied := u.exchange(ctx, header, id, nil, append(body, '}'))
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
	var reply callReply
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
