// Package share divides a pool of connections between the items that are sold.
//
// A request keeps its connection while it waits for the row of its item. If a row stays locked, the requests for that
// one item would soon have every connection, and nothing else could be sold.
//
// So an item may take one more connection only while it uses fewer than are free. One item in demand gets at most half
// of the pool, two get a third each, and some connections stay free for an item that nobody has asked for yet. The
// limit needs no configuration and follows the number of items in demand (A. K. Choudhury and E. L. Hahne, "Dynamic
// Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998).
package share

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

// Limiter counts the connections that are in use, in all and by key. A key is an item, or whatever else is to have a
// share of its own. A nil Limiter has no limit.
//
// While requests wait for a key, that key uses at least as many connections as are free. So a request for one key never
// overtakes another.
type Limiter struct {
	mu       sync.Mutex
	free     int
	used     map[int64]int    // connections by key, without zeros
	queues   map[int64]*queue // of the keys for which requests wait
	levels   []list.List      // levels[n] lists the queues of the keys that use n connections
	arrivals uint64
}

// queue holds the requests that wait for a key, in the order of arrival.
type queue struct {
	key     int64
	waiters list.List     // of *waiter
	place   *list.Element // in a level
}

// waiter is a request that waits. A request with several keys waits in one queue only, that of a key at its limit. When
// its turn comes, the other keys may each get one connection beyond the limit. Without that, the request could move
// from queue to queue for ever: of several keys in demand, one is nearly always at its limit.
type waiter struct {
	keys    []int64
	arrival uint64
	granted chan struct{} // closed when the request may go on
	queue   *queue        // nil once granted
	place   *list.Element // in the queue
}

// New returns a limiter for a pool of so many connections, or nil if the pool has no limit, which is 0.
func New(connections int) *Limiter {
	if connections == 0 {
		return nil
	}
	return &Limiter{
		free: connections, used: map[int64]int{}, queues: map[int64]*queue{}, levels: make([]list.List, connections+1),
	}
}

// TryAcquire takes one connection, which counts against each of the keys, and reports whether it did. The keys must
// differ.
func (l *Limiter) TryAcquire(keys ...int64) bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, limited := l.atLimit(keys, l.free); limited {
		return false
	}
	l.take(keys)
	return true
}

// Acquire is TryAcquire that waits, behind earlier requests for the same key. If ctx ends first, it returns ctx.Err().
// The caller must not have another connection: two such requests might wait for each other.
func (l *Limiter) Acquire(ctx context.Context, keys ...int64) error {
	if l.TryAcquire(keys...) {
		return nil
	}
	w := &waiter{keys: slices.Clone(keys), granted: make(chan struct{})}
	if !l.join(w) {
		return nil
	}
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	if l.leave(w) {
		return ctx.Err()
	}
	return nil // granted in the last moment
}

// Release gives back the connection that was taken for these keys, and grants it to a request that may have it.
func (l *Limiter) Release(keys ...int64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	for _, key := range keys {
		l.setUsed(key, l.used[key]-1)
	}
	if len(l.queues) > 0 {
		l.grant()
	}
}

// Waiting counts the requests that wait.
func (l *Limiter) Waiting() (n int) {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.queues {
		n += q.waiters.Len()
	}
	return n
}

// atLimit returns one of the keys that use at least so many connections.
func (l *Limiter) atLimit(keys []int64, limit int) (key int64, found bool) {
	for _, key := range keys {
		if l.used[key] >= limit {
			return key, true
		}
	}
	return 0, false
}

func (l *Limiter) take(keys []int64) {
	l.free--
	for _, key := range keys {
		l.setUsed(key, l.used[key]+1)
	}
}

// setUsed notes how many connections a key uses, and moves its queue to the level for that.
func (l *Limiter) setUsed(key int64, n int) {
	if q, ok := l.queues[key]; ok {
		l.levels[l.used[key]].Remove(q.place)
		q.place = l.levels[n].PushBack(q)
	}
	if n == 0 {
		delete(l.used, key) // or else every item ever sold would stay in the map
	} else {
		l.used[key] = n
	}
}

// join makes a request wait, or takes the connection if that is possible now, and reports whether it waits.
func (l *Limiter) join(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, limited := l.atLimit(w.keys, l.free)
	if !limited {
		l.take(w.keys)
		return false
	}
	l.arrivals++
	w.arrival = l.arrivals
	l.enqueue(w, key)
	return true
}

// leave ends the wait of a request, and reports false if the request has been granted.
func (l *Limiter) leave(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.queue == nil {
		return false
	}
	l.dequeue(w)
	return true
}

// grant grants as many of the waiting requests as possible, those of the key with the fewest connections first. One
// pass is enough: a grant only takes connections, so it never lets another request go on.
func (l *Limiter) grant() {
	for n := range l.free {
		for first := l.levels[n].Front(); first != nil && n < l.free; first = l.levels[n].Front() {
			w := first.Value.(*queue).waiters.Front().Value.(*waiter)
			l.dequeue(w)
			if key, limited := l.atLimit(w.keys, l.free+1); limited {
				l.enqueue(w, key)
				continue
			}
			l.take(w.keys)
			close(w.granted)
		}
	}
}

// enqueue puts a request into the queue of a key. Most come last; one that moves from another queue waits before those
// that arrived later.
func (l *Limiter) enqueue(w *waiter, key int64) {
	q, ok := l.queues[key]
	if !ok {
		q = &queue{key: key}
		q.place = l.levels[l.used[key]].PushBack(q)
		l.queues[key] = q
	}
	w.queue = q
	later := q.waiters.Back()
	if later == nil || later.Value.(*waiter).arrival < w.arrival {
		w.place = q.waiters.PushBack(w)
		return
	}
	for later = q.waiters.Front(); later.Value.(*waiter).arrival < w.arrival; {
		later = later.Next()
	}
	w.place = q.waiters.InsertBefore(w, later)
}

// dequeue removes a request from its queue, and the queue if it is empty.
func (l *Limiter) dequeue(w *waiter) {
	q := w.queue
	q.waiters.Remove(w.place)
	w.queue, w.place = nil, nil
	if q.waiters.Len() == 0 {
		l.levels[l.used[q.key]].Remove(q.place)
		delete(l.queues, q.key)
	}
}
