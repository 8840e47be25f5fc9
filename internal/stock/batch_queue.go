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
type line struct{ waiting []*member }

// member is a request in a line or in a batch. While it is in neither, it belongs to the goroutine that made it.
type member struct {
	Request
	ctx     context.Context
	section section
	called  chan call // has room for the one call to whoever waits

	receipt Receipt
	err     error
	row     *ledgerRow // where there is a ledger
}

// call ends the wait of a member.
type call int

const (
	answered call = iota // receipt and err are set
	leads                // it is the first of the next batch, which it carries out
)

func (q *batchQueue) shard(goodsID int64) *batchShard {
	return &q.shards[uint64(goodsID)%uint64(len(q.shards))]
}

func (q *batchQueue) deduct(ctx context.Context, req Request) (Receipt, error) {
	m := &member{Request: req, ctx: ctx, section: arrive()}
	shard := q.shard(m.GoodsID)
	first, err := shard.join(m)
	if err != nil {
		return Receipt{}, err
	}
	if first || m.wait(shard) == leads {
		q.lead(shard, m)
	}
	return m.receipt, m.err
}

// wait waits for the call, or leaves the line. Who has left the line is called soon: its batch is under way, or the next
// one is its own.
func (m *member) wait(shard *batchShard) call {
	select {
	case call := <-m.called:
		return call
	case <-m.ctx.Done():
		if shard.withdraw(m) {
			m.err = interrupted(context.Cause(m.ctx))
			return answered
		}
		return <-m.called
	}
}

// lead carries out the batch of a member and calls the next leader, whatever happens.
func (q *batchQueue) lead(shard *batchShard, m *member) {
	defer shard.handOn(m.GoodsID)
	g := &gathering{goodsID: m.GoodsID, shard: shard, members: []*member{m}}
	defer func() { answer(g.members[1:]) }()
	q.settle(m.ctx, g)
}

// gathering is a batch, from its leader's arrival on.
type gathering struct {
	goodsID   int64
	shard     *batchShard
	members   []*member // the leader first
	undecided []*member // once it is closed
}

// close takes in all who wait, and nobody any more.
func (g *gathering) close() {
	g.members = append(g.members, g.shard.take(g.goodsID, maxBatch-1)...)
	refuse(g.members, errBroken)
	g.undecided = slices.Clone(g.members)
}

// live returns the members who are undecided, without those whose requests have ended meanwhile: nothing has been sent for
// them, nor will be.
func (g *gathering) live() []*member {
	g.undecided = slices.DeleteFunc(g.undecided, func(m *member) bool {
		if m.ctx.Err() == nil {
			return false
		}
		m.err = interrupted(context.Cause(m.ctx))
		return true
	})
	return g.undecided
}

var errBroken = fmt.Errorf("%w: whoever carried out the batch panicked", ErrUnknown)

func answer(members []*member) {
	for _, m := range members {
		m.called <- answered
	}
}

// join puts a member at the end of its goods' line, or makes it the leader where there is none.
func (s *batchShard) join(m *member) (first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.lines[m.GoodsID]
	if !ok {
		if s.lines == nil {
			s.lines = map[int64]*line{}
		}
		s.lines[m.GoodsID] = &line{}
		return true, nil
	}
	if len(l.waiting) == maxWaiting {
		return false, fmt.Errorf("%w: %d requests for goods %d are waiting in this replica", ErrBusy, maxWaiting, m.GoodsID)
	}
	m.called = make(chan call, 1)
	l.waiting = append(l.waiting, m)
	return false, nil
}

// withdraw takes a member out of its line. It fails where it has left the line already.
func (s *batchShard) withdraw(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.lines[m.GoodsID]
	if !ok {
		return false
	}
	i := slices.Index(l.waiting, m)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// take takes the first members out of a line, up to most.
func (s *batchShard) take(goodsID int64, most int) []*member {
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
