package locks

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

// renewals renews the turns of one process, with one timer for all of them and many in one round trip.
type renewals struct {
	options Options
	// send renews turns and returns an error for each: ErrLeaseLost ends its renewals, other errors are tried again.
	send func(context.Context, []*turn) []error

	mu      sync.Mutex
	queue   dueQueue
	timer   *time.Timer
	wakes   time.Time // when the timer fires; zero if it is not set
	sending sync.WaitGroup
	closed  bool
}

// renewal is the entry of a turn in renewals.
type renewal struct {
	due     time.Time
	index   int  // in the queue; -1 if it is not there
	removed bool // do not renew it again
}

// renewalBatch is the most renewals per round trip, so that one that is lost or late does not concern all of them.
const renewalBatch = 500

func newRenewals(options Options, send func(context.Context, []*turn) []error) *renewals {
	r := &renewals{options: options, send: send}
	r.timer = time.AfterFunc(options.Renew, r.fire)
	return r
}

// add renews a turn from now on, for the first time after the given pause.
func (r *renewals) add(t *turn, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.renewal = renewal{index: -1}
	r.push(t, time.Now().Add(pause))
}

func (r *renewals) push(t *turn, due time.Time) {
	t.renewal.due = due
	heap.Push(&r.queue, t)
	r.schedule()
}

// remove ends the renewals of a turn. A renewal that is on its way does no harm.
func (r *renewals) remove(t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.renewal.removed = true
	if t.renewal.index >= 0 {
		heap.Remove(&r.queue, t.renewal.index)
	}
}

// schedule makes the timer fire when the first renewal is due. It never postpones it: most turns are over long before
// they are due, and a timer that fires in vain costs less than one that is reset for each turn.
func (r *renewals) schedule() {
	if len(r.queue) == 0 || r.closed {
		return
	}
	if due := r.queue[0].renewal.due; r.wakes.IsZero() || due.Before(r.wakes) {
		r.wakes = due
		r.timer.Reset(time.Until(due))
	}
}

// fire sends the renewals that are due, or will be soon. It does not wait for the replies: a server that does not
// answer delays only the batches sent to it.
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
	r.schedule()
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

// close ends all renewals and waits for those that are on their way.
func (r *renewals) close() {
	r.mu.Lock()
	r.closed = true
	r.timer.Stop()
	r.mu.Unlock()
	r.sending.Wait()
}

// dueQueue is a heap of turns, ordered by when their renewals are due.
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
