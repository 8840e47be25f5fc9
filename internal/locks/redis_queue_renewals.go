package locks

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

// renewals renews the turns of one process, with one timer for all of them, many in one round trip.
type renewals struct {
	options Options
	// send renews turns and returns an error for each: ErrLeaseLost ends its renewals, another is tried again.
	send func(context.Context, []*turn) []error

	mu      sync.Mutex
	queue   dueQueue
	timer   *time.Timer
	wakes   time.Time // when the timer fires; zero where it is not set
	sending sync.WaitGroup
	closed  bool
}

// renewal is the place of a turn among the renewals.
type renewal struct {
	due     time.Time
	index   int  // in the queue; -1 while it is not in it
	removed bool // while it was being sent
}

// A round trip takes at most so many renewals: one that is lost, or late, should not be that of all.
const renewalBatch = 500

func newRenewals(options Options, send func(context.Context, []*turn) []error) *renewals {
	r := &renewals{options: options, send: send}
	r.timer = time.AfterFunc(options.Renew, r.fire)
	return r
}

// add begins to renew a turn, for the first time in a given time.
func (r *renewals) add(t *turn, in time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.renewal = renewal{index: -1}
	r.push(t, time.Now().Add(in))
}

func (r *renewals) push(t *turn, due time.Time) {
	t.renewal.due = due
	heap.Push(&r.queue, t)
	r.set()
}

// remove ends the renewals of a turn. One that is on its way does no harm.
func (r *renewals) remove(t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.renewal.removed = true
	if t.renewal.index >= 0 {
		heap.Remove(&r.queue, t.renewal.index)
	}
}

// set sees that the timer fires in time. It never puts it off: most turns are over long before they are due, and a timer
// that finds nothing to do costs less than one that is set anew for each.
func (r *renewals) set() {
	if len(r.queue) == 0 || r.closed {
		return
	}
	if due := r.queue[0].renewal.due; r.wakes.IsZero() || due.Before(r.wakes) {
		r.wakes = due
		r.timer.Reset(time.Until(due))
	}
}

// fire sends what is due, and what soon will be. It does not wait for the replies: where a server, or a part of a cluster, does
// not answer, that keeps back the rest of the same batch for a while, and no other.
func (r *renewals) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakes = time.Time{}
	soon := time.Now().Add(r.options.Renew / 20)
	for !r.closed {
		var batch []*turn
		for len(batch) < renewalBatch && len(r.queue) > 0 && r.queue[0].renewal.due.Before(soon) {
			batch = append(batch, heap.Pop(&r.queue).(*turn))
		}
		if len(batch) == 0 {
			break
		}
		r.sending.Go(func() { r.renew(batch) })
	}
	r.set()
}

func (r *renewals) renew(batch []*turn) {
	ctx, cancel := context.WithTimeout(context.Background(), r.options.Renew)
	defer cancel()
	sent := time.Now()
	errs := r.send(ctx, batch)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, t := range batch {
		switch {
		case t.renewal.removed || errors.Is(errs[i], ErrLeaseLost):
		case errs[i] == nil:
			r.push(t, sent.Add(r.options.Renew))
		default:
			r.push(t, time.Now().Add(r.options.Renew/10))
		}
	}
}

// close ends all renewals and waits for those on their way.
func (r *renewals) close() {
	r.mu.Lock()
	r.closed = true
	r.timer.Stop()
	r.mu.Unlock()
	r.sending.Wait()
}

// dueQueue is a heap of turns by the time at which their renewal is due.
type dueQueue []*turn

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].renewal.due.Before(q[j].renewal.due) }
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].renewal.index, q[j].renewal.index = i, j
}

func (q *dueQueue) Push(t any) {
	t.(*turn).renewal.index = len(*q)
	*q = append(*q, t.(*turn))
}

func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.renewal.index = -1
	return t
}
