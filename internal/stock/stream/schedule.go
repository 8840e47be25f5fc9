package stream

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// schedule knows which items have sales to write. It is safe for concurrent use.
type schedule struct {
	wake chan struct{} // has room for one: some item may be pending

	mu       sync.Mutex
	scans    int              // begun so far
	open     map[int64]int    // items that have a stream, as far as known here, and the scan when this was last known
	pending  map[int64]bool   // items that may have unread sales
	takeOver map[int64]string // items with entries to take over, and where to continue
	failed   map[int64]error  // why the sales of an item could not be written at the last try
	waiting  map[int64]bool   // items that wait for their row
}

func newSchedule() schedule {
	return schedule{
		wake: make(chan struct{}, 1),
		open: map[int64]int{}, pending: map[int64]bool{}, takeOver: map[int64]string{},
		failed: map[int64]error{}, waiting: map[int64]bool{},
	}
}

func (s *schedule) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// beginScan lists the items that have a stream, as far as known here: Redis may have lost the index.
func (s *schedule) beginScan() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scans++
	return slices.Collect(maps.Keys(s.open))
}

// notify makes an item pending. An item that failed waits for the next scan: if its master is silent, its buyers must
// not make everybody wait for that master over and over.
func (s *schedule) notify(goodsID int64) {
	s.mu.Lock()
	s.open[goodsID] = s.scans
	if s.failed[goodsID] == nil {
		s.pending[goodsID] = true
	}
	s.mu.Unlock()
	s.wakeUp()
}

// next takes up to itemsPerWrite pending items that do not wait for their row, in ascending order, so that replicas
// that write the same entries lock rows in the same order.
func (s *schedule) next() (ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.pending {
		if len(ids) == itemsPerWrite {
			s.wakeUp()
			break
		}
		if s.waiting[id] {
			continue
		}
		ids = append(ids, id)
		delete(s.pending, id)
	}
	slices.Sort(ids)
	return ids
}

// takeOvers returns the items with entries to take over, and where to continue.
func (s *schedule) takeOvers() map[int64]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.takeOver)
}

// continueFrom makes an item that may have more entries pending. The next read takes over overdue entries, beginning
// at the id in from; if from is empty, it reads new ones.
func (s *schedule) continueFrom(goodsID int64, from string) {
	s.mu.Lock()
	if delete(s.takeOver, goodsID); from != "" {
		s.takeOver[goodsID] = from
	}
	s.pending[goodsID] = true
	s.mu.Unlock()
	s.wakeUp()
}

// skip drops an item whose stream does not exist.
func (s *schedule) skip(goodsID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.takeOver, goodsID)
}

// setResult notes whether the last sales of an item were written.
func (s *schedule) setResult(goodsID int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.failed[goodsID] = err
		delete(s.pending, goodsID)
	case s.failed[goodsID] != nil:
		delete(s.failed, goodsID)
		s.pending[goodsID] = true // notify was ignored meanwhile
		s.wakeUp()
	}
}

func (s *schedule) beginWait(goodsID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[goodsID] = true
}

func (s *schedule) endWait(goodsID int64) {
	s.mu.Lock()
	delete(s.waiting, goodsID)
	s.mu.Unlock()
	s.wakeUp()
}

// update applies the result of a scan: the condition of the streams that could be asked, and why others could not. It
// returns the error of an item that failed, if there is one.
func (s *schedule) update(ids []int64, found map[int64]condition, silent error) (failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		switch stream, answered := found[id]; {
		case !answered:
			s.failed[id] = cmp.Or(s.failed[id], silent)
			delete(s.pending, id)
		case !stream.exists:
			delete(s.failed, id)
			if s.open[id] < s.scans { // otherwise a sale has opened it during the scan
				delete(s.open, id)
			}
		case stream.entries == 0:
			delete(s.failed, id)
			s.open[id] = s.scans
		default:
			s.open[id] = s.scans
			s.takeOver[id] = cmp.Or(s.takeOver[id], "0-0")
			s.pending[id] = true
		}
		failed = cmp.Or(failed, s.failed[id])
	}
	s.wakeUp()
	return failed
}
