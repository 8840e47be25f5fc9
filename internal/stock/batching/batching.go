// Package batching gathers the requests for one item that wait in a replica into batches, so that they share one commit
// or one call.
//
// No timer collects requests and no goroutine runs in the background. The request that arrives first leads: it
// carries out its batch and then hands over to the next request in line, which carries out those that have arrived
// meanwhile, up to maxBatch. So the work of one caller is bounded by one batch, and an item without requests costs
// nothing.
package batching

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"stock/internal/monotonic"
	"stock/internal/stock"
)

// Bounds for one item in one replica.
const (
	// maxBatch bounds how long a row is locked for one replica while another waits for it, and the length of a
	// statement.
	maxBatch = 256
	// MaxWaiting is four batches. Further requests are refused at once: they would time out before they are served.
	MaxWaiting = 4 * maxBatch
)

// Queue lines up requests by item.
type Queue struct {
	// Run carries out a batch: it calls Close and decides on every undecided member or, without Close, refuses the
	// leader alone. ctx is the leader's.
	Run    func(ctx context.Context, b *Batch)
	shards [64]shard // so that items seldom share a mutex
}

// Deduct waits for the request's turn in its item's queue and returns what became of it.
func (q *Queue) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return q.Do(ctx, req, nil)
}

// Do is Deduct for a request that asks for more than a stock.Request can say, which is its detail.
func (q *Queue) Do(ctx context.Context, req stock.Request, detail any) (stock.Receipt, error) {
	m := &Member{Request: req, Detail: detail, ctx: ctx, section: stock.Arrive()}
	shard := q.shard(m.GoodsID)
	first, err := shard.join(m)
	if err != nil {
		return stock.Receipt{}, err
	}
	if first || m.wait(shard) == lead {
		q.lead(shard, m)
	}
	return m.receipt, m.Err
}

// lead carries out the batch of a member and hands over to the next leader, even if Run panics.
func (q *Queue) lead(shard *shard, m *Member) {
	defer shard.handOver(m.GoodsID)
	b := &Batch{GoodsID: m.GoodsID, shard: shard, members: []*Member{m}}
	returned := false
	defer func() {
		if !returned {
			b.RefuseAll(errPanicked) // a member that was granted may have been rolled back
		}
		for _, follower := range b.members[1:] {
			follower.signal <- decided
		}
	}()
	q.Run(m.ctx, b)
	returned = true
}

// Waiting counts the requests for an item that wait for the batch under way.
func (q *Queue) Waiting(goodsID int64) int {
	shard := q.shard(goodsID)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if l, ok := shard.lines[goodsID]; ok {
		return len(l.waiting)
	}
	return 0
}

// Lines counts the items that have a batch under way.
func (q *Queue) Lines() (lines int) {
	for i := range q.shards {
		q.shards[i].mu.Lock()
		lines += len(q.shards[i].lines)
		q.shards[i].mu.Unlock()
	}
	return lines
}

func (q *Queue) shard(goodsID int64) *shard {
	return &q.shards[uint64(goodsID)%uint64(len(q.shards))]
}

// Batch is the requests that are carried out together. Until Close, it is the leader alone.
type Batch struct {
	GoodsID int64
	// Undecided lists the members whose outcome the batch's transaction or call decides, in the order of arrival,
	// once the batch is closed.
	Undecided []*Member

	shard   *shard
	members []*Member // the leader first
}

// Member is a request in a batch.
type Member struct {
	stock.Request
	Detail    any   // what else the request asks for, and what else is answered; nil for a deduction
	Remaining int64 // units left, for a member whose Err is nil
	Err       error // nil for a member that was granted

	ctx     context.Context
	section stock.Section
	signal  chan signal // has room for the one signal to a member that waits
	receipt stock.Receipt
}

var errPanicked = fmt.Errorf("%w: the request that led the batch panicked", stock.ErrUnknown)

// Close adds the requests that wait, up to maxBatch in all, to the batch. The rest and later ones go into the next.
func (b *Batch) Close() {
	b.members = append(b.members, b.shard.take(b.GoodsID, maxBatch-1)...)
	b.Undecided = slices.Clone(b.members)
}

// Abandoned reports whether the requests of all undecided members have ended. Unlike DropCancelled, it looks no further
// than the first that has not.
func (b *Batch) Abandoned() bool {
	return !slices.ContainsFunc(b.Undecided, func(m *Member) bool { return m.ctx.Err() == nil })
}

// DropCancelled refuses the undecided members whose requests have ended, or end within the given time, and removes them
// from Undecided. Nothing was sent for them. It returns the time until the next of the others ends.
func (b *Batch) DropCancelled(within time.Duration) (left time.Duration) {
	now := time.Now()
	left = math.MaxInt64
	live := b.Undecided[:0]
	for _, m := range b.Undecided {
		own := time.Duration(math.MaxInt64)
		if deadline, ok := m.ctx.Deadline(); ok {
			own = deadline.Sub(now)
		}
		if m.ctx.Err() != nil || own < within {
			m.Refuse(stock.Interrupted(cmp.Or(context.Cause(m.ctx), context.DeadlineExceeded)))
			continue
		}
		live = append(live, m)
		left = min(left, own)
	}
	b.Undecided = live
	return left
}

// RefuseAll gives every member the same error, whether the batch is closed or not.
func (b *Batch) RefuseAll(err error) { refuse(b.members, err) }

// RefuseUndecided gives every undecided member the same error.
func (b *Batch) RefuseUndecided(err error) { refuse(b.Undecided, err) }

func refuse(members []*Member, err error) {
	for _, m := range members {
		m.Refuse(err)
	}
}

// Confirm makes the receipts of the members of Undecided that were granted. They share one critical section, of which
// only the time of the reply is known.
func (b *Batch) Confirm(attempts int) {
	now := monotonic.Now()
	for _, m := range b.Undecided {
		if m.Err == nil {
			m.section.EnterAt(now)
			m.receipt = m.section.Receipt(m.Remaining, attempts)
		}
	}
}

// Grant grants the member's request, which leaves units in stock.
func (m *Member) Grant(remaining int64) { m.Remaining, m.Err = remaining, nil }

// Refuse ends the member's request with an error.
func (m *Member) Refuse(err error) { m.receipt, m.Err = stock.Receipt{}, err }

// Answer ends the member's request with an outcome that is complete.
func (m *Member) Answer(receipt stock.Receipt, err error) { m.receipt, m.Err = receipt, err }

// Total is the number of units that members ask for.
func Total(members []*Member) (units int64) {
	for _, m := range members {
		units += int64(m.Count)
	}
	return units
}

// Allot grants units in the order of arrival to each member that asks for no more than are left, refuses the others as
// sold out, and returns the units left.
func Allot(members []*Member, units int64) int64 {
	for _, m := range members {
		if int64(m.Count) > units {
			m.Err = &stock.SoldOutError{GoodsID: m.GoodsID, Asked: m.Count, Remaining: units}
			continue
		}
		units -= int64(m.Count)
		m.Grant(units)
	}
	return units
}
