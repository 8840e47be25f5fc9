package traffic

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

// Reservations makes a Load of reservations out of one of deductions: every request of the mix is a buyer who holds the
// units, and then ends the reservation or leaves it. Buyers differ in what they do, and in how long they ask for.
type Reservations struct {
	TTL time.Duration // the shortest, in whole milliseconds; the longest is twice as long
	// Pairs makes every user a buyer who confirms at once, to measure how many do so in a second.
	Pairs bool
}

const (
	// comeAgainAfter is how long a buyer waits who was refused because the item is sold out.
	comeAgainAfter = 30 * time.Millisecond
	// mostHolds is how often a buyer asks for the units: for longer than any reservation of the others lasts.
	mostHolds = 25
	// askAgainAfter is how long a client waits that does not know what became of its request.
	askAgainAfter = 50 * time.Millisecond
	// mostAsked is how often it asks.
	mostAsked = 40
	// certainlyLate is added to the time at which a reservation has expired.
	certainlyLate = 5 * time.Millisecond
)

// buyer is a customer who takes one request of the mix, and what the customer knows of the reservation. A second client
// sends what is to be in flight together with another request.
type buyer struct {
	ctx             context.Context
	customer, other *user
	request         history.Call // the hold that was granted, or the last one
}

// habits are what buyers do with the units that they hold.
var habits = []func(*buyer){
	func(b *buyer) { b.insist(history.Confirm) },
	func(b *buyer) { b.insist(history.Cancel) },
	func(*buyer) {}, // lets it expire
	(*buyer).confirmLate,
	func(b *buyer) { b.insist(history.Confirm); b.insist(history.Confirm) },
	func(b *buyer) { b.insist(history.Cancel); b.insist(history.Cancel) },
	func(b *buyer) { b.insist(history.Confirm); b.insist(history.Cancel) },
	func(b *buyer) { b.insist(history.Cancel); b.insist(history.Confirm) },
	func(b *buyer) { b.holdAgain(); b.insist(history.Confirm); b.holdAgain() },
	func(*buyer) {},
	(*buyer).confirmAndCancel,
	(*buyer).confirmAtExpiry,
	func(b *buyer) { b.insist(history.Inspect); b.insist(history.Cancel); b.holdAgain() },
	(*buyer).cancelLate,
}

// sellReservations sends a load of reservations by pairs of clients, so that only half of Users are buyers, unless all
// of them only confirm.
func (r *run) sellReservations(ctx context.Context) {
	buyers, buy := len(r.users)/2, (*buyer).buy
	if r.load.Reservations.Pairs {
		buyers, buy = len(r.users), (*buyer).holdAndConfirm
	}
	var wg sync.WaitGroup
	for i := range buyers {
		b := &buyer{ctx: ctx, customer: &r.users[i], other: &r.users[len(r.users)-buyers+i]}
		wg.Go(func() {
			for {
				n, ok := r.take(ctx)
				if !ok {
					return
				}
				buy(b, n)
				r.load.countAnswered()
			}
		})
	}
	wg.Wait()
}

// holdAndConfirm holds the units of the n-th request, and confirms.
func (b *buyer) holdAndConfirm(n int) {
	load := b.customer.run.load
	goodsID, count := load.Mix.At(n)
	held := b.customer.call(b.ctx, history.Call{
		Kind: history.Hold, Name: load.name(n), GoodsID: goodsID, Count: count,
		TTLMS: load.Reservations.TTL.Milliseconds(),
	})
	if held.Outcome == history.Done {
		b.customer.call(b.ctx, About(held, history.Confirm, false))
	}
}

// buy holds the units of the n-th request, and does with them what the n-th buyer does.
func (b *buyer) buy(n int) {
	load := b.customer.run.load
	goodsID, count := load.Mix.At(n)
	ttl := load.Reservations.TTL.Milliseconds()
	ttl += ttl * int64(n%5) / 4
	for try := range mostHolds {
		name := load.name(n) + "-" + strconv.Itoa(try)
		asked := history.Call{
			Kind: history.Hold, Name: name, GoodsID: goodsID, Count: count, TTLMS: ttl, Keyed: n%2 == 0,
		}
		held := b.hold(asked, n%4 == 0)
		if held.Outcome == history.Done {
			b.request = held
			habits[n%len(habits)](b)
			return
		}
		if held.Outcome != history.SoldOut && held.Outcome != history.Busy ||
			!pause(b.ctx, comeAgainAfter) {
			return
		}
	}
}

// hold sends a hold; if twice is set, the other client sends it at the same time, which needs a key. A client with a
// key asks until it knows what became of its request.
func (b *buyer) hold(asked history.Call, twice bool) (held history.Call) {
	var wg sync.WaitGroup
	if twice && asked.Keyed {
		again := asked
		again.Again = true
		wg.Go(func() { b.other.call(b.ctx, again) })
	}
	held = b.customer.call(b.ctx, asked)
	wg.Wait()
	asked.Again = true
	for try := 1; asked.Keyed && open(held) && try < mostAsked && pause(b.ctx, askAgainAfter); try++ {
		held = b.customer.call(b.ctx, asked)
	}
	return held
}

