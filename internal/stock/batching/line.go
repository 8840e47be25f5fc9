package batching

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"stock/internal/stock"
)

// shard has the lines of some items. An item has a line while one of its requests leads.
type shard struct {
	mu    sync.Mutex
	lines map[int64]*line
}

// line holds the requests that wait for the batch under way, in the order of arrival.
type line struct{ waiting []*Member }

// signal ends the wait of a member.
type signal int

const (
	decided signal = iota // the outcome is set
	lead                  // the member is the first of the next batch and carries it out
)

// wait waits for the signal, or leaves the line if the request ends. A member that has left the line already is
// signalled soon: its batch is under way, or it leads the next one.
func (m *Member) wait(shard *shard) signal {
	select {
	case signal := <-m.signal:
		return signal
	case <-m.ctx.Done():
		if shard.withdraw(m) {
			m.Err = stock.Interrupted(context.Cause(m.ctx))
			return decided
		}
		return <-m.signal
	}
}

// join puts a member at the end of its item's line, or reports that it leads because there is no line.
func (s *shard) join(m *Member) (first bool, err error) {
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
	if len(l.waiting) == MaxWaiting {
		return false, fmt.Errorf("%w: %d requests for item %d are waiting in this replica",
			stock.ErrBusy, MaxWaiting, m.GoodsID)
	}
	m.signal = make(chan signal, 1)
	l.waiting = append(l.waiting, m)
	return false, nil
}

// withdraw removes a member from its line and reports whether it was still there.
func (s *shard) withdraw(m *Member) bool {
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

// take removes the first members from an item's line, up to most.
func (s *shard) take(goodsID int64, most int) []*Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[goodsID]
	n := min(len(l.waiting), most)
	taken := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return taken
}

// handOver makes the first member in the line the next leader, and removes an empty line.
func (s *shard) handOver(goodsID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[goodsID]
	if len(l.waiting) == 0 {
		delete(s.lines, goodsID)
		return
	}
	next := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	next.signal <- lead
}
