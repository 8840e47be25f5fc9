package stock

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Bounds of a goods' queue in one replica.
const (
	// maxBatch bounds how long a row is locked for one replica while another waits for it, and the length of a statement.
	maxBatch = 256
	// maxWaiting is four batches. Whoever comes later is refused at once: the others' time would be over before its turn.
	maxWaiting = 4 * maxBatch
)

// batchQueue gathers the requests of each goods into batches, one batch a goods at a time. It has no goroutine of its own:
// the first to come carries out its batch and then calls the next in the line, which carries out all that have come
// meanwhile. What a caller does is thus bounded by one batch, and a goods without requests costs nothing.
type batchQueue struct {
	settle func(ctx context.Context, g *gathering) // closes a batch and sets every member's receipt or err; ctx is the leader's
	shards [64]batchShard                          // so that goods seldom share a mutex
}

type batchShard struct {
	mu    sync.Mutex
	lines map[int64]*line // of the goods that somebody leads
}

// line is who waits for the batch under way, in the order of arrival.
type line struct{ waiting []*order }

// order is a request in a line or in a batch. While it is in neither, it belongs to the goroutine that made it.
type order struct {
	Request
	ctx     context.Context
	section section
	called  chan call // has room for the one call to whoever waits

	receipt Receipt
	err     error
	row     *ledgerRow // where there is a ledger
}

// call ends the wait of an order.
type call int

const (
	answered call = iota // receipt and err are set
	leads                // it is the first of the next batch, which it carries out
)

func (q *batchQueue) shard(goodsID int64) *batchShard {
	return &q.shards[uint64(goodsID)%uint64(len(q.shards))]
}

func (q *batchQueue) deduct(ctx context.Context, req Request) (Receipt, error) {
	o := &order{Request: req, ctx: ctx, section: arrive()}
	shard := q.shard(o.GoodsID)
	first, err := shard.join(o)
	if err != nil {
		return Receipt{}, err
	}
	if first || o.wait(shard) == leads {
		q.lead(shard, o)
	}
	return o.receipt, o.err
}

// wait waits for the call, or leaves the line. Who has left the line is called soon: its batch is under way, or the next
// one is its own.
func (o *order) wait(shard *batchShard) call {
	select {
	case call := <-o.called:
		return call
	case <-o.ctx.Done():
		if shard.withdraw(o) {
			o.err = interrupted(context.Cause(o.ctx))
			return answered
		}
		return <-o.called
	}
}

// lead carries out the batch of an order and calls the next leader, whatever happens.
func (q *batchQueue) lead(shard *batchShard, o *order) {
	defer shard.handOn(o.GoodsID)
	g := &gathering{goodsID: o.GoodsID, shard: shard, members: []*order{o}}
	defer func() { answer(g.members[1:]) }()
	q.settle(o.ctx, g)
}

// gathering is a batch, from its leader's arrival on.
type gathering struct {
	goodsID   int64
	shard     *batchShard
	members   []*order // the leader first
	closed    bool
	undecided []*order // once it is closed
}

// alone says that the leader is the only member, and that nobody waits to join.
func (g *gathering) alone() bool {
	return len(g.members) == 1 && (g.closed || g.shard.waiting(g.goodsID) == 0)
}

// close takes in all who wait, and nobody any more. It returns the members who are undecided, without those whose requests
// have ended meanwhile: nothing has been sent for them, nor will be.
func (g *gathering) close() []*order {
	if !g.closed {
		g.closed = true
		g.members = append(g.members, g.shard.take(g.goodsID, maxBatch-1)...)
		refuse(g.members, errBroken)
		g.undecided = slices.Clone(g.members)
	}
	g.undecided = slices.DeleteFunc(g.undecided, func(o *order) bool {
		if o.ctx.Err() == nil {
			return false
		}
		o.err = interrupted(context.Cause(o.ctx))
		return true
	})
	return g.undecided
}

var errBroken = fmt.Errorf("%w: whoever carried out the batch panicked", ErrUnknown)

func answer(orders []*order) {
	for _, o := range orders {
		o.called <- answered
	}
}

// join puts an order at the end of its goods' line, or makes it the leader where there is none.
func (s *batchShard) join(o *order) (first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.lines[o.GoodsID]
	if !ok {
		if s.lines == nil {
			s.lines = map[int64]*line{}
		}
		s.lines[o.GoodsID] = &line{}
		return true, nil
	}
	if len(l.waiting) == maxWaiting {
		return false, fmt.Errorf("%w: %d requests for goods %d are waiting in this replica", ErrBusy, maxWaiting, o.GoodsID)
	}
	o.called = make(chan call, 1)
	l.waiting = append(l.waiting, o)
	return false, nil
}

// withdraw takes an order out of its line. It fails where the order has left the line already.
func (s *batchShard) withdraw(o *order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.lines[o.GoodsID]
	if !ok {
		return false
	}
	i := slices.Index(l.waiting, o)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// waiting is how many wait for the batch under way.
func (s *batchShard) waiting(goodsID int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.lines[goodsID]; ok {
		return len(l.waiting)
	}
	return 0
}

// take takes the first orders out of a line, up to most.
func (s *batchShard) take(goodsID int64, most int) []*order {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[goodsID]
	n := min(len(l.waiting), most)
	taken := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return taken
}

// handOn makes the first in the line the next leader. A line without anybody ends.
func (s *batchShard) handOn(goodsID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[goodsID]
	if len(l.waiting) == 0 {
		delete(s.lines, goodsID)
		return
	}
	next := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	next.called <- leads
}