// holdAgain sends the hold again, if it has a key.
func (b *buyer) holdAgain() {
	if b.request.Keyed {
		b.customer.call(b.ctx, history.Call{
			Kind: history.Hold, Name: b.request.Name, GoodsID: b.request.GoodsID, Count: b.request.Count,
			TTLMS: b.request.TTLMS, Keyed: true, Again: true,
		})
	}
}

// insist sends a request about the reservation until the client knows what became of it.
func (b *buyer) insist(kind string) {
	for try := range mostAsked {
		answer := b.customer.call(b.ctx, About(b.request, kind, try > 0))
		if !open(answer) || !pause(b.ctx, askAgainAfter) {
			return
		}
	}
}

// open reports whether a client got no answer to its request, or was told to try again.
func open(answer history.Call) bool {
	return answer.Outcome == history.Busy || answer.Outcome == history.Unknown && answer.Error != history.Mismatch
}

// About is a request about a reservation.
func About(held history.Call, kind string, again bool) history.Call {
	return history.Call{
		Kind: kind, Name: held.Name, Reservation: held.Reservation, GoodsID: held.GoodsID, Count: held.Count,
		TTLMS: held.TTLMS, Again: again,
	}
}

// lapsed is when the reservation has certainly expired, and atExpiry is when it may be about to.
func lapsed(held history.Call) int64 {
	return held.ReceivedNS + held.TTLMS*int64(time.Millisecond) + int64(certainlyLate)
}

func atExpiry(held history.Call) int64 { return held.SentNS + held.TTLMS*int64(time.Millisecond) }

func (b *buyer) confirmLate() {
	if monotonic.SleepUntil(b.ctx, lapsed(b.request)) {
		b.insist(history.Confirm)
		b.insist(history.Inspect)
	}
}

func (b *buyer) cancelLate() {
	if monotonic.SleepUntil(b.ctx, lapsed(b.request)) {
		b.insist(history.Cancel)
		b.insist(history.Confirm)
	}
}

// confirmAtExpiry confirms when the reservation expires, so that the confirmation meets others that take it back.
func (b *buyer) confirmAtExpiry() {
	if monotonic.SleepUntil(b.ctx, atExpiry(b.request)) {
		b.insist(history.Confirm)
		b.insist(history.Inspect)
	}
}

// confirmAndCancel sends both at the same time.
func (b *buyer) confirmAndCancel() {
	var wg sync.WaitGroup
	wg.Go(func() { b.other.call(b.ctx, About(b.request, history.Cancel, false)) })
	b.insist(history.Confirm)
	wg.Wait()
	b.insist(history.Inspect)
}

// pause returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	return monotonic.SleepUntil(ctx, monotonic.Now()+int64(d))
}

// ReadReservations reads every reservation that a load has told of, and adds the answers to its result.
func (d *Driver) ReadReservations(ctx context.Context, load Load, result *Result) {
	r := newRun(d, load)
	stopCutting := r.cutWith(ctx)
	defer stopCutting()
	known := map[string]bool{}
	var held []history.Call
	for _, call := range result.Calls {
		if id := call.Reservation; id != "" && !known[id] {
			known[id] = true
			held = append(held, call)
		}
	}
	var wg sync.WaitGroup
	for i := range r.users {
		wg.Go(func() {
			for n := i; n < len(held) && ctx.Err() == nil; n += len(r.users) {
				r.users[i].call(ctx, About(held[n], history.Inspect, false))
			}
		})
	}
	wg.Wait()
	result.Calls = r.collectCalls(result.Calls)
}

// reservationsResult completes the result of a load of reservations.
func (r *run) reservationsResult(ctx context.Context, result Result) Result {
	result.Calls = r.collectCalls(nil)
	result.Sent = min(int(r.next.Load()), cmp.Or(r.load.Requests, math.MaxInt))
	result.OutOfTime = r.load.Requests > 0 && ctx.Err() == nil && result.Sent < r.load.Requests
	return result
}

// collectCalls appends what the users recorded about reservations, in the sequence in which it was sent.
func (r *run) collectCalls(calls []history.Call) []history.Call {
	for i := range r.users {
		calls = append(calls, r.users[i].calls...)
		r.users[i].calls = nil
	}
	slices.SortStableFunc(calls, func(a, b history.Call) int { return cmp.Compare(a.SentNS, b.SentNS) })
	return calls
}

// call sends a request about reservations, and records it with its answer.
func (u *user) call(ctx context.Context, c history.Call) history.Call {
	c.Client = u.number
	id := fmt.Appendf(nil, "%s-%s-%d-%d", c.Name, c.Kind, u.number, len(u.calls))
	var key, body []byte
	if c.Keyed {
		key = []byte(c.Name)
	}
	if c.Kind == history.Hold {
		body = fmt.Appendf(nil, `%s"goods_id":%d,"count":%d,"ttl_ms":%d}`, u.run.body, c.GoodsID, c.Count, c.TTLMS)
	}
	var sent history.Op
	request := appendRequest(nil, u.run.callHeader(c), id, key, body)
	replied := u.connection.exchange(ctx, request, u.run.load.Timeout, &sent)
	c.SentNS, c.ReceivedNS, c.Status = sent.SentNS, sent.ReceivedNS, sent.Status
	c.Outcome, c.Error = sent.Outcome, sent.Error
	if replied {
		readCall(&c, &u.connection.reply)
	}
	u.calls = append(u.calls, c)
	return c
}
