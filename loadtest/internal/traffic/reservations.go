package traffic

import (
	"context"
	"strconv"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

const (
	// comeAgainAfter is how long a buyer waits who was refused because the item is sold out.
	comeAgainAfter = 30 * time.Millisecond
	// mostHolds is how often a buyer asks for the units: for longer than any reservation of the others lasts.
	mostHolds = 25
	// certainlyLate is added to the time at which a reservation has expired.
	certainlyLate = 5 * time.Millisecond
)

func confirm(p *pair) { p.insist(history.Confirm) }
func cancel(p *pair)  { p.insist(history.Cancel) }
func inspect(p *pair) { p.insist(history.Inspect) }

// lapse waits until the reservation has certainly expired.
func lapse(p *pair) {
	monotonic.SleepUntil(p.ctx, p.held.ReceivedNS+p.held.TTLMS*int64(time.Millisecond)+int64(certainlyLate))
}

// almostLapse waits until the reservation is about to expire, so that what follows meets others that take it back.
func almostLapse(p *pair) {
	monotonic.SleepUntil(p.ctx, p.held.SentNS+p.held.TTLMS*int64(time.Millisecond))
}

// holdAgain sends the hold again, if it has a key.
func holdAgain(p *pair) {
	if p.held.Keyed {
		again := About(p.held, history.Hold, true)
		again.Reservation, again.Keyed = "", true
		p.customer.send(p.ctx, again)
	}
}

func otherCancels(p *pair) { p.other.send(p.ctx, About(p.held, history.Cancel, false)) }

// habits are what buyers do with the units that they hold. Those who do nothing let them expire.
var habits = [][]step{
	{confirm},
	{cancel},
	{},
	{lapse, confirm, inspect},
	{confirm, confirm},
	{cancel, cancel},
	{confirm, cancel},
	{cancel, confirm},
	{holdAgain, confirm, holdAgain},
	{},
	{together(otherCancels, confirm), inspect},
	{almostLapse, confirm, inspect},
	{inspect, cancel, holdAgain},
	{lapse, cancel, confirm},
}

// buy holds the units of the n-th request, and does with them what the n-th buyer does.
func (p *pair) buy(n int) {
	load := p.customer.run.load
	goodsID, count := load.Mix.At(n)
	ttl := load.HoldFor.Milliseconds()
	asked := history.Op{
		Kind: history.Hold, GoodsID: goodsID, Count: count, TTLMS: ttl + ttl*int64(n%5)/4, Keyed: n%2 == 0,
	}
	name := load.name(n)
	for try := range mostHolds {
		asked.Name = name + "-" + strconv.Itoa(try)
		p.held = p.hold(asked, n%4 == 0)
		switch p.held.Outcome {
		case history.Done:
			p.follow(habits[n%len(habits)])
			return
		case history.SoldOut, history.Busy:
			if monotonic.Sleep(p.ctx, comeAgainAfter) != nil {
				return
			}
		default:
			return
		}
	}
}

// hold sends a hold; if twice is set, the other client sends it at the same time. A client with a key asks until it
// knows what became of its request.
func (p *pair) hold(asked history.Op, twice bool) (held history.Op) {
	again := asked
	again.Again = true
	first := step(func(p *pair) { held = p.customer.send(p.ctx, asked) })
	if twice {
		first = together(func(p *pair) { p.other.send(p.ctx, again) }, first)
	}
	insist(p.ctx, func(try int) bool {
		if try == 0 {
			first(p)
		} else {
			held = p.customer.send(p.ctx, again)
		}
		return asked.Keyed && open(held)
	})
	return held
}

// insist sends a request about the reservation until the client knows what became of it.
func (p *pair) insist(kind string) {
	insist(p.ctx, func(try int) bool { return open(p.customer.send(p.ctx, About(p.held, kind, try > 0))) })
}

// open reports whether a client got no answer to its request, or was told to try again.
func open(answer history.Op) bool {
	return answer.Outcome == history.Busy || answer.Outcome == history.Unknown && answer.Error != history.Mismatch
}

// About is a request about a reservation.
func About(held history.Op, kind string, again bool) history.Op {
	return history.Op{
		Kind: kind, Name: held.Name, Reservation: held.Reservation, GoodsID: held.GoodsID, Count: held.Count,
		TTLMS: held.TTLMS, Again: again,
	}
}

// ReadReservations reads every reservation that a load has told of, and adds the answers to its result.
func (d *Driver) ReadReservations(ctx context.Context, load Load, result *Result) {
	known := map[string]bool{}
	var held []history.Op
	for _, op := range result.Ops {
		if id := op.Reservation; id != "" && !known[id] {
			known[id] = true
			held = append(held, op)
		}
	}
	r := newRun(d, load)
	r.eachUser(ctx, func(u *user) {
		for n := u.number; n < len(held) && ctx.Err() == nil; n += len(r.users) {
			u.send(ctx, About(held[n], history.Inspect, false))
		}
	})
	result.Ops = r.collect(result.Ops)
	result.sort()
}
