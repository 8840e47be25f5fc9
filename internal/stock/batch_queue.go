package stock

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jmoiron/sqlx"
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
	db     *sqlx.DB
	settle func(ctx context.Context, conn *sqlx.Conn, goodsID int64, orders []*order) // sets every order's receipt or err; ctx has no end
	shards [64]batchShard                                                             // so that goods seldom share a mutex
}

type batchShard struct {
	mu    sync.Mutex
	lines map[int64]*line // of the goods that somebody leads
}

// line is who waits for the batch under way, in the order of arrival.
type line struct{ waiting []*order }

// order is a request in a line or in a batch. While it is in neither, it belongs to the goroutine that made it.
type order struct {
	ctx     context.Context
	goodsID int64
	count   int
	section section

	called chan call // has room for the one call to whoever waits

	receipt Receipt
	err     error
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
	o := &order{ctx: ctx, goodsID: req.GoodsID, count: req.Count, section: arrive()}
	shard := q.shard(o.goodsID)
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
	defer shard.handOn(o.goodsID)
	// The wait for a connection comes first: it ends with the leader's own time, and whoever arrives meanwhile joins.
	conn, err := q.db.Connx(o.ctx)
	if err != nil {
		o.err = unsent(err)
		if o.ctx.Err() == nil { // the server's fault, not the leader's: the others would fare no better
			others := shard.take(o.goodsID, maxWaiting)
			refuse(others, o.err)
			answer(others)
		}
		return
	}
	defer conn.Close()
	batch := append([]*order{o}, shard.take(o.goodsID, maxBatch-1)...)
	refuse(batch, errBroken)
	defer answer(batch[1:])
	if sent := current(batch); len(sent) > 0 {
		q.settle(context.WithoutCancel(o.ctx), conn, o.goodsID, sent)
	}
}

func answer(orders []*order) {
	for _, o := range orders {
		o.called <- answered
	}
}

// join puts an order at the end of its goods' line, or makes it the leader where there is none.
func (s *batchShard) join(o *order) (first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.lines[o.goodsID]
	if !ok {
		if s.lines == nil {
			s.lines = map[int64]*line{}
		}
		s.lines[o.goodsID] = &line{}
		return true, nil
	}
	if len(l.waiting) == maxWaiting {
		return false, fmt.Errorf("%w: %d requests for goods %d are waiting in this replica", ErrBusy, maxWaiting, o.goodsID)
	}
	o.called = make(chan call, 1)
	l.waiting = append(l.waiting, o)
	return false, nil
}

// withdraw takes an order out of its line. It fails where the order has left the line already.
func (s *batchShard) withdraw(o *order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.lines[o.goodsID]
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
